"""Marks become a table, and the table can say no: from one process and from several."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.rules.plugin import PAGE
from tests.rules.tally import BROKEN, HOLDS, NO_TEST, BadRules, Tally, papers_in, table

ROOT = Path(__file__).parents[2]

TINY_PAGE = """
# Rules
## RMC: rmcast
| rule | what a program can be seen to do |
|---|---|
| RMC-1 send | says it |
| RMC-2 order | in order |
| RMC-3 late | fails after it passed |
| RMC-4 skipped | shown by nobody here |
| RMC-5 forgotten | shown by nobody |
| RMC-10 many | by many |
## ZZZ: zebra
| rule | what |
|---|---|
| ZZZ-1 stripes | comes later |
"""

TINY_TESTS = """
import pytest

@pytest.mark.rule("RMC-1")
def test_says(): pass

@pytest.mark.rule("RMC-1", "RMC-2")
@pytest.mark.catches("fifo")
def test_fails(): assert 0

@pytest.fixture
def bad_end():
    yield
    assert 0

@pytest.mark.rule("RMC-3")
def test_late(bad_end): pass

@pytest.mark.rule("RMC-4")
@pytest.mark.skip(reason="not here")
def test_skipped(): pass

@pytest.mark.rule("RMC-10")
@pytest.mark.catches("causal")
@pytest.mark.xdist_group("some")
@pytest.mark.parametrize("n", range(5))
def test_many(n): pass

@pytest.mark.rule("RMC-10")
@pytest.mark.xfail(strict=True)
def test_expected(): assert 0
"""

UNKNOWN = """
import pytest

@pytest.mark.rule("RMC-99")
def test_of_a_rule_that_is_none(): pass
"""

GOOD = """
import pytest

@pytest.mark.rule("RMC-1", "RMC-2", "RMC-3", "RMC-4", "RMC-5", "RMC-10")
def test_all(): pass
"""


def ran(place: Path, tests: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Pytest on one tiny file, with the plugin and a page of a few rules."""
    (place / "pytest.ini").write_text("[pytest]\nmarkers =\n")
    (place / "RULES.md").write_text(TINY_PAGE)
    (place / "test_tiny.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.rules.plugin"]
    command += ["-p", "no:cacheprovider", "-c", str(place / "pytest.ini"), "--rootdir", str(place)]
    command += ["--rules-page", str(place / "RULES.md"), *arguments, str(place / "test_tiny.py")]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def lines_of(text: str) -> dict[str, str]:
    """The table's line of each rule."""
    return {line.split()[0]: line for line in text.splitlines() if line[:4] in ("RMC-", "ZZZ-")}


@pytest.mark.parametrize("processes", ["0", "2"])
def test_every_rule_gets_its_tests_and_its_verdict(tmp_path: Path, processes: str) -> None:
    file = tmp_path / "build" / "rules.json"
    several = ("-n", processes, "--dist", "loadgroup")
    found = ran(tmp_path, TINY_TESTS, "--rules", "--rules-json", str(file), *several)
    assert found.returncode == 1
    lines = lines_of(found.stdout)
    verdicts = {"RMC-1": BROKEN, "RMC-2": BROKEN, "RMC-3": BROKEN, "RMC-4": NO_TEST}
    verdicts |= {"RMC-5": NO_TEST, "RMC-10": HOLDS, "ZZZ-1": NO_TEST}
    assert list(lines) == list(verdicts), "in the page's order"
    for rule, verdict in verdicts.items():
        assert f"  {verdict}" in lines[rule]
    assert lines["RMC-10"].split()[-2:] == ["5", "test_tiny.py::test_many"]
    assert "rmcast    6:  1 hold, 3 broken,  2 without a test\n" in found.stdout
    assert "zebra     1:  0 hold, 0 broken,  1 without a test  (not in the cat" in found.stdout
    assert "not shown to hold: RMC-1 RMC-2 RMC-3 RMC-4 RMC-5\n" in found.stdout
    laws = found.stdout.partition("laws seen")[2].partition("rules of the papers")[0]
    assert "causal    5  test_many[0], " in laws and "fifo" not in laws

    told: dict[str, Any] = json.loads(file.read_text())
    assert {each["rule"]: each["verdict"] for each in told["rules"]} == verdicts
    assert told["gaps"] == ["RMC-1", "RMC-2", "RMC-3", "RMC-4", "RMC-5"]
    first = told["rules"][0]
    assert first["tests"] == {
        "test_tiny.py::test_fails": "failed",
        "test_tiny.py::test_says": "passed",
    }
    assert (first["name"], first["what"]) == ("send", "says it")
    assert told["papers"][1] == {
        "paper": "ZZZ",
        "protocol": "zebra",
        "in_catalogue": False,
        "rules": 1,
        "holds": 0,
        "broken": 0,
        "no test": 1,
    }


