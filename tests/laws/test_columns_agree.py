"""The laws on rows and on columns give equal verdicts, violations and measures on several hundred
histories."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.laws.doctoring import FILES
from tests.laws.judged_here import judged_here
from tests.laws.mutations import DOCTORS, by_step, doctored
from tests.laws.stories import DOCTORED, SOUND, story, write_trace
from tests.laws.test_mutants import MUTANTS, orderly
from tests.yardstick.plain import Key, measures_of
from unisono.laws import LAWS, VIOLATIONS_MAX, Verdict, Violation, judge, judge_all
from unisono.sim.plan import Plan
from unisono.sim.run import run
from unisono.trace.history import History
from unisono.trace.reading import Trace, read_trace
from unisono.trace.record import Row

# All in one process: what they share is made once.
pytestmark = pytest.mark.xdist_group("columns")

CLAIMED = {
    "story": list(LAWS),
    "rmcast": list(LAWS),
    "ring": list(LAWS),
    "mtp": list(LAWS),
    "rmp": list(LAWS),
    "second": ["validity"],
}


def simulated(protocol: str, seed: int) -> list[Row]:
    outcome = run(Plan(protocol=protocol, nodes=3, seed=seed, faults="chaos", messages=30))
    assert outcome.history is not None
    return list(outcome.history.rows)


def odd_histories() -> list[History]:
    """The limit on violations, difficult names, two groups with equal messages."""
    many = " | ".join("send" for _ in range(VIOLATIONS_MAX * 2))
    lost = story("a: view 1 a | send | send | a:2", run="two groups")
    again = [row._replace(group="h") for row in lost.rows]
    other = [row._replace(protocol="second", group="h2") for row in lost.rows]
    spread = [row._replace(node=f"{row.node}{n}", sender=row.sender and f"{row.sender}{n}")
              for n, part in enumerate((again, other), 1) for row in part]  # fmt: skip
    far = "a: view 1 a b | send | send 999999999999 | a:999999999999 | a:1\nb: view 1 a b | a:1"
    there_and_back = """
        a: view 1 a b | send | a:1 | view 2 a b | view 1 a b | view 2 a b
        b: view 1 a b | view 2 a b | a:1 | view 1 a b | view 2 a b
    """
    # Rounds of three that agree by two, each a good while after the other.
    rounds = [" | ".join(f"{x}:{n} | {y}:{n}" for n in range(1, 13)) for x, y in ("ab", "bc", "ca")]
    sends = " | ".join(["send"] * 12)
    circles = "\n".join(
        f"{x}: view 1 a b c | {sends} | {r}" for x, r in zip("abc", rounds, strict=True)
    )
    far_places = """
        a: view 1 a b c | send | send | send | send | a:1@1 | a:2@2 | a:3@3 | a:4@4 | b:1@5 | b:2@6
        b: view 1 a b c | send | send | a:1@1 | a:4@4 | b:1@2 | b:2@6 | stop
        c: view 1 a b c | a:1@6 | b:2@1 | a:4@40 | stop
    """
    held_by_some = """
        a: view 1 a b c | send | send | send | a:1 | a:2 | a:3 | holds a:3 | view 2 a b c
        b: view 1 a b c | a:1 | holds a:1 | view 2 a b c | crash
        c: view 1 a b c | holds a:2 | view 2 a b c | a:3 | left
    """
    forms = [row._replace(node="a", sender="a", step=9, digest=3) for row in lost.rows[1:2]]
    return [
        story(f"a: view 1 a b | {many}\nb: view 1 a b", run="many"),
        story("x%y: view 1 x%y z | send | x%y:1\nz: view 1 x%y z cut x%25y#1:1 | x%y:1", run="007"),
        story("ü<b>: view 1 b | send | send | ü<b>:2", run="ü/<b>&'\""),
        story("a: view 1 a b | view 2 b\nb: view 1 a b | view 2 b", run="a later view without it"),
        story("a: view 1 a b | stop expelled | view 2 b\nb: view 1 a b | view 2 b", run="too late"),
        story(far, run="far apart"),
        story(there_and_back, run="the same passage twice"),
        story(
            "a: view 1 a b at 0 | send | a:1@3 | crash | view 2 a b at 1\nb: view 1 a b at 0",
            "agreed",
            run="a view after its end, at a place before",
        ),
        story(held_by_some, "safe", run="held by some"),
        story(circles, "agreed", run="round after round"),
        story(circles.replace("c:1 |", "c:1 | c:2 |"), "agreed", run="round and twice"),
        story(far_places, "safe", run="far places, safe"),
        story(far_places, "agreed", run="far places, agreed"),
        History("sent in two forms", "story", "g", (*lost.rows, *forms)),
        History("two groups", "story", "g", (*lost.rows, *spread)),
    ]


SHARED = ("cut", "receipts")


class Case(NamedTuple):
    """A history, what was done to it, and which laws it broke before that."""

    history: History
    cause: str
    before: frozenset[str] = frozenset()


def broken_in(verdict: Verdict) -> frozenset[str]:
    return frozenset(law for law, word in verdict.laws.items() if word == "broken")


def all_histories() -> list[Case]:
    cases = [Case(item.history, item.name) for item in (*DOCTORED, *SOUND) if item.history.rows]
    sources = [simulated("rmcast", 1), simulated("ring", 5), orderly(3, count=20)]
    before = [
        broken_in(judge(History("r", rows[0].protocol, "g", tuple(rows)), LAWS)) for rows in sources
    ]
    for number, name in enumerate(DOCTORS):
        for times in (1, 6):
            which = (number + times) % 3
            history = doctored(sources[which], name, seed=number, times=times)
            cases.append(Case(history, name, before[which]))
    for seed, protocol in enumerate(("mtp", "ring", "rmcast", "rmp"), 20):
        rows = simulated(protocol, seed)
        cases.append(Case(History(f"{protocol} {seed}", protocol, "g", tuple(rows)), "simulated"))
    for mutant, _ in MUTANTS:
        for seed in range(2):
            rows = orderly(seed, count=16)
            mutant(rows, random.Random(seed))
            steps = {(row.node, row.incarnation, row.step): row for row in rows}
            run_name = f"{mutant.__name__} {seed}"
            history = History(run_name, "story", "g", tuple(by_step(steps)))
            cases.append(Case(history, mutant.__name__))
    return cases + [Case(history, history.run) for history in odd_histories()]


class Findings(NamedTuple):
    """The results of one way of judging."""

    verdicts: dict[str, Verdict]
    """By run."""
    measures: dict[Key, dict[str, Any]]
    quarantine: list[tuple[str, int, str]]
    events: int


class Both(NamedTuple):
    cases: list[Case]
    trace: Trace
    plain: dict[str, Verdict]
    measured: dict[Key, dict[str, Any]]
    found: Findings


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    """All histories as runs of one directory, judged in both ways."""
    trace_dir: Path = tmp_path_factory.mktemp("trace")
    cases = all_histories()
    for each in cases:
        write_trace(each.history, trace_dir)
    for item in FILES:
        item.write(trace_dir)
    trace = read_trace(trace_dir)
    return Both(
        cases=cases,
        trace=trace,
        plain=judge_all(trace.histories(), lambda protocol: CLAIMED[protocol]),
        measured=measures_of(trace.histories()),
        found=findings_of(judged_here(trace_dir, CLAIMED)),
    )


def findings_of(found: list[dict[str, Any]]) -> Findings:
    """From the rows of the wide table."""
    violations: dict[str, list[Violation]] = {}
    laws: dict[str, dict[str, str]] = {}
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in found:
        rows.setdefault(row["what"], []).append(row)
    for row in rows.get("violation", ()):
        violation = Violation(*(row[name] for name in Violation._fields))
        violations.setdefault(row["run"], []).append(violation)
    for row in rows["verdict"]:
        laws.setdefault(row["run"], {})[row["law"]] = row["verdict"]
    return Findings(
        {run: Verdict(words, sorted(violations.get(run, []))) for run, words in laws.items()},
        {(row["run"], row["protocol"], row["node"]): row for row in rows["measure"]},
        sorted((row["path"], -1 if row["row"] is None else row["row"], row["reason"])
               for row in rows.get("quarantine", ())),
        sum(row["events"] for row in rows["count"]),
    )  # fmt: skip


def test_there_are_many_histories_and_each_law_is_broken_in_five_ways(both: Both) -> None:
    from unisono.laws.columnar.judging import ON_COLUMNS

    assert len(both.plain) >= 200
    ways: dict[str, set[str]] = {law: set() for law in LAWS}
    for each in both.cases:
        for law in broken_in(both.plain[each.history.run]) - each.before:
            ways[law].add(each.cause)
    # A law on control rows is one function for both, and so is one from facts about messages.
    least = {law: 5 if law in ON_COLUMNS and law not in SHARED else 2 for law in LAWS}
    assert {law: len(ways[law]) for law in LAWS if len(ways[law]) < least[law]} == {}


def test_verdicts_and_violations_are_the_same(both: Both) -> None:
    results, plain = both.found, both.plain
    assert results.verdicts.keys() == plain.keys()
    for name, verdict in plain.items():
        assert results.verdicts[name].violations == verdict.violations, name
        assert {law: results.verdicts[name].laws[law] for law in LAWS} == verdict.laws, name


def test_the_same_rows_are_judged_and_quarantined(both: Both) -> None:
    results, plain = both.found, both.plain
    assert results.events == sum(len(both.trace.runs[run]) for run in plain)
    assert results.quarantine == sorted(
        (each.path, -1 if each.row is None else each.row, each.reason)
        for each in both.trace.quarantined
    )


def test_the_measures_are_as_computed_in_process(both: Both) -> None:
    results, plain = both.found, both.plain
    measured = {key: row for key, row in both.measured.items() if key[0] in plain}
    assert results.measures.keys() == measured.keys()
    for key, row in measured.items():
        found = {name: results.measures[key][name] for name in row}
        assert found == pytest.approx(row), key


@pytest.mark.parametrize(
    "law", [pytest.param(law, marks=pytest.mark.catches(law), id=law) for law in LAWS]
)
def test_a_law_on_columns_catches_what_the_in_process_law_does(both: Both, law: str) -> None:
    meant = {item.history.run for item in DOCTORED if item.law == law}
    broken, found = (
        {run for run, verdict in verdicts.items() if verdict.laws[law] == "broken"}
        for verdicts in (both.plain, both.found.verdicts)
    )
    assert meant <= broken
    assert found == broken


def test_changed_files_are_judged_as_in_process(both: Both) -> None:
    for item in FILES:
        laws = both.found.verdicts[item.run].laws
        assert both.plain[item.run].laws == {law: laws[law] for law in LAWS}, item.name
        assert {laws[law] for law in item.laws} <= {"broken"}, item.name
        assert item.laws or "broken" not in laws.values(), item.name


def test_the_limit_on_violations_is_the_same(both: Both) -> None:
    verdicts: dict[str, Verdict] = both.found.verdicts
    reported = [found for found in verdicts["many"].violations if found.law == "validity"]
    assert len(reported) == VIOLATIONS_MAX
    assert reported[1].message == "a#1:10"


def test_two_groups_of_a_run_may_have_equal_messages(both: Both) -> None:
    verdict: Verdict = both.found.verdicts["two groups"]
    assert verdict.laws["validity"] == "broken"
    assert len({found.life for found in verdict.violations}) == 3
