"""The log knows whose rows it has, for longer than the group does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.feed.stage import everything, message, messages, put
from unisono.feed import writers
from unisono.feed.keeper import Keeper
from unisono.log import Log
from unisono.replay_history import SinkMessage, SinkRows


def row(seq: int, epoch: int, number: int, query: str = "q u") -> SinkMessage:
    return SinkMessage.of(message(seq), SinkRows(query, 3, epoch), number)


def test_rows_and_their_writers_are_one_transaction(tmp_path: Path) -> None:
    with Log(tmp_path, durable=False) as log:
        keeper = Keeper(log, "g")
        put(log, keeper.enter("x", 0, 1))
        put(log, keeper.deliver([*messages(1, 2), row(3, 7, 0), row(4, 7, 1)], 1))
    with Log(tmp_path, durable=False) as log:
        keeper = Keeper(log, "g")
        assert keeper.writers.last("q u", 3) == (7, 1)
        assert keeper.writers.last("q u", 4) is None
        # The group is founded anew, and has an earlier row of this writer: the log has a later one.
        put(log, keeper.enter("y", 0, 1))
        put(log, keeper.deliver([row(1, 6, 9)], 1))
        assert keeper.writers.last("q u", 3) == (7, 1)
    details = [each.get("detail") for each in everything(tmp_path) if each["kind"] == "message"]
    assert details[1:3] == [None, "query q u partition 3 epoch 7 row 0"]


def test_what_the_group_knows_counts_once_the_rows_are_here(tmp_path: Path) -> None:
    with Log(tmp_path, durable=False) as log:
        keeper = Keeper(log, "g")
        put(log, keeper.enter("x", 4, 1, {("q", 0): (2, 5)}, 5))
        put(log, keeper.deliver(messages(5, 5), 1))
        assert keeper.writers.last("q", 0) is None, "1 to 4 are not here yet"
        put(log, keeper.fill(messages(1, 4), 1))
        put(log, keeper.deliver(messages(6, 6), 1))
        assert keeper.writers.last("q", 0) == (2, 5)


def test_rows_that_are_lost_are_nobodys(tmp_path: Path) -> None:
    with Log(tmp_path, durable=False) as log:
        keeper = Keeper(log, "g")
        put(log, keeper.enter("x", 4, 1, {("q", 0): (2, 5)}, 4))
        put(log, keeper.deliver(messages(5, 5), 1))
        put(log, keeper.lose(1, 4, "nobody has them", 1))
        put(log, keeper.deliver(messages(6, 6), 1))
        assert keeper.writers.last("q", 0) is None, "they may be sent again"


def test_the_oldest_writers_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "WRITERS_COUNT_MAX", 4)
    monkeypatch.setattr(writers, "FORGOTTEN_COUNT", 2)
    with Log(tmp_path, durable=False) as log:
        keeper = Keeper(log, "g")
        put(log, keeper.enter("x", 0, 1))
        for seq in range(1, 6):
            put(log, keeper.deliver([row(seq, 1, 0, query=f"q{seq}")], 1))
        assert sorted(key for key, _ in log.metas(writers.PREFIX)) == [
            f"writer 3 q{seq}" for seq in (3, 4, 5)
        ]
