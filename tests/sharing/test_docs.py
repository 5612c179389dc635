"""The programs of the page on shared objects run, are short, and are typed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.test_programs import run_in_its_own_group
from tests.documents import blocks, page, section
from tests.harness import output_of

SECTIONS = [
    title
    for title in re.findall(r"^## (.+)$", page("SERVICES"), re.MULTILINE)
    if blocks(section("SERVICES", title), "python")
]


@pytest.mark.real
@pytest.mark.parametrize("title", SECTIONS)
def test_a_program_runs(title: str, tmp_path: Path) -> None:
    (program,) = blocks(section("SERVICES", title), "python")
    run_in_its_own_group(program, tmp_path)


def test_the_programs_are_short() -> None:
    lengths = {
        title: len(block.splitlines())
        for title in SECTIONS
        for block in blocks(section("SERVICES", title), "python")
    }
    assert max(lengths.values()) < 25, lengths


def test_the_programs_pass_mypy_strict(tmp_path: Path) -> None:
    for number, title in enumerate(SECTIONS):
        (program,) = blocks(section("SERVICES", title), "python")
        (tmp_path / f"program_{number}.py").write_text(program)
    assert "Success" in output_of("-m", "mypy", "--strict", *map(str, tmp_path.glob("*.py")))
