"""The laws on Spark and the plain ones say the same, of every history that could be thought of."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.laws.doctoring import FILES
from tests.laws.stories import DOCTORED, SOUND, story, write_trace
from tests.laws.test_mutants import orderly
from unisono.laws import LAWS, VIOLATIONS_MAX, Verdict, judge_all
from unisono.sim.plan import Plan
from unisono.sim.run import run
from unisono.spark.laws import SPARK_LAWS
from unisono.trace.files import read_trace
from unisono.trace.history import History
from unisono.trace.record import LEFT, Row

pytestmark = pytest.mark.timeout(240)
CLAIMED = {"story": list(LAWS), "rmcast": list(LAWS), "second": ["validity"]}

# -- doctoring -----------------------------------------------------------------------------------


def places(rows: list[Row], *kinds: str) -> list[int]:
    return [place for place, row in enumerate(rows) if row.kind in kinds]


def drop(*kinds: str) -> Callable[[list[Row], random.Random], None]:
    def doctor(rows: list[Row], dice: random.Random) -> None:
        del rows[dice.choice(places(rows, *kinds))]

    return doctor


def alter(kind: str, **fields: object) -> Callable[[list[Row], random.Random], None]:
    def doctor(rows: list[Row], dice: random.Random) -> None:
        place = dice.choice(places(rows, kind))
        rows[place] = rows[place]._replace(**fields)  # type: ignore[arg-type]

    return doctor


def repeat(kind: str) -> Callable[[list[Row], random.Random], None]:
    """The row once more, a good while later in the same life."""

    def doctor(rows: list[Row], dice: random.Random) -> None:
        row = rows[dice.choice(places(rows, kind))]
        rows.append(row._replace(step=row.step + 2 * dice.randrange(1, 40) + 1))

    return doctor


def swap(kind: str) -> Callable[[list[Row], random.Random], None]:
    """Two of one life change places."""

    def doctor(rows: list[Row], dice: random.Random) -> None:
        first = dice.choice(places(rows, kind))
        life = rows[first][2:4]
        second = dice.choice([p for p in places(rows, kind) if rows[p][2:4] == life])
        one, two = rows[first], rows[second]
        rows[first], rows[second] = one._replace(step=two.step), two._replace(step=one.step)

    return doctor


def end(kind: str, detail: str | None) -> Callable[[list[Row], random.Random], None]:
    """A life ends in the middle, and goes on all the same."""

    def doctor(rows: list[Row], dice: random.Random) -> None:
        row = rows[dice.choice(places(rows, "deliver"))]
        rows.append(
            Row(*row[:4], step=row.step + 1, t_us=row.t_us, kind=kind, view="", detail=detail)
        )

    return doctor


def silence(rows: list[Row], dice: random.Random) -> None:
    """One life hears nothing more from some step on."""
    row = rows[dice.choice(places(rows, "deliver"))]
    rows[:] = [
        each
        for each in rows
        if each.kind != "deliver" or each[2:4] != row[2:4] or each.step < row.step
    ]


def forget(rows: list[Row], dice: random.Random) -> None:
    """All that one life told is lost, unless it is the last."""
    life = dice.choice(rows)[2:4]
    rows[:] = [each for each in rows if each[2:4] != life] or rows


DOCTORS: dict[str, Callable[[list[Row], random.Random], None]] = {
    "drop a delivery": drop("deliver"),
    "drop a send": drop("send"),
    "drop a view": drop("view"),
    "drop an end": drop("leave", "crash", "join"),
    "deliver twice": repeat("deliver"),
    "send twice": repeat("send"),
    "install twice": repeat("view"),
    "swap deliveries": swap("deliver"),
    "swap views": swap("view"),
    "swap sends": swap("send"),
    "alter a digest": alter("deliver", digest=7),
    "alter a size": alter("deliver", size=99),
    "alter a number": alter("deliver", number=3),
    "alter a number beyond all": alter("deliver", number=10**12),
    "alter a sender": alter("deliver", sender="b", sender_incarnation=1),
    "alter a place": alter("deliver", seq=5),
    "alter a service": alter("deliver", service="safe"),
    "send unreliably": alter("send", service="unreliable"),
    "alter a view's members": alter("view", members=("b#1", "a#1", "b#1")),
    "alter a view's name": alter("view", view="?"),
    "alter a cut": alter("view", detail="a#1:9 b#1:2 a#1:4 c%20d%2525#7:1"),
    "a cut that is none": alter("view", detail="a#1:9 b#1:2\n"),
    "leave in the middle": end("leave", LEFT),
    "stop in the middle": end("leave", "expelled"),
    "crash in the middle": end("crash", None),
    "silence": silence,
    "forget": forget,
}


def doctored(history: list[Row], name: str, seed: int, times: int) -> History:
    rows = [row._replace(step=2 * row.step) for row in history]
    dice = random.Random(seed)
    for _ in range(times):
        # What is not there cannot be doctored.
        try:
            DOCTORS[name](rows, dice)
        except IndexError:
            break
    whole = {(row.node, row.incarnation, row.step): row for row in rows}
    return History(f"{name} {seed} {times}", rows[0].protocol, "g", tuple(_by_step(whole)))


def _by_step(rows: dict[tuple[str, int, int], Row]) -> list[Row]:
    return [rows[key] for key in sorted(rows)]


def simulated(seed: int) -> list[Row]:
    outcome = run(Plan(protocol="rmcast", nodes=4, seed=seed, faults="chaos", messages=60))
    assert outcome.history is not None
    return list(outcome.history.rows)


def odd_histories() -> list[History]:
    """The bound on what is told, names that are hard to say, two groups that say the same."""
    many = " | ".join("send" for _ in range(VIOLATIONS_MAX * 2))
    lost = story("a: view 1 a | send | send | a:2", run="two groups")
    again = [row._replace(group="h") for row in lost.rows]
    other = [row._replace(protocol="second", group="h2") for row in lost.rows]
    spread = [row._replace(node=f"{row.node}{n}", sender=row.sender and f"{row.sender}{n}")
              for n, part in enumerate((again, other), 1) for row in part]  # fmt: skip
    return [
        story(f"a: view 1 a b | {many}\nb: view 1 a b", run="many"),
        story("x%y: view 1 x%y z | send | x%y:1\nz: view 1 x%y z cut x%25y#1:1 | x%y:1", run="007"),
        story("ü<b>: view 1 b | send | send | ü<b>:2", run="ü/<b>&'\""),
        History("two groups", "story", "g", (*lost.rows, *spread)),
    ]


def all_histories() -> list[History]:
    told = [item.history for item in (*DOCTORED, *SOUND) if item.history.rows]
    sources = [simulated(1), simulated(5), orderly(3)]
    for number, name in enumerate(DOCTORS):
        for times in (1, 6):
            rows = sources[(number + times) % 3]
            told.append(doctored(rows, name, seed=number, times=times))
    return told + odd_histories()


class Both(NamedTuple):
    plain: dict[str, Verdict]
    spark: dict[str, Verdict]
    json: dict[str, Any]
    report: str


@pytest.fixture(scope="module")
def both(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Both:
    """All histories as runs of one directory, judged by both, on Spark in one job."""
    from unisono.spark.pipeline import run_pipeline

    trace_dir: Path = tmp_path_factory.mktemp("trace")
    for history in all_histories():
        write_trace(history, trace_dir)
    for item in FILES:
        item.write(trace_dir)
    trace = read_trace(trace_dir)
    plain = judge_all(trace.histories(), lambda protocol: CLAIMED[protocol])
    result = run_pipeline(spark, trace_dir, tmp_path_factory.mktemp("out"), CLAIMED)
    assert result.events == trace.events
    assert result.quarantined == len(trace.quarantined)
    return Both(plain, result.verdicts, result.as_json(), result.report.read_text())


def test_every_law_is_written_twice() -> None:
    assert list(SPARK_LAWS) == list(LAWS)


def test_verdicts_and_violations_are_the_same(both: Both) -> None:
    assert list(both.spark) == sorted(both.plain)
    for name, verdict in both.plain.items():
        assert both.spark[name].violations == verdict.violations, name
        assert both.spark[name].laws == verdict.laws, name


@pytest.mark.parametrize(
    "law", [pytest.param(law, marks=pytest.mark.catches(law), id=law) for law in LAWS]
)
def test_a_law_on_spark_catches_what_the_plain_one_does(both: Both, law: str) -> None:
    broken = {name for name, verdict in both.spark.items() if verdict.laws[law] == "broken"}
    assert broken == {name for name, verdict in both.plain.items() if verdict.laws[law] == "broken"}
    meant = {item.history.run for item in DOCTORED if item.law == law}
    assert meant <= broken
    assert len(broken) >= 2


def test_changed_files_are_judged_as_plainly(both: Both) -> None:
    for item in FILES:
        laws = both.spark[item.run].laws
        assert both.plain[item.run].laws == laws, item.name
        assert {laws[law] for law in item.laws} <= {"broken"}, item.name
        assert item.laws or "broken" not in laws.values(), item.name


def test_no_more_is_told_than_plainly(both: Both) -> None:
    told = [found for found in both.spark["many"].violations if found.law == "validity"]
    assert len(told) == VIOLATIONS_MAX
    assert told[1].message == "a#1:10"


def test_two_groups_of_a_run_may_say_the_same(both: Both) -> None:
    assert both.spark["two groups"].laws["validity"] == "broken"
    assert len({found.life for found in both.spark["two groups"].violations}) == 3


def test_the_report_names_every_run_and_lets_no_markup_through(both: Both) -> None:
    from html import escape

    for name in both.plain:
        assert f"<th>{escape(name)}</th>" in both.report
    assert "<b>&'" not in both.report
    assert both.report.count("<b>") == 0
