"""A plugin for pytest: tests name by marks what they show; this gathers it and tells it.

`--rules` prints every rule of the papers with its tests and its verdict, and fails when one of a
protocol in the catalogue does not hold; `--rules-json FILE` writes the same for programs.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.rules.tally import (
    BROKEN,
    HOLDS,
    NO_TEST,
    BadRules,
    Paper,
    Tally,
    as_object,
    by_number,
    few,
    gaps,
    papers_in,
    sums,
    table,
)

MARKS = {
    "rule(id, ...)": "shows that a numbered rule of a paper holds, as RMC-3",
    "catches(law, ...)": "shows that a law fails on something planted",
}
PAGE = Path(__file__).parents[2] / "docs" / "RULES.md"

PAPERS = pytest.StashKey[tuple[Paper, ...]]()
TALLY = pytest.StashKey[Tally]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rules", action="store_true", help="print every rule with its verdict")
    parser.addoption("--rules-json", metavar="FILE", help="write the rules and their tests there")
    parser.addoption("--rules-page", metavar="FILE", default=str(PAGE), help="where rules stand")


def pytest_configure(config: pytest.Config) -> None:
    for mark, meaning in MARKS.items():
        config.addinivalue_line("markers", f"{mark}: {meaning}")
    page = config.getoption("--rules-page")
    try:
        config.stash[PAPERS] = papers_in(Path(page).read_text("utf-8"))
    except (OSError, BadRules) as error:
        raise pytest.UsageError(f"the rules in {page}: {error}") from None
    config.stash[TALLY] = Tally()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for name in ("rule", "catches"):
            for mark in item.iter_markers(name):
                # Properties travel with the report, also from another process.
                item.user_properties.extend((name, str(shown)) for shown in mark.args)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    known = {rule.id for paper in item.config.stash[PAPERS] for rule in paper.rules}
    for mark in item.iter_markers("rule"):
        for rule in mark.args:
            if rule not in known:
                pytest.fail(f"it is marked with {rule}, a rule that no paper has", pytrace=False)


class Gathering:
    """Hears of every report, whichever process it came from."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not (report.failed or report.skipped or report.when == "call"):
            return
        # Grouped tests of several processes have their group's name appended.
        test = re.sub(r"@\w+$", "", report.nodeid)
        for mark, value in report.user_properties:
            if mark in ("rule", "catches"):
                self._tally.note(mark, str(value), test, report.outcome)


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.pluginmanager.register(Gathering(session.config.stash[TALLY]))


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if hasattr(config, "workerinput"):
        return
    papers, tally, here = config.stash[PAPERS], config.stash[TALLY], catalogue()
    if file := config.getoption("--rules-json"):
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(as_object(papers, tally, here), indent=1)
        Path(file).write_text(text + "\n", "utf-8")
    if config.getoption("--rules") and not session.exitstatus and gaps(papers, tally, here):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def catalogue() -> frozenset[str]:
    from unisono.protocols import specs

    return frozenset(specs())


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    papers, tally = config.stash[PAPERS], config.stash[TALLY]
    tell_laws(terminalreporter, tally)
    if config.getoption("--rules"):
        tell_rules(terminalreporter, papers, tally)
    else:
        tell_shown(terminalreporter, papers, tally)


def tell_laws(terminal: pytest.TerminalReporter, tally: Tally) -> None:
    caught = tally.passed("catches")
    if not caught:
        return
    terminal.section("laws seen to fail on something planted")
    width = max(map(len, caught))
    for law, tests in caught.items():
        claims = few(test.partition("::")[2] for test in tests)
        terminal.line(f"{law:<{width}}  {len(tests):>3}  {', '.join(claims)}")


def tell_shown(terminal: pytest.TerminalReporter, papers: tuple[Paper, ...], tally: Tally) -> None:
    """In short: what the tests of this run have shown."""
    shown = tally.passed("rule")
    if not shown:
        return
    terminal.section("rules shown")
    for paper in papers:
        if here := [rule.id for rule in paper.rules if rule.id in shown]:
            of = f"{len(here):>2} of {len(paper.rules):>2}"
            terminal.line(f"{paper.prefix} {of}  {' '.join(sorted(here, key=by_number))}")


def tell_rules(terminal: pytest.TerminalReporter, papers: tuple[Paper, ...], tally: Tally) -> None:
    here = catalogue()
    terminal.section("rules of the papers")
    for line, verdict in table(papers, tally):
        terminal.line(line, red=verdict == BROKEN)
    terminal.section("papers")
    for each in sums(papers, tally, here):
        counts = f"{each[HOLDS]:>2} hold, {each[BROKEN]} broken, {each[NO_TEST]:>2} without a test"
        aside = "" if each["in_catalogue"] else "  (not in the catalogue)"
        terminal.line(f"{each['paper']}  {each['protocol']:<8} {each['rules']:>2}: {counts}{aside}")
    if missing := gaps(papers, tally, here):
        terminal.line(f"not shown to hold: {' '.join(missing)}", red=True)