def test_when_all_hold_it_ends_well_and_a_gap_is_enough_to_fail(tmp_path: Path) -> None:
    good = ran(tmp_path, GOOD, "--rules")
    assert good.returncode == 0, good.stdout
    assert "not shown to hold" not in good.stdout
    gap = ran(tmp_path, GOOD.replace('"RMC-5", ', ""), "--rules")
    assert gap.returncode == 1 and "not shown to hold: RMC-5\n" in gap.stdout
    plain = ran(tmp_path, GOOD.replace('"RMC-5", ', ""))
    assert plain.returncode == 0, "only --rules asks for all of them"
    assert "RMC  5 of  6  RMC-1 RMC-2 RMC-3 RMC-4 RMC-10\n" in plain.stdout


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_mark_that_names_no_rule_is_an_error(tmp_path: Path, processes: str) -> None:
    found = ran(tmp_path, UNKNOWN, "-n", processes)
    assert found.returncode == 1
    assert "marked with RMC-99, a rule that no paper has" in found.stdout


def test_a_page_that_cannot_be_read_is_told_at_once(tmp_path: Path) -> None:
    found = ran(tmp_path, GOOD, "--rules-page", str(tmp_path / "none.md"))
    assert found.returncode == 4 and "none.md" in found.stderr


@pytest.mark.parametrize(
    "page, says",
    [
        ("", "no section"),
        ("## RMC: rmcast\n| RMP-1 ring | turns |", "RMP-1 stands in the section RMC"),
        ("## RMC: rmcast\n## More\n| RMC-1 a | b |", "of no paper"),
        ("## RMC: rmcast\n| RMC-1 a | b |\n| RMC-1 c | d |", "twice"),
    ],
)
def test_a_page_that_contradicts_itself_is_refused(page: str, says: str) -> None:
    with pytest.raises(BadRules, match=says):
        papers_in(page)


def test_only_a_few_of_many_tests_are_named() -> None:
    tally = Tally()
    for number in range(5):
        tally.note("rule", "RMC-1", f"a.py::test_{number}", "passed")
    (paper, _) = papers_in(TINY_PAGE)
    lines = [line for line, _ in table([paper], tally)]
    assert "    5  a.py::test_0" in lines[1]
    assert [line.strip() for line in lines[2:5]] == ["a.py::test_1", "a.py::test_2", "and 2 more"]


def test_the_page_has_the_five_papers_and_their_rules_in_a_row() -> None:
    papers = papers_in(PAGE.read_text())
    counts = {paper.prefix: (paper.protocol, len(paper.rules)) for paper in papers}
    assert counts == {
        "MTP": ("mtp", 23),
        "RMP": ("rmp", 21),
        "TRA": ("transis", 28),
        "RMC": ("rmcast", 9),
        "RNG": ("ring", 24),
    }
    for paper in papers:
        numbers = [rule.id for rule in paper.rules]
        assert numbers == [f"{paper.prefix}-{n + 1}" for n in range(len(numbers))]
