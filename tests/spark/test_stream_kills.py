"""A live group of three, a feed and a Spark query that writes Parquet; each is killed and comes
back. The output holds every delivered message exactly once, in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pip install 'unisono[spark]'")

from tests.feed.kills import Play, check, delivered, hush, playing, rehearse, settle, traffic
from tests.waiting import until


def tell_story(place: Path, seconds: float, kills: list[tuple[float, str, float]]) -> Play:
    """Traffic for so long; at these times these are killed, and come back after so long."""
    with playing(place) as play:
        rehearse(play, "query")
        until(lambda: play.has_told("query", "started"), "the query started")
        until(lambda: play.written() >= 0, "a first batch", lambda: play.errors("query"))
        traffic(play, seconds, kills)
        until(lambda: play.has_told("query", "started"), "the query is back")
        settle(play)
        play.order("query")
        until(lambda: play.has_told("query", "finished"), "the query finished")
        hush(play)
        assert play.told("query")[-1]["error"] is None
        return play


def rows_of(spark: Any, out: Path) -> list[tuple[int, bytes]]:
    found = spark.read.parquet(str(out)).select("place", "payload").collect()
    return sorted((row.place, bytes(row.payload)) for row in found)


@pytest.mark.real
@pytest.mark.slow
def test_each_is_killed_once_and_nothing_is_lost_or_doubled(spark: Any, tmp_path: Path) -> None:
    # The query first: it takes longest to come back, and the others are killed meanwhile.
    kills = [(0.5, "query", 0.0), (1.5, "b", 0.5), (4.0, "feed", 0.5)]
    play = tell_story(tmp_path, 7, kills)
    rows, told = rows_of(spark, play.out), delivered(play)
    assert len(rows) > 1000
    check(told, rows)
    # The check can fail.
    for doctored in (
        rows[:-1],
        [*rows[:7], *rows[8:]],
        [*rows, (len(rows) + 1, rows[3][1])],
        [*rows[:5], (6, rows[6][1]), (7, rows[5][1]), *rows[7:]],
        [*rows, (len(rows) + 1, b"from nowhere")],
    ):
        with pytest.raises(AssertionError):
            check(told, doctored)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_each_is_killed_twice_in_a_minute_of_traffic(spark: Any, tmp_path: Path) -> None:
    kills = [
        (5.0, "b", 1.0),
        (11.0, "feed", 2.0),
        (17.0, "query", 0.0),
        (32.0, "c", 1.0),
        (38.0, "feed", 0.0),
        (44.0, "query", 1.0),
    ]
    play = tell_story(tmp_path, 60, kills)
    rows = rows_of(spark, play.out)
    check(delivered(play), rows)
    lives = {name: count + 1 for name, count in play.lives.items()}
    print(f"\n{len(rows)} messages, each once and in order; lives: {lives}")
