"""How many packets a turn may have."""

from __future__ import annotations

import pytest

from unisono.protocols.ring.pace import BURST_MIN, ROUND_PACKETS, Pace


def grown(pace: Pace, turns: int = 200) -> int:
    for _ in range(turns):
        pace.next()
    return pace.burst


@pytest.mark.parametrize("members", [1, 2, 3, 5, 16, 64, 5000])
def test_a_round_of_turns_fits_a_socket(members: int) -> None:
    pace = Pace(512)
    pace.new_ring(members)
    most = grown(pace)
    assert most <= 512
    assert most == BURST_MIN or most * (members - 1) <= ROUND_PACKETS
    assert members > 5 or most == 512


def test_what_is_lost_makes_turns_smaller_and_they_grow_again_with_care() -> None:
    pace = Pace(512)
    before = grown(pace)
    pace.lost()
    pace.lost()
    assert pace.burst == before * 3 // 4, "one turn, however often it was asked for"
    after = [pace.next() for _ in range(10)]
    assert after == [before * 3 // 4 + n for n in range(10)], "packet by packet"
    for _ in range(100):
        pace.lost()
        pace.next()
    assert pace.burst == BURST_MIN


def test_a_turn_of_one_packet_stays_one() -> None:
    pace = Pace(1)
    pace.new_ring(3)
    pace.lost()
    assert grown(pace) == 1
