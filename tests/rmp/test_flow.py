"""Round-trip estimates and congestion windows, by the numbers of the RFCs; and slow receivers."""

from __future__ import annotations

import pytest

from tests.plants import Patch
from tests.rmp.stage import Stage
from unisono.core import Congested
from unisono.parts.message_runs import MessageRun
from unisono.protocols.rmp.delivery import OrderedDelivery
from unisono.protocols.rmp.flow import (
    INCREASE_PACKETS,
    RTO_FIRST_US,
    SHARED_PACKETS,
    CongestionWindow,
    RetransmissionTimer,
)

pytestmark = pytest.mark.rule("RMP-18")
WINDOW = 100_000


def test_the_period_follows_round_trips() -> None:
    timer = RetransmissionTimer(2_000_000)
    assert timer.period_us() == RTO_FIRST_US
    timer.measure(100_000)
    assert timer.period_us() == 300_000  # RFC 6298 (2.2): R + 4 * R/2
    for _ in range(200):
        timer.measure(100_000)
    assert 100_000 < timer.period_us() < 115_000


def test_a_time_out_doubles_the_period_until_something_is_measured() -> None:
    timer = RetransmissionTimer(2_000_000)
    timer.measure(100_000)
    periods = []
    for _ in range(6):
        periods.append(timer.period_us())
        timer.back_off()
    assert periods == [300_000, 600_000, 1_200_000, 2_000_000, 2_000_000, 2_000_000]
    timer.measure(100_000)
    assert timer.period_us() < 300_000


def test_the_window_doubles_a_round_trip_until_it_loses_then_grows_by_some_packets() -> None:
    window = CongestionWindow(1_000, 1_000_000)
    for _ in range(3):
        window.acknowledged(window.nbytes)
    assert window.nbytes == 80_000
    window.lost(5, last_sent=9)
    assert window.nbytes == 40_000
    window.acknowledged(window.nbytes)
    assert window.nbytes == 40_000 + INCREASE_PACKETS * 1_000


def test_losses_of_one_round_trip_count_once() -> None:
    window = CongestionWindow(1_000, 1_000_000)
    for block in (5, 6, 9):
        window.lost(block, last_sent=9)
    assert window.nbytes == 5_000
    window.lost(10, last_sent=12)
    assert window.nbytes == 2_500


def test_the_window_stays_between_its_bounds() -> None:
    window = CongestionWindow(1_000, 30_000)
    for _ in range(5):
        window.acknowledged(window.nbytes)
    assert window.nbytes == 30_000
    for block in range(1, 20):
        window.lost(block, last_sent=block)
        window.timed_out(last_sent=block)
    assert window.nbytes == 2_000


def test_all_sources_together_send_no_more_than_a_receiver_can_hold() -> None:
    window = CongestionWindow(1_000, 10_000_000)
    for sources in (2, 5):
        window.share(sources)
        for _ in range(20):
            window.acknowledged(window.nbytes)
        assert window.nbytes * sources <= SHARED_PACKETS * 1_000
    assert window.nbytes > 400_000


def test_a_receiver_that_falls_behind_slows_all_senders_and_is_not_expelled() -> None:
    """What any site keeps meanwhile is within the windows of the senders."""
    stage = Stage("a", "b", "c", window_bytes=WINDOW)
    stage.step("c", Congested(True))
    sent = 0
    for _ in range(100):
        for name in "ab":
            if stage.cores[name].send_credit() > 11_000:
                stage.multicast(name, bytes(10_000))
                sent += 1
        stage.run(20_000)
    assert 10 < sent < 25, "the windows do not end"
    assert sorted(stage.members("a")) == ["a", "b", "c"]
    for core in stage.cores.values():
        kept = [b for s in core._sources.by_key.values() for b in s.blocks._items.values()]
        assert sum(len(block.content) for block in kept) < 2.5 * WINDOW
    waiting = stage.cores["c"]._delivery._waiting
    assert sum(each.size for each in waiting if isinstance(each, MessageRun)) < 2.5 * WINDOW
    stage.step("c", Congested(False))
    stage.run(2_000_000)
    assert len(stage.payloads("c")) == sent
    assert stage.cores["a"].send_credit() > 0.9 * WINDOW


def test_without_the_receivers_word_the_windows_never_end(monkeypatch: Patch) -> None:
    monkeypatch.setattr(OrderedDelivery, "consumed", lambda self, held: held)
    with pytest.raises(AssertionError, match="do not end"):
        test_a_receiver_that_falls_behind_slows_all_senders_and_is_not_expelled()
