"""What the README and the examples show is run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import blocks, page
from tests.harness import ENVIRONMENT, ROOT, output_of
from tests.waiting import LIMIT_S, until

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_make_targets_of_the_readme_exist() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    shown = [word for block in blocks(README, "sh") for word in re.findall("make ([a-z]+)", block)]
    assert {"demo", "test"} <= set(shown) <= set(targets)


def test_the_extras_of_the_readme_exist() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    shown = re.findall(r"(?:unisono|'\.)\[(\w+)\]", README)
    assert shown
    for extra in shown:
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE)


def test_the_example_is_the_readmes() -> None:
    (program,) = blocks(README, "python")
    assert (ROOT / "examples" / "hello.py").read_text().endswith(program)


@pytest.mark.real
def test_the_program_of_the_readme_runs(tmp_path: Path) -> None:
    (program,) = blocks(README, "python")
    path = tmp_path / "hello.py"
    path.write_text(program)
    processes = [
        subprocess.Popen(
            [sys.executable, str(path), name], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
        )
        for name in ("ann", "bob")
    ]
    try:
        told = [process.communicate(timeout=LIMIT_S)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait(10)
    for process, text in zip(processes, told, strict=True):
        assert process.returncode == 0
        assert "members: ann bob" in text or "members: bob ann" in text
        assert "ann: hello from ann" in text
        assert "bob: hello from bob" in text


def counted_by_two(rounds: int) -> tuple[list[str], list[str]]:
    """The output of a counter of so many rounds, and of one that joins it after the second."""
    program = ("-u", str(ROOT / "examples" / "counter.py"))
    with subprocess.Popen(
        [sys.executable, *program, str(rounds)], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as first:
        assert first.stdout is not None
        lines = [next(first.stdout), next(first.stdout)]
        second = output_of(*program, "1")
        lines += first.stdout.readlines()
        assert first.wait(LIMIT_S) == 0
    return lines, second.splitlines()


@pytest.mark.real
def test_the_counter_is_handed_to_joiners() -> None:
    for rounds in (5, 20, 80):
        first, (handed, *counted) = counted_by_two(rounds)
        if handed.startswith("handed over"):  # Else it started when the first had ended.
            break
    assert first[:2] == ["the counter is 1\n", "the counter is 2\n"]
    value = int(handed.removeprefix("handed over: "))
    assert value >= 2 and counted[0] == f"the counter is {value + 1}"
    assert first[-1] == f"the counter is {rounds + 1}\n", "both have what either sent"


@pytest.mark.real
def test_all_keep_the_same_ledger() -> None:
    program = [sys.executable, "-u", str(ROOT / "examples" / "ledger.py")]
    with subprocess.Popen(
        [*program, "bank", "--master", "--transfers", "20"],
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    ) as bank:
        members = [
            subprocess.Popen([*program, *words], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
            for words in (["ann", "--transfers", "6"], ["bob"])
        ]
        try:
            told = [process.communicate(timeout=LIMIT_S)[0] for process in (*members, bank)]
        finally:
            for process in (*members, bank):
                process.kill()
                process.wait(10)
    assert [process.returncode for process in (*members, bank)] == [0, 0, 0]
    ann, bob, _ = told
    assert ann.startswith("handed over: ") and bob.startswith("handed over: ")
    assert bob.endswith("stopped: the master ended the web\n")
    by_place: dict[str, set[str]] = {}
    for line in "".join(told).splitlines():
        if line.startswith("#"):
            by_place.setdefault(line.split()[0], set()).add(line)
    assert len(by_place) >= 26 and all(len(lines) == 1 for lines in by_place.values())


def test_the_simulations_of_the_documents_run(tmp_path: Path) -> None:
    """Python in SIMULATION.md, but for the campaign of three thousand seeds."""
    run = [block for block in blocks(page("SIMULATION"), "python") if "outcome" in block]
    assert run
    for block in run:
        done = subprocess.Popen([sys.executable, "-c", block], cwd=tmp_path)
        until(lambda process=done: process.poll() is not None)
        assert done.returncode == 0


def test_every_law_and_profile_is_in_the_documents() -> None:
    from unisono.laws import LAWS
    from unisono.protocols import specs

    text = README
    for column, spec in enumerate(specs().values(), 3):
        assert f"\n| `{spec.name}` |" in text, f"{spec.name} is here"
        rows = [(law, line) for line in text.splitlines() for law in LAWS if f"`{law}`" in line]
        assert len(rows) > 12, "docs/CONCEPTS.md has them all"
        for law, row in rows:
            claimed = "kept" if law in spec.laws else "not claimed"
            assert row.split("|")[column].strip() == claimed, f"{spec.name} and {law}"
