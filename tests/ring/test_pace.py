"""Where the token is when all are idle, and how it moves when a member has many messages."""

from __future__ import annotations

import pytest

from tests.ring.harness import (
    Room,
    S,
    armed_in,
    at_rest,
    gather,
    handed,
    holder_of,
    packets_in,
    quiet,
    sealed,
    site,
    step,
    together,
)
from unisono.core import EVERYONE, Multicast
from unisono.model import Service
from unisono.protocols.ring.codes import Code, Timer
from unisono.protocols.ring.packets import TURN, Flag, TurnPacket

MS = 1_000


def say(room: Room, name: str, *words: bytes) -> None:
    actor = room.actors[name]
    for effect in step(room, name, Multicast(list(words), Service.AGREED)):
        room._perform(actor, effect)


def test_the_token_rests_with_the_last_sender() -> None:
    room = quiet("a", "b", "c")
    for name in ("a", "b", "c", "b"):
        say(room, name, b"hello")
        room.until(lambda: len({len(room.words(each)) for each in "abc"}) == 1)
        room.pass_ms(10)
        assert holder_of(room, at_rest(room)) == name


def test_a_frequent_sender_is_one_hop_away_from_all() -> None:
    room = quiet("a", "b", "c")
    say(room, "b", b"first")
    room.pass_ms(20)
    room.hush()
    for n in range(20):
        said_us = room.now_us
        say(room, "b", b"%d" % n)
        room.pass_ms(10)
        for other in "ac":
            at_us, message = room.heard[other][-1]
            assert message.payload == b"%d" % n and at_us - said_us <= 2 * MS
    assert not room.of(Code.DATA_BC_RQU), "it was delegated to no member"


def test_a_joiner_expects_the_token_where_the_others_do() -> None:
    room = quiet("a", "b", sites=3)
    say(room, "a", b"before c")
    room.obey("advance 20ms\nstart ring c sites=3\njoin c")
    gather(room, "a", "b", "c")
    for _ in range(100):
        assert len({site(room, name).passing.wait_us() for name in "abc"}) <= 2
        room.pass_ms(7)
        if len({S(room, name) for name in "abc"}) == 1:
            assert len({site(room, name).passing.wait_us() for name in "abc"}) == 1


def test_a_token_resting_with_a_member_that_left_rests_nowhere() -> None:
    room = quiet("a", "b", "c")
    say(room, "c", b"farewell")
    room.pass_ms(50)
    room.obey("leave c")
    room.pass_ms(3_000)
    say(room, "a", b"still here")
    room.until(lambda: "still here" in room.words("b"))


def test_the_token_passes_in_the_same_step_where_others_want_it() -> None:
    room = together("a", "b", "c", turn_packets=1)
    room.pass_ms(3_000)
    speaker = holder_of(room, at_rest(room))
    say(room, speaker, *[bytes(1000)] * 40)
    room.hush()
    room.pass_ms(20)
    nulls = [sent for sent in room.of(Code.TOKEN_BC) if sent.by != speaker]
    heard = {(sent.packet.header.s): sent.at_us for sent in room.of(Code.TOKEN_BC)}
    assert len(nulls) > 10
    assert all(sent.at_us - heard.get(sent.packet.header.s - 1, sent.at_us) <= MS for sent in nulls)


def test_an_idle_holder_lets_its_application_answer_first() -> None:
    """All are idle, so the token is not passed in the step in which the message came."""
    room = quiet("a", "b", "c")
    s = at_rest(room)
    speaker, after = holder_of(room, s), holder_of(room, s + 1)
    ((to, said),) = packets_in(step(room, speaker, Multicast([b"ask"], Service.AGREED)))
    assert to == EVERYONE
    tail = TURN.pack(said.of, said.flags, said.at) + bytes(said.pieces[0])
    effects = step(room, after, handed(room, speaker, sealed(Code.TOKEN_BC, said.header, tail)))
    assert not packets_in(effects)
    t_send_us = site(room, after).parameters.t_send_us
    assert said.flags & Flag.LONE and armed_in(effects)[Timer.T_SEND] == t_send_us // 2


@pytest.mark.parametrize(("silence_ms", "waits"), [(0, False), (10, True), (500, True)])
def test_a_null_waits_a_moment_after_a_lone_message_only(silence_ms: int, waits: bool) -> None:
    """Two messages, and how long the token rests before the NULL that follows the second."""
    room = quiet("a", "b", "c")
    speaker = holder_of(room, at_rest(room))
    say(room, speaker, b"one")
    room.pass_ms(silence_ms)
    say(room, speaker, b"two")
    room.until(lambda: all("two" in room.words(name) for name in "abc"))
    holder = holder_of(room, S(room, speaker))
    assert bool(site(room, holder).passing.wait_us()) == waits


@pytest.mark.rule("RNG-8")
def test_what_asks_to_be_safe_is_followed_by_nulls_at_once() -> None:
    room = quiet("a", "b", "c")
    speaker = holder_of(room, at_rest(room))
    room.pass_ms(500)
    step(room, speaker, Multicast([b"sure"], Service.SAFE))
    assert site(room, speaker).passing.wait_us() == 0


@pytest.mark.parametrize("count", [1, 4])
def test_a_member_that_waits_for_stability_does_not_mark_a_lone_message(
    count: int,
) -> None:
    """A member that leaves, has more messages, or has filled half of its window."""
    room = quiet("a", "b", "c")
    speaker = holder_of(room, at_rest(room))
    room.pass_ms(500)
    me = site(room, speaker)
    me.send_queue.closing = count == 1
    large = bytes(me.send_queue.window_bytes // 8)
    effects = step(room, speaker, Multicast([large] * count, Service.AGREED))
    flags = {packet.flags for _, packet in packets_in(effects) if isinstance(packet, TurnPacket)}
    assert flags and not any(each & Flag.LONE for each in flags)


def test_all_agree_on_how_long_the_holder_may_wait() -> None:
    """However long their clocks have run, and whenever they came."""
    room = quiet("a", "b", "c")
    speaker = holder_of(room, at_rest(room))
    for each in "abc":
        site(room, each).policy._sent_us = room.now_us if each != speaker else 0
    say(room, speaker, b"hello")
    room.until(lambda: all("hello" in room.words(name) for name in "abc"))
    assert len({site(room, each).passing.wait_us() for each in "abc"}) == 1


@pytest.mark.parametrize("members", [3, 16])
def test_the_round_after_a_lone_message_is_short(members: int) -> None:
    room = quiet(*(f"m{n:02}" for n in range(members)))
    s = at_rest(room)
    speaker = holder_of(room, s)
    say(room, speaker, b"hello")
    said_us = room.now_us
    room.until(lambda: S(room, speaker) >= s + members)
    t_send_us = site(room, speaker).parameters.t_send_us
    # Each hop takes a millisecond on this stage.
    assert room.now_us - said_us <= t_send_us + MS * members
