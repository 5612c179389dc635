"""Parts of a page that a command writes: what stands between two marks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def fill(page: Path, begin: str, end: str, parts: Sequence[str]) -> bool:
    """Put these paragraphs between the marks; whether the page has them."""
    text = page.read_text(encoding="utf-8")
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        return False
    page.write_text("\n\n".join((before + begin, *parts, end + after)), encoding="utf-8")
    return True
