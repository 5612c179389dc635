"""Each fast path beside its slow twin: a run is the same to the last row, whichever is taken. Nor
does it matter how often a guard is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from unisono.fsa import BoundStep, Machine, On
from unisono.protocols.mtp.core import Mtp
from unisono.protocols.rmcast.joining import Joiner
from unisono.protocols.rmcast.packets import Welcome
from unisono.protocols.rmcast.roster import Roster
from unisono.sim import Outcome, run
from unisono.sim.campaign import plans_of
from unisono.wire import Datagram, read_once

SEEDS = range(3)


class Plain(bytes):
    """A packet that each receiver decodes."""

    def forget(self) -> None:
        pass


def outcomes(protocol: str) -> list[Outcome]:
    return [run(plan) for plan in plans_of(protocol, SEEDS, "chaos", (3, 5), 40)]


def assert_same(protocol: str, slower: Callable[[], None]) -> None:
    fast = outcomes(protocol)
    slower()
    for one, other in zip(fast, outcomes(protocol), strict=True):
        assert one.history == other.history
        assert (one.steps, one.counts, one.laws) == (other.steps, other.counts, other.laws)


@pytest.mark.parametrize("protocol", ["rmcast", "mtp", "ring"])
def test_a_packet_read_once_is_the_packet_that_each_would_read(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_same(protocol, lambda: monkeypatch.setattr("unisono.sim.world.Datagram", Plain))


def test_a_member_at_rest_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_same("rmcast", lambda: monkeypatch.setattr(Roster, "rest", lambda roster: None))


def test_an_idle_member_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_same("mtp", lambda: monkeypatch.setattr(Mtp, "_is_idle", lambda core: False))


def ask_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    bind = Machine._steps

    def twice(when: Callable[[Any], bool]) -> Callable[[Any], bool]:
        def answer(event: Any) -> bool:
            when(event)
            return when(event)

        return answer

    def steps(machine: Machine, on: On) -> list[BoundStep]:
        found = bind(machine, on)
        found[:] = [each._replace(when=each.when and twice(each.when)) for each in found]
        return found

    monkeypatch.setattr(Machine, "_steps", steps)


@pytest.mark.parametrize("protocol", ["rmcast", "mtp", "ring"])
def test_a_guard_only_looks(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_same(protocol, lambda: ask_twice(monkeypatch))


def test_a_guard_that_draws_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    is_mine = Joiner.is_mine

    def drawing(joiner: Joiner, packet: Welcome) -> bool:
        joiner._clock.random.random()
        return is_mine(joiner, packet)

    monkeypatch.setattr(Joiner, "is_mine", drawing)
    with pytest.raises(AssertionError):
        assert_same("rmcast", lambda: ask_twice(monkeypatch))


def test_a_datagram_is_read_once_and_other_bytes_each_time() -> None:
    reads = []

    def read(kind: int, body: memoryview) -> list[bytes]:
        reads.append(kind)
        return [bytes(body)]

    for packet, count in ((b"abcd", 2), (Datagram(b"abcd"), 1)):
        reads.clear()
        first, second = (read_once(read, 7, memoryview(packet)[1:]) for _ in range(2))
        assert first == second == [b"bcd"]
        assert reads == [7] * count
        assert (first is second) == (count == 1)
