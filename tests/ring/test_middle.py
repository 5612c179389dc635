"""Packets from the middle of a turn are kept and nothing else; what they may not be taken for."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest

from tests.ring.harness import (
    Room,
    S,
    at_rest,
    delivered_in,
    handed,
    holder_of,
    quiet,
    sealed,
    site,
    step,
)
from tests.ring.test_early import WORDS, parts
from unisono.core import Effect, Received
from unisono.model import coalesced
from unisono.parts.turn import IncomingTurn
from unisono.protocols.ring.codes import Code
from unisono.protocols.ring.packets import TURN, Header


def burst(room: Room, by: str, *packets: bytes) -> Received:
    """As the kernel hands them over."""
    return Received(site(room, by).me.address, coalesced(packets))


def begun() -> tuple[Room, int, str, str, list[bytes]]:
    """A turn of which the first two packets are here; its sender, and a receiver."""
    room = quiet("a", "b", "c")
    s = at_rest(room)
    by, me = holder_of(room, s), holder_of(room, s + 2)
    packets = parts(room, s + 1)
    assert len(packets) > 4
    step(room, me, burst(room, by, *packets[:2]))
    return room, s, by, me, packets


@pytest.mark.rule("RNG-5")
@pytest.mark.parametrize("seed", range(40))
def test_a_turn_is_the_same_in_any_order_of_its_packets(seed: int) -> None:
    """In any order, some of them twice, in bursts of any length."""
    rng = Random(seed)
    room = quiet("a", "b", "c")
    s = at_rest(room)
    by, me = holder_of(room, s), holder_of(room, s + 2)
    packets = parts(room, s + 1)
    told = packets + rng.choices(packets, k=rng.randint(0, 4))
    if seed % 2:
        rng.shuffle(told)
    effects: list[Effect] = []
    while told:
        count = rng.randint(1, 5)
        effects += step(room, me, burst(room, by, *told[:count]))
        del told[:count]
    assert S(room, me) == s + 1
    assert delivered_in(effects) == WORDS


def test_the_middle_of_a_turn_wakes_no_machine() -> None:
    room, _, by, me, packets = begun()
    walked, counted = dict(site(room, me).transition_counts()), site(room, me).counts["in.token_bc"]
    assert step(room, me, burst(room, by, *packets[2:4])) == []
    assert site(room, me).transition_counts() == walked
    assert site(room, me).counts["in.token_bc"] == counted + 2
    effects = step(room, me, burst(room, by, *packets[4:]))
    assert delivered_in(effects) == WORDS


def test_the_middle_of_a_turn_shows_that_its_holder_lives() -> None:
    room, _, by, me, packets = begun()
    for _ in range(2):
        site(room, me).detection.wait_for(site(room, me).token.holder_key())
    step(room, me, burst(room, by, *packets[2:4]))
    assert site(room, me).detection.tries == 0


@pytest.mark.rule("RNG-2")
def test_a_member_without_the_token_adds_nothing_to_a_turn() -> None:
    room, s, by, me, packets = begun()
    liar = site(room, holder_of(room, s + 1))
    header = Header(liar.state.ring.version, liar.state.key, liar.state.key, 0, s + 1, 0)
    lies = [
        sealed(Code.TOKEN_BC, header, TURN.pack(len(packets), 1, n) + b"x" * 40)
        for n in range(len(packets) - 1)
    ]
    for at in (0, 2):
        step(room, me, burst(room, holder_of(room, s + 1), *lies[at : at + 2]))
    assert site(room, me).counts["drop.turn"] == 4, "each packet is counted"
    assert delivered_in(step(room, me, burst(room, by, *packets[2:]))) == WORDS


def test_an_incomplete_turn_of_a_former_ring_is_dropped() -> None:
    room, s, by, me, packets = begun()
    site(room, me).ordering.stop()
    step(room, me, burst(room, by, *packets[2:4]))
    step(room, me, handed(room, by, *packets[4:]))
    assert S(room, me) == s, "the first two are missing"


def test_packets_with_another_count_add_nothing_to_a_turn() -> None:
    """A forger's, from the holder's address: the first is refused, and so are those like it."""
    room, s, by, me, packets = begun()
    header = Header(
        site(room, by).state.ring.version,
        site(room, by).state.key,
        site(room, by).state.key,
        0,
        s + 1,
        0,
    )
    of = 4 * len(packets)
    forged = [sealed(Code.TOKEN_BC, header, TURN.pack(of, 1, n) + b"x" * 40) for n in range(of - 1)]
    step(room, me, burst(room, by, forged[0]))
    for at in range(0, of - 2, 2):
        step(room, me, burst(room, by, *forged[at : at + 2]))
        step(room, me, burst(room, by, *forged[at : at + 5]))
    assert delivered_in(step(room, me, burst(room, by, *packets[2:]))) == WORDS


@pytest.mark.parametrize(
    "lengths", [(0, 5, 5, 1), (5, 0, 5, 1), (5, 5, 5, 6), (0, 0, 0, 1), (5, 5, 4, 1)]
)
def test_pieces_of_unequal_lengths_are_no_turn_in_any_order(
    lengths: tuple[int, ...],
) -> None:
    for order in permutations(range(4)):
        coming = IncomingTurn(1, 0, [None] * 4, 4)
        for at in order:
            coming.take(at, [bytes(lengths[at])])
        assert not coming.missing and coming.turn(1) is None


def test_pieces_of_one_length_are_a_turn_in_any_order() -> None:
    for order in permutations(range(4)):
        coming = IncomingTurn(1, 0, [None] * 4, 4)
        for at in order:
            coming.take(at, [bytes([at]) * (3 if at == 3 else 5)])
        turn = coming.turn(1)
        assert turn is not None and turn.count == 4 and turn.piece_bytes == 5
