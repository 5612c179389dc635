"""The gold tables about members, latencies, factors and days, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from tests.laws.stories import story, write_trace
from unisono.laws.columnar import read_run
from unisono.laws.columnar.history import HistoryColumns
from unisono.spark.factors import factors_of, interval, trends_of
from unisono.spark.latency_parts import latency_parts_of
from unisono.spark.membership import components_of, exclusions_of
from unisono.spark.work import WorkCounts
from unisono.trace.columns import Codes
from unisono.trace.files import runs_of, trace_files
from unisono.trace.history import message_of

LEFT_OUT = """
    a: {0} | view 1 a b c | view 2 a b
    b: view 1 a b c | view 2 a b
    c: view 1 a b c | wait 9000000 | view 1 a b c
"""


def columns(tmp_path: Path, text: str) -> tuple[HistoryColumns, WorkCounts]:
    write_trace(story(text), tmp_path)
    work = WorkCounts()
    ((data,),) = [read_run(run, Codes(), work)[1] for run in runs_of(trace_files(tmp_path))]
    return data, work


@pytest.mark.parametrize(
    ("fault", "unforced"),
    [("fault none", True), ("fault isolated of c until 90000", False), ("wait 1", None)],
)
def test_an_exclusion_says_whether_a_fault_forced_it(
    tmp_path: Path, fault: str, unforced: bool | None
) -> None:
    data, _ = columns(tmp_path, LEFT_OUT.format(fault))
    (row,) = exclusions_of(data)
    assert (row["life"], row["survivor"], row["view"]) == ("c#1", "b#1", "2")
    assert row["unforced"] is unforced


def test_who_crashed_was_not_excluded(tmp_path: Path) -> None:
    data, _ = columns(
        tmp_path,
        """
        a: fault none | view 1 a b | wait 5000 | view 2 a
        b: view 1 a b | crash
        """,
    )
    assert not list(exclusions_of(data))


def test_a_component_lasts_until_its_last_member_is_gone(tmp_path: Path) -> None:
    data, _ = columns(
        tmp_path,
        """
        a: view 1 a b c | view 2 a b
        b: view 1 a b c | wait 4000 | view 2 a b
        c: view 1 a b c | wait 9000 | crash
        """,
    )
    first, second = components_of(data)
    ends = [row.t_us for row in data.history.rows if row.kind == "crash"]
    assert (first["view"], first["members"], first["installed"]) == ("1", 3, 3)
    assert (second["members"], second["installed_by"], second["until_us"]) == (2, "a b", None)
    assert second["took_us"] >= 4000 > first["took_us"]
    assert [first["until_us"]] == ends


def test_the_parts_of_a_latency_add_up(tmp_path: Path) -> None:
    text = """
        a: view 1 a b | send | wait 3000 | a:1 | send | wait 500 | a:2
        b: view 1 a b | wait 9000 | a:1 | a:2
    """
    data, _ = columns(tmp_path, text)
    rows = story(text).rows
    sent = {message_of(row): row.t_us for row in rows if row.kind == "send"}
    own = {message_of(row): row.t_us for row in rows if row.kind == "deliver" and row.node == "a"}
    last = {message_of(row): row.t_us for row in rows if row.kind == "deliver" and row.node == "b"}
    total = fmean(last[it] - sent[it] for it in sent)
    until_own = fmean(own[it] - sent[it] for it in sent)
    first = sent["a#1:1"]
    # No token; one for the first message alone; one that came after both were delivered.
    for turns, token_us in (([], None), ([first + 900], 450), ([first + 10**6], until_own)):
        (row,) = latency_parts_of(data, {0: turns})
        assert (row["messages"], row["token_us"]) == (2, token_us)
        parts = [row[name] or 0 for name in ("token_us", "order_us", "spread_us")]
        assert sum(parts) == pytest.approx(total)


def run_row(name: str, day: int = 0, replay: str | None = None, kept: bool = True) -> Any:
    recorded = datetime(2026, 5, 1, tzinfo=UTC) + timedelta(days=day)
    return {"run": name, "replay": replay, "kept": kept, "recorded": recorded}


def measure(name: str, p50_us: int) -> Any:
    figures = {"messages_per_s": 1e6 / p50_us, "p50_us": p50_us, "p99_us": 2 * p50_us}
    return {"run": name, "protocol": "ring", "members": 3, **figures}


def test_equal_runs_are_compared_by_their_factors() -> None:
    replay = "unisono sim --protocol ring --nodes 3 --seed {} --faults mild --messages 60"
    runs = [run_row(f"r{n}", replay=replay.format(n), kept=n > 0) for n in range(3)]
    odd = run_row("odd", replay=replay.format(9) + " --option window=8 --option burst=2")
    measures = [*(measure(f"r{n}", 100 + 10 * n) for n in range(3)), measure("odd", 500)]
    rows = list(factors_of([*runs, odd, run_row("not simulated")], measures))
    plain, tuned = rows
    assert (plain["faults"], plain["nodes"], plain["messages"]) == ("mild", 3, 60)
    assert (plain["runs"], plain["kept"], plain["p50_us"]) == (3, 2, 110)
    # The mean of three values with a standard deviation of 10, Student's t of 4.303.
    assert plain["p50_us_ci"] == pytest.approx(4.303 * 10 / 3**0.5)
    assert (tuned["options"], tuned["runs"], tuned["p50_us_ci"]) == ("burst=2 window=8", 1, None)


def test_an_interval_narrows_with_the_number_of_runs() -> None:
    widths = [interval([90.0, 110.0] * pairs) for pairs in (1, 2, 5, 50)]
    assert None not in widths and widths == sorted(map(float, widths), reverse=True)


def test_a_day_unlike_those_before_has_changed() -> None:
    latencies = [100, 102, 98, 101, 150, 150]
    runs = [run_row(f"r{day}", day) for day in range(len(latencies))]
    measures = [measure(f"r{day}", us) for day, us in enumerate(latencies)]
    rows = list(trends_of(runs, measures))
    assert [row["changed"] for row in rows] == [False, False, False, False, True, False]
    assert rows[4]["mean_us"] == pytest.approx(100.25)
