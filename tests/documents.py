"""The documents as tests read them: pages, sections, code blocks, anchors."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#{1,6}) (.+)$", re.MULTILINE)


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def section(name: str, title: str) -> str:
    """A section of a page with its subsections, from its heading to the next of its level."""
    text = page(name)
    found = [head for head in HEADING.finditer(without_code(text)) if head[2] == title]
    assert len(found) == 1, f"{name} has {len(found)} sections {title!r}"
    (head,) = found
    after = HEADING.finditer(without_code(text), head.end())
    end = next((each.start() for each in after if len(each[1]) <= len(head[1])), len(text))
    return text[head.start() : end]


def without_code(text: str) -> str:
    """The text with code blocks blanked out, so that positions stay."""
    return BLOCK.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def blocks(text: str, *kinds: str) -> list[str]:
    """The code blocks of these kinds."""
    return [block for kind, block in BLOCK.findall(text) if kind in kinds]


def anchors(text: str) -> set[str]:
    """What a link to a heading of this text may name, as GitHub and MkDocs make it."""
    found: set[str] = set()
    for head in HEADING.finditer(without_code(text)):
        words = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", head[2]).lower()
        slug = re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
        while slug in found:
            slug += "-1"
        found.add(slug)
    return found
