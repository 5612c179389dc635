"""Round-trip estimates and congestion windows, by the numbers of the RFCs."""

from __future__ import annotations

import pytest

from unisono.protocols.rmp.flow import (
    INCREASE_PACKETS,
    RTO_FIRST_US,
    SHARED_PACKETS,
    CongestionWindow,
    RetransmissionTimer,
)

pytestmark = pytest.mark.rule("RMP-18")


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
