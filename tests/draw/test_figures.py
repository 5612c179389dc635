"""The figures of the documents are what their lines make. `pytest --rewrite` draws them anew."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.draw.histories import overlaps, parsed
from tests.draw.test_command import command
from tests.harness import ROOT

DOCS = ROOT / "docs"
BLOCK = re.compile(r"!\[[^\]]*\]\((figures/[^)]+\.svg)\)\n\n```sh\n(.*?)```", re.DOTALL)


def figures() -> dict[str, list[str]]:
    """By file, the lines below it."""
    return {
        name: lines.splitlines()
        for page in sorted(DOCS.glob("*.md"))
        for name, lines in BLOCK.findall(page.read_text())
    }


def test_every_figure_has_its_lines() -> None:
    kept = {f"figures/{path.name}" for path in (DOCS / "figures").glob("*.svg")}
    plots = ("figures/ring-paper-", "figures/levels-", "figures/flames-")
    measured = {name for name in kept if name.startswith(plots)}
    assert measured, "plots of benchmarks, which never measure the same twice"
    assert kept - measured == set(figures())


@pytest.mark.parametrize("name", figures())
def test_a_figure_is_what_its_lines_make(name: str, tmp_path: Path, rewrite: bool) -> None:
    shutil.copytree(DOCS / "figures", tmp_path / "figures", ignore=shutil.ignore_patterns("*.svg"))
    for line in figures()[name]:
        words = shlex.split(line)
        assert words[0] == "unisono"
        found = command(*words[1:], cwd=tmp_path)
        assert found.returncode == 0, found.stderr
    drawn = (tmp_path / name).read_text(encoding="utf-8")
    parsed(drawn)
    assert not overlaps(drawn)
    if rewrite:
        (DOCS / name).write_text(drawn, encoding="utf-8", newline="\n")
    assert (DOCS / name).read_text(encoding="utf-8") == drawn, "see it, then pytest --rewrite"
