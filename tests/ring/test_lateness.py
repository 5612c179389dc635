"""The rest of a turn that is late, and one that is lost."""

from __future__ import annotations

import pytest

from tests.ring.harness import (
    Room,
    armed_in,
    at_rest,
    handed,
    header_of,
    holder_of,
    packets_in,
    quiet,
    sealed,
    site,
    step,
    turn,
)
from tests.ring.test_early import parts
from unisono.core import Effect, Multicast
from unisono.layout import encode
from unisono.model import Service
from unisono.parts.turn import Turn
from unisono.protocols.ring.codes import Code, Timer
from unisono.protocols.ring.core import Site
from unisono.protocols.ring.packets import NO_HEADER, WHOLE, Flag, ResendRequest
from unisono.protocols.ring.parameters import DEFAULTS

T_RT_US = DEFAULTS["t_rt_us"]


def ask(room: Room, by: str, of: str, *ranges: tuple[int, int, int]) -> None:
    body = encode(ResendRequest(NO_HEADER, ranges))
    step(room, of, handed(room, by, sealed(Code.RESEND_RQU, header_of(room, by), body)))


def with_a_turn(room: Room) -> tuple[str, str, int]:
    """The sender of a turn of several packets, another member, and the turn."""
    s = at_rest(room)
    holder = holder_of(room, s)
    step(room, holder, Multicast([bytes(900)] * 20, Service.AGREED))
    return holder, holder_of(room, s + 1), s + 1


@pytest.mark.rule("RNG-6")
def test_a_first_request_for_the_rest_of_a_turn_is_lateness_and_a_second_is_loss() -> None:
    room = quiet("a", "b", "c")
    holder, other, s = with_a_turn(room)
    pace = site(room, holder).send_queue.pace
    before = pace.burst
    ask(room, other, holder, (s, 5, WHOLE))
    assert pace.burst == before
    assert site(room, holder).codec.counts["repair"] > 1, "but it is sent again"
    ask(room, other, holder, (s, 9, WHOLE))
    assert pace.burst == before * 3 // 4


@pytest.mark.rule("RNG-6")
@pytest.mark.parametrize("gap", [(2, 4), (0, WHOLE)], ids=["in the middle", "all of it"])
def test_what_cannot_be_late_was_lost(gap: tuple[int, int]) -> None:
    room = quiet("a", "b", "c")
    holder, other, s = with_a_turn(room)
    pace = site(room, holder).send_queue.pace
    before = pace.burst
    ask(room, other, holder, (s, *gap))
    assert pace.burst == before * 3 // 4


@pytest.mark.rule("RNG-6")
def test_only_what_was_sent_is_lost_or_late() -> None:
    """Another's turn, or an early NULL of ours, is no evidence about our pace."""
    room = quiet("a", "b", "c")
    holder, other, s = with_a_turn(room)
    core = site(room, holder)
    before = core.send_queue.pace.burst
    ask(room, other, holder, (s - 1, 0, WHOLE), (s, 5, WHOLE))
    assert core.send_queue.pace.burst == before, "the first is another's, and the rest of ours late"
    core.ordering.put_own(Turn(s + 3, core.state.key, Flag.EARLY, b"", 300))
    ask(room, other, holder, (s + 3, 0, WHOLE))
    assert core.send_queue.pace.burst == before
    ask(room, other, holder, (s - 1, 5, WHOLE), (s, 0, WHOLE))
    assert core.send_queue.pace.burst == before * 3 // 4


@pytest.mark.rule("RNG-6")
def test_what_turns_out_to_be_lost_is_asked_for_at_once() -> None:
    room = quiet("a", "b", "c")
    s = at_rest(room)
    first, last = holder_of(room, s), holder_of(room, s + 2)
    packets = parts(room, s + 1, flags=0)
    usual_us = site(room, last).repair._usual_us
    assert not packets_in(step(room, last, handed(room, first, packets[0])))
    (asked,) = packets_in(step(room, last, handed(room, first, packets[-1])))
    assert isinstance(asked[1], ResendRequest)
    assert asked[1].ranges == ((s + 1, 1, len(packets) - 2),)
    assert site(room, last).repair._usual_us == usual_us, "it was not too early"
    assert not packets_in(step(room, last, handed(room, first, packets[1]))), "and once"


@pytest.mark.rule("RNG-6")
def test_a_stopped_ring_does_not_make_the_rest_of_a_turn_late() -> None:
    member = site(quiet("a", "b", "c"), "b")
    member.ordering.highest = member.ordering.S + 1
    member.repair.watch_gap(None, [])
    member.passing.stop(None, [])
    member.agenda.now_us += 2_000_000
    member.repair.gap_closed(None, [])
    assert waits_us(member, 0) == T_RT_US // 2
    assert waits_us(member, 2_000_000) <= T_RT_US // 2
    assert waits_us(member, 0) <= T_RT_US, "and never by more than T_RT at a time"


def waits_us(member: Site, takes_us: int) -> int:
    """How long one waits for the rest of a turn, which comes by itself after so long."""
    member.ordering.highest = member.ordering.S + 1
    out: list[Effect] = []
    member.repair.watch_gap(None, out)
    member.agenda.now_us += takes_us
    member.repair.gap_closed(None, [])
    return armed_in(out)[Timer.REPAIR]


@pytest.mark.rule("RNG-6")
def test_the_rest_of_a_turn_is_waited_for_as_long_as_it_usually_takes() -> None:
    member = site(quiet("a", "b", "c"), "b")
    assert waits_us(member, 100) == T_RT_US // 2, "before anything is known"
    for _ in range(60):
        quick_us = waits_us(member, 100)
    assert quick_us == T_RT_US // 4
    for _ in range(60):
        slow_us = waits_us(member, 15_000)
    assert 55_000 < slow_us <= 60_000, "four times as long"


@pytest.mark.rule("RNG-6")
def test_a_member_that_had_to_request_waits_longer_the_next_time() -> None:
    member = site(quiet("a", "b", "c"), "b")
    first_us = waits_us(member, T_RT_US // 8)
    member.ordering.highest = member.ordering.S + 1
    member.repair.watch_gap(None, [])
    member.repair.request(None, [])
    member.repair.request(None, [])
    member.repair.gap_closed(None, [])
    assert waits_us(member, 0) == first_us * 3 // 2, "once for a gap, however often it asked"


@pytest.mark.rule("RNG-9")
def test_an_early_turn_given_up_on_a_stopped_ring_is_freed() -> None:
    room = quiet("a", "b", "c")
    s = at_rest(room)
    second, third = holder_of(room, s + 1), holder_of(room, s + 2)
    ordering = site(room, third).ordering
    before = ordering._history_bytes
    step(room, third, handed(room, second, turn(room, s + 2, "word", by=second)))
    assert ordering._history_bytes > before
    ordering.stop()
    assert ordering._history_bytes == before
