"""The keeper of a feed: every message at its offset once, and gaps are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.feed.stage import everything, message, messages, put, shape, view
from unisono.errors import Misuse
from unisono.feed.keeper import Keeper
from unisono.log import BadLog, Log, LogBatch


def entered(log: Log, incarnation: str = "x", delivered: int = 0) -> Keeper:
    keeper = Keeper(log, "g")
    put(log, keeper.enter(incarnation, delivered, 1))
    return keeper


def test_a_view_stands_before_the_message_that_follows_it(tmp_path: Path) -> None:
    with Log(tmp_path, durable=False) as log:
        keeper = entered(log)
        put(log, keeper.deliver([view(0), *messages(1, 2), view(2), message(3)], 5))
        assert (log.first, log.end) == (1, 3)
        put(log, keeper.deliver([view(3)], 6))
        assert log.end == 3, "a view alone has to wait"
        put(log, keeper.deliver(messages(4, 4), 7))
    found = everything(tmp_path)
    assert shape(found) == "1v 1m 2m 3v 3m 4v 4m"
    assert [row["t_us"] for row in found] == [5, 5, 5, 5, 5, 6, 7]
    assert found[1] == {
        "place": 1,
        "kind": "message",
        "group": "g",
        "life": "x",
        "sender": "a",
        "sender_incarnation": 7,
        "number": 1,
        "view": "v1",
        "service": "agreed",
        "payload": b"m1",
        "t_us": 5,
    }
    assert found[0]["members"] == ["a#7", "f#8"]


def test_a_feed_that_returns_continues_and_fills_its_hole(tmp_path: Path) -> None:
    with Log(tmp_path, durable=False) as log:
        keeper = entered(log)
        put(log, keeper.deliver([view(0), *messages(1, 3), view(3)], 1))
    with Log(tmp_path, durable=False) as log:
        keeper = entered(log, delivered=6)
        assert keeper.missing() == [(4, 6)]
        put(log, keeper.deliver([view(6), *messages(7, 8)], 1))
        assert (log.end, log.last) == (3, 8), "what is live is logged at once"
        assert keeper.missing() == [(4, 6)]
        assert keeper.solid() == (1, 3)
        put(log, keeper.fill(messages(3, 5), 1))
        put(log, keeper.fill(messages(5, 7), 1))
        assert not keeper.missing()
        assert log.end == 8
        assert keeper.solid() == (1, 8)
    # The view that waited when the feed died is there too.
    assert shape(everything(tmp_path)) == "1v 1m 2m 3m 4v 4m 5m 6m 7v 7m 8m"


def test_what_nobody_has_becomes_a_gap_at_its_last_place(tmp_path: Path) -> None:
    with Log(tmp_path, durable=False) as log:
        keeper = entered(log, delivered=9)
        assert keeper.missing() == [(1, 9)]
        put(log, keeper.lose(1, 6, "nobody has them", 1))
        put(log, keeper.fill(messages(7, 9), 1))
        put(log, keeper.deliver([view(9), message(10)], 1))
        assert keeper.solid() == (7, 10), "a gap is not served"
    found = everything(tmp_path)
    assert shape(found) == "6g 7m 8m 9m 10v 10m"
    assert found[0]["number"] == 6
    assert found[0]["detail"] == "offsets 1 to 6 are lost: nobody has them"


def test_what_is_lost_does_not_change_how_it_counts(tmp_path: Path) -> None:
    with Log(tmp_path, durable=False) as log:
        put(log, entered(log).deliver(messages(1, 3), 1))
        keeper = entered(log, "y", 2)
        before = list(keeper.stretches)
        put(log, keeper.lose(5, 6, "nobody has them", 1))
        put(log, keeper.deliver(messages(3, 3), 1))
        assert keeper.stretches == before
        assert keeper.solid() == entered(log, "y", 3).solid() == (3, 3)
        put(log, entered(log, "z").deliver(messages(1, 1), 1))
        keeper = entered(log, "y", 3)
        assert not keeper.missing(), "it goes on where it was"


def test_a_new_life_begins_with_a_gap_of_its_own(tmp_path: Path) -> None:
    with Log(tmp_path, durable=False) as log:
        put(log, entered(log).deliver(messages(1, 3), 1))
        keeper = entered(log, "y")
        put(log, keeper.deliver([view(0)], 1))
        assert log.end == 3, "until it sends, it may turn out to be no new incarnation"
        put(log, keeper.deliver(messages(1, 2), 1))
        assert keeper.base == 4
        assert keeper.solid() == (1, 2)
    with Log(tmp_path, durable=False) as log:
        keeper = entered(log, "y", 2)
        assert not keeper.missing()
        put(log, keeper.deliver(messages(3, 3), 1))
    found = everything(tmp_path)
    assert shape(found) == "1m 2m 3m 4g 5v 5m 6m 7m"
    assert "founded anew" in found[3]["detail"]
    assert "number" not in found[3], "how much is lost is unknown"
    assert [row["life"] for row in found] == [*"xxx", *"yyyyy"]


def test_who_left_last_has_missed_nothing(tmp_path: Path) -> None:
    with Log(tmp_path, durable=False) as log:
        keeper = entered(log)
        put(log, keeper.deliver(messages(1, 3), 1))
        put(log, keeper.left_alone())
        put(log, entered(log, "y").deliver(messages(1, 1), 1))
        assert log.meta("alone") is None
    found = everything(tmp_path)
    assert (found[3]["kind"], found[3]["number"]) == ("gap", 0)


def test_a_life_with_a_past_is_asked_for_it(tmp_path: Path) -> None:
    with Log(tmp_path, durable=False) as log:
        put(log, entered(log).deliver(messages(1, 3), 1))
        keeper = entered(log, "y", 2)
        assert keeper.missing() == [(5, 6)]
        put(log, keeper.deliver(messages(3, 3), 1))
        put(log, keeper.fill(messages(1, 2), 1))
    assert shape(everything(tmp_path)) == "1m 2m 3m 4g 5m 6m 7m"


def test_holes_of_a_life_that_is_over_are_lost(tmp_path: Path) -> None:
    with Log(tmp_path, durable=False) as log:
        keeper = entered(log, delivered=2)
        put(log, keeper.deliver(messages(3, 4), 1))
        put(log, entered(log, "y").deliver(messages(1, 1), 1))
    assert shape(everything(tmp_path)) == "2g 3m 4m 5g 6m"


def test_a_life_that_returns_goes_on_where_it_was(tmp_path: Path) -> None:
    with Log(tmp_path, durable=False) as log:
        put(log, entered(log, "x").deliver(messages(1, 3), 1))
        put(log, entered(log, "y").deliver(messages(1, 2), 1))
        keeper = entered(log, "x", 5)
        assert keeper.missing() == [(8, 9)]
        put(log, keeper.fill(messages(4, 5), 1))
        put(log, keeper.deliver(messages(6, 6), 1))
    found = everything(tmp_path)
    assert shape(found) == "1m 2m 3m 4g 5m 6m 7g 8m 9m 10m"
    assert [row["payload"] for row in found if row["life"] == "x" and "payload" in row] == [
        b"m%d" % seq for seq in range(1, 7)
    ]


def test_a_life_that_returns_with_less_is_not_cut(tmp_path: Path) -> None:
    with Log(tmp_path, durable=False) as log:
        put(log, entered(log, "x").deliver(messages(1, 10), 1))
        put(log, entered(log, "y").deliver(messages(1, 1), 1))
        keeper = entered(log, "x", 5)
        assert not keeper.missing()
        assert keeper.tails() == [(0, 1, 5)], "what both have is compared"
        put(log, keeper.deliver([message(6, b"other"), message(7, b"more")], 1))
        assert keeper.tails() == [(8, 6, 7)]
    found = everything(tmp_path)
    assert shape(found[10:]) == "11g 12m 13g 14m 15m"
    assert "replaces its messages after 5, up to 10" in found[12]["detail"]
    assert [row["payload"] for row in found[13:]] == [b"other", b"more"]


def test_what_is_compared_is_what_is_there(tmp_path: Path) -> None:
    with Log(tmp_path, durable=False) as log:
        keeper = entered(log)
        assert keeper.tails() == []
        put(log, keeper.deliver(messages(1, 3), 1))
        assert keeper.tails() == [(0, 1, 3)]
        keeper = entered(log, delivered=6)
        put(log, keeper.deliver(messages(7, 9), 1))
        assert keeper.tails() == [(0, 1, 3), (0, 7, 9)]
        put(log, keeper.take_back(3, 1))
        assert keeper.tails() == [(0, 1, 3)]
        assert (keeper.base, keeper.missing()) == (7, [(11, 13)])


def test_a_group_that_replaces_its_messages_is_reported(tmp_path: Path) -> None:
    with Log(tmp_path, durable=False) as log:
        put(log, entered(log).deliver(messages(1, 5), 1))
        keeper = entered(log, "x", 3)
        put(log, keeper.deliver([message(4, b"other")], 1))
    found = everything(tmp_path)
    assert shape(found) == "1m 2m 3m 4m 5m 6g 7m"
    assert "replaced its messages" in found[5]["detail"]
    assert found[6]["payload"] == b"other"


def test_a_row_sent_twice_is_logged_once(tmp_path: Path) -> None:
    with Log(tmp_path, durable=False) as log:
        keeper = entered(log)
        put(log, keeper.deliver(messages(1, 3), 1))
        put(log, keeper.deliver(messages(2, 4), 1))
        put(log, keeper.fill(messages(1, 4), 1))
    assert shape(everything(tmp_path)) == "1m 2m 3m 4m"


def test_what_has_no_place_is_not_logged(tmp_path: Path) -> None:
    with Log(tmp_path, durable=False) as log:
        keeper = entered(log)
        put(log, keeper.deliver([message(None), *messages(1, 1)], 1))
    assert shape(everything(tmp_path)) == "1m"


def test_a_log_belongs_to_one_group(tmp_path: Path) -> None:
    with Log(tmp_path, durable=False) as log:
        put(log, entered(log).deliver(messages(1, 1), 1))
        with pytest.raises(Misuse, match="the log of the group 'g', not of 'h'"):
            Keeper(log, "h")
        log.append([], {"feed": "{"})
        with pytest.raises(BadLog, match="malformed metadata"):
            Keeper(log, "g")


def test_a_log_of_something_else_is_refused(tmp_path: Path) -> None:
    with Log(tmp_path, durable=False) as log:
        log.append([LogBatch(1, 1, b"?")])
        with pytest.raises(Misuse, match="not the log of a feed"):
            Keeper(log, "g")
