"""Code blocks of a page that show a file piece by piece, and together are the whole file.

Before a block stands `<!-- PATH: START OF ITS FIRST LINE -->`; the block ends before the next piece
of that file.
"""

from __future__ import annotations

import re
from pathlib import Path

BLOCK = re.compile(
    r"<!-- (?P<path>\S+): (?P<first>[^\n]*) -->\n\n```python\n(?P<code>.*?)```\n", re.S
)


def shown(page: str) -> dict[str, str]:
    """By path, the code that the page shows of it."""
    found: dict[str, str] = {}
    for block in BLOCK.finditer(page):
        found[block["path"]] = found.get(block["path"], "") + block["code"]
    return found


def code_lines(text: str) -> list[str]:
    """Without blank lines: the formatter of pages drops those at the end of a block."""
    return [line for line in text.splitlines() if line]


def refreshed(page: str, root: Path) -> str:
    """The page with its blocks as the files are now."""
    starts: dict[str, list[int]] = {}
    for block in BLOCK.finditer(page):
        text = (root / block["path"]).read_text()
        starts.setdefault(block["path"], []).append(text.index(block["first"]))

    def replaced(block: re.Match[str]) -> str:
        text = (root / block["path"]).read_text()
        mine = starts[block["path"]]
        start = mine.pop(0)
        code = text[start : mine[0] if mine else len(text)]
        return f"<!-- {block['path']}: {block['first']} -->\n\n```python\n{code}```\n"

    return BLOCK.sub(replaced, page)
