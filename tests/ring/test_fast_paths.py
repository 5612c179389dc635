"""Each fast path of the ring against its slow twin."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ring.harness import Room, at_rest, delivered_in, holder_of, quiet, site, step
from tests.ring.heavy import heavy
from tests.ring.test_early import WORDS, parts
from tests.ring.test_middle import burst
from unisono.core import Deliver, Effect, Send
from unisono.model import Bursts
from unisono.parts.turn import Turn
from unisono.protocols.ring.codes import Code
from unisono.protocols.ring.ordering import Ordering
from unisono.protocols.ring.packets import Header, Version
from unisono.protocols.ring.turn_packets import BURST, SealedTurn, sealed_one_by_one
from unisono.sim.run import run


@given(
    nbytes=st.integers(2, 5_000),
    piece_bytes=st.integers(1, 60),
    first=st.integers(0, 20),
    count=st.integers(1, 3 * BURST),
    flags=st.integers(0, 63),
)
def test_packets_sealed_by_the_burst_are_those_sealed_one_by_one(
    nbytes: int, piece_bytes: int, first: int, count: int, flags: int
) -> None:
    turn = Turn(7, 11, flags, Random(nbytes).randbytes(nbytes), piece_bytes)
    indices = range(turn.count)[first : first + count]
    if not indices:
        return
    sealed = SealedTurn(5, Code.TOKEN_BC, Header(Version(2, 3), 11, 11, 1, 7, 6), turn, indices, 3)
    packets = Bursts(len(indices), sealed)
    slow = sealed_one_by_one(sealed)
    assert [bytes(packet) for packet in packets] == slow
    assert [bytes(packet) for packet in packets] == slow, "and again"
    assert [bytes(packet) for each in sealed for packet in each] == slow, "it is a value"
    assert len(packets) == len(slow)


def shown(effect: Effect) -> Any:
    if isinstance(effect, Send):
        return effect.to, [bytes(packet) for packet in effect.packets]
    return list(effect.messages) if isinstance(effect, Deliver) else effect


@pytest.mark.parametrize("seed", range(30))
def test_the_middle_of_a_turn_may_take_the_arrow_and_nothing_changes(seed: int) -> None:
    """The same packets in the same bursts, with the fast path and without."""

    def effects(fast: bool) -> list[Any]:
        rng = Random(seed)
        room: Room = quiet("a", "b", "c")
        s = at_rest(room)
        by, me = holder_of(room, s), holder_of(room, s + 1 + seed % 2)
        if not fast:
            site(room, me).ordering.extends_turn = lambda packet: False  # type: ignore[method-assign]
        packets = parts(room, s + 1)
        if seed % 3:
            rng.shuffle(packets)
        found: list[Effect] = []
        while packets:
            count = rng.randint(1, 4)
            found += step(room, me, burst(room, by, *packets[:count]))
            del packets[:count]
        assert delivered_in(found) == WORDS
        return [list(map(shown, found)), site(room, me).ordering.K, site(room, me).send.state]

    assert effects(fast=True) == effects(fast=False)


@pytest.mark.parametrize("seed", [3, 5, 9])
def test_runs_without_the_fast_path_are_the_same(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = run(heavy(seed))
    monkeypatch.setattr(Ordering, "extends_turn", lambda self, packet: False)
    slow = run(heavy(seed))
    assert (fast.steps, fast.delivered, fast.virtual_s) == (
        slow.steps,
        slow.delivered,
        slow.virtual_s,
    )
    assert fast.history is not None and slow.history is not None
    assert len(fast.history.rows) == len(slow.history.rows)
