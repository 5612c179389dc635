"""The programs and commands of the documents: patterns and tutorial are run, the rest is parsed."""

from __future__ import annotations

import ast
import re
import shlex
import textwrap
from pathlib import Path

import pytest

from tests.documents import DOCS, ROOT, blocks, page, section
from tests.harness import output_of
from tests.net.recorder import free_port

PATTERNS = re.findall(r"^## (.+)$", page("PATTERNS"), re.MULTILINE)
EVERYWHERE = [
    pytest.param(path, index, block, id=f"{path.stem}-{index}")
    for path in sorted((ROOT / "README.md", *DOCS.glob("*.md")))
    for index, block in enumerate(blocks(path.read_text(encoding="utf-8"), "python"))
]


def command_lines() -> list[str]:
    """Each `unisono …` that a document shows, once."""
    found = {}
    for path in sorted((ROOT / "README.md", *DOCS.glob("*.md"))):
        for block in blocks(path.read_text(encoding="utf-8"), "sh", ""):
            for line in block.replace("\\\n", " ").splitlines():
                if line.startswith("unisono "):
                    found[line] = None
    return list(found)


@pytest.mark.parametrize(("path", "index", "block"), EVERYWHERE)
def test_a_program_of_the_documents_is_python(path: Path, index: int, block: str) -> None:
    source = textwrap.dedent(block)  # some are methods of a class
    compile(source, f"{path.name}, block {index}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("line", command_lines())
def test_a_command_line_of_the_documents_is_accepted(line: str) -> None:
    """Its options exist and its values parse; nothing is run."""
    import typer.main

    from unisono.cli.app import app

    words = shlex.split(line, comments=True)[1:]
    command = typer.main.get_command(app)
    chosen = command.commands[words[0]]  # type: ignore[attr-defined]
    chosen.make_context(words[0], words[1:])


@pytest.mark.real
@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_runs(name: str, tmp_path: Path) -> None:
    (program,) = blocks(section("PATTERNS", name), "python")
    run_in_its_own_group(program, tmp_path)


@pytest.mark.real
def test_the_counter_of_the_tutorial_runs(tmp_path: Path) -> None:
    (program,) = blocks(section("START", "Shared state"), "python")
    assert run_in_its_own_group(program, tmp_path) == "the counter is 1\n"


def test_the_tutorial_begins_with_the_readmes_program() -> None:
    (program,) = blocks((ROOT / "README.md").read_text(encoding="utf-8"), "python")
    assert blocks(section("START", "The first group"), "python") == [program]


def run_in_its_own_group(program: str, where: Path) -> str:
    """Run it on a port of its own, so that nobody else is in its group; what it printed."""
    services = r"""replicate\(\s*"[\w-]+",\s*|Bank\(\), "bank", |group="[\w-]+",\s*"""
    opening = rf"""(join\("[\w-]+", (?!daemon=)|Daemon\(f"[^"]+", |{services})"""
    ported, count = re.subn(opening, rf"\1port={free_port()}, ", program)
    assert count
    return output_of("-c", ported, cwd=where)
