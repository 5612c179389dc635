"""How many packets a turn may have."""

from __future__ import annotations

import pytest

from unisono.protocols.ring.pacing import BURST_MIN, ROUND_PACKETS, TurnPacing


def grown(pace: TurnPacing, turns: int = 200) -> int:
    for _ in range(turns):
        pace.next()
    return pace.burst


def spoken(paces: list[TurnPacing], speakers: int, rounds: int = 300) -> list[int]:
    """Packets of the turns of a round in which so many send and the others pass NULL."""
    turns: list[int] = []
    for _ in range(rounds):
        turns = []
        for at, pace in enumerate(paces):
            turns.append(pace.next() if at < speakers else 1)
            for other in paces[:at] + paces[at + 1 :]:
                other.note(turns[-1])
    return turns


def ring_of(members: int, most: int = 1024) -> list[TurnPacing]:
    paces = [TurnPacing(most) for _ in range(members)]
    for pace in paces:
        pace.new_ring(members)
    return paces


@pytest.mark.parametrize("members", [2, 3, 5, 8, 16, 64])
def test_a_round_of_turns_fits_a_socket(members: int) -> None:
    turns = spoken(ring_of(members), members)
    assert sum(turns) - max(turns) <= ROUND_PACKETS
    assert max(turns) - min(turns) <= max(turns) // 8, "and all have their share"


@pytest.mark.parametrize(("members", "most"), [(2, 512), (4, 512), (6, 768), (8, 1024), (64, 1024)])
def test_a_lone_sender_has_what_the_others_leave(members: int, most: int) -> None:
    assert spoken(ring_of(members), 1)[0] == most


@pytest.mark.parametrize("members", [3, 16])
def test_a_lone_sender_shares_when_others_send(members: int) -> None:
    paces = ring_of(members)
    spoken(paces, 1)
    turns = spoken(paces, members)
    assert sum(turns) - max(turns) <= ROUND_PACKETS
    assert turns[0] <= max(turns[1:]) * 9 // 8


def test_a_new_ring_begins_with_a_share() -> None:
    paces = ring_of(16)
    spoken(paces, 1)
    paces[0].new_ring(16)
    assert paces[0].next() == ROUND_PACKETS // 15


def test_what_is_lost_makes_turns_smaller_and_they_grow_again_with_care() -> None:
    pace = TurnPacing(512)
    before = grown(pace)
    pace.note_lost()
    pace.note_lost()
    assert pace.burst == before * 3 // 4, "one turn, however often it was asked for"
    after = [pace.next() for _ in range(10)]
    assert after == [before * 3 // 4 + 4 * n for n in range(10)], "a few packets at a time"
    for _ in range(100):
        pace.note_lost()
        pace.next()
    assert pace.burst == BURST_MIN


def test_a_turn_of_one_packet_stays_one() -> None:
    pace = TurnPacing(1)
    pace.new_ring(3)
    pace.note_lost()
    assert grown(pace) == 1
