"""What the paper asks of membership, rule by rule: joining, leaving, the two phases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.ring.harness import (
    EVERYONE,
    Room,
    S,
    armed_in,
    at_rest,
    gather,
    handed,
    holder_of,
    lawful,
    leader_of,
    losing,
    packets_in,
    quiet,
    ring_order,
    seen,
    silence_holder,
    site,
    started,
    step,
    together,
    turn,
)
from unisono.core import Depart, Expired, Leave
from unisono.protocols.ring.codes import Code, Timer
from unisono.protocols.ring.packets import code_of
from unisono.protocols.ring.ring import read_ring

# -- RNG-14 join --------------------------------------------------------------------------------


@pytest.mark.rule("RNG-14")
def test_a_join_is_granted_by_the_coordinator_when_it_holds_the_token() -> None:
    room = together("a", "b", "c", sites=0)
    room.obey("start ring d")
    first = leader_of(room)
    order = ring_order(room)
    turns_us: dict[int, int] = {}
    room.obey("join d")
    for number in range(12):  # The ring is busy all the while.
        room.obey(f"say a {number}\nsay b {number}\nsay c {number}\nadvance 3ms")
    gather(room, *"abcd")
    asked, info = room.of(Code.MEMBER_JOIN, by="d")[0], room.of(Code.RING_INFO)[0]
    assert asked.to == EVERYONE
    assert (info.by, info.to) == (first, (room.actors["d"].address,))
    assert info.packet.header.version.number == 1, "the answer has the version and S"
    assert info.packet.header.s > 0
    (invited,) = room.of(Code.REF_INV_BC)
    assert invited.by == first
    before = [t for t in room.of(Code.TOKEN_BC) if t.at_us <= invited.at_us]
    s = max(t.packet.header.s for t in before)
    assert order[(s + 1) % 3] == first, "it holds the token"
    assert invited.packet.header.s == s
    after = [t for t in room.of(Code.TOKEN_BC) if t.at_us > invited.at_us]
    assert all(t.packet.header.version != before[0].packet.header.version for t in after)
    assert turns_us == {}
    room.pass_ms(300)
    assert len(room.words("a")) == 36
    assert room.words("a") == room.words("b") == room.words("c")
    assert room.words("d") == room.words("a")[-len(room.words("d")) or 36 :]
    lawful(room)


@pytest.mark.rule("RNG-14")
def test_a_request_to_join_that_is_lost_is_made_again() -> None:
    room = together("a", "b", "c", sites=0)
    room.obey("start ring d")
    lost = 0

    def loses(by: str, to: str, packet: Any) -> bool:
        nonlocal lost
        wanted = by == "d" and getattr(packet, "code", None) is Code.MEMBER_JOIN and lost < 6
        lost += wanted
        return wanted

    room.loses = loses
    room.obey("join d")
    gather(room, *"abcd")
    assert lost == 6
    assert {sent.by for sent in room.of(Code.REF_INV_BC)} == {leader_of(room)}
    lawful(room)


# -- RNG-15 leave -------------------------------------------------------------------------------


@pytest.mark.rule("RNG-15")
def test_a_leaving_member_announces_it_and_the_ring_closes_without_it() -> None:
    room = quiet("a", "b", "c", "d", sites=0)
    leaver = ring_order(room)[2]
    stay = set("abcd") - {leaver}
    said = room.obey(f"say {leaver} last\nleave {leaver}\nadvance 300ms")
    assert f"{leaver} has left" in said
    quits = room.of(Code.QUIT)
    assert {(sent.by, sent.to) for sent in quits} == {(leaver, EVERYONE)}
    assert not room.of(Code.TS_ALIVE_RQU, Code.COORD_RQU), "it was not suspected"
    assert all(seen(room, name) == stay for name in stay)
    assert {m.name for m in room.actors[min(stay)].views[-1].left} == {leaver}
    assert all(room.words(name) == ["last"] for name in "abcd"), "all members have its last message"
    room.obey(f"say {min(stay)} on\nadvance 100ms")
    assert all(room.words(name) == ["last", "on"] for name in stay)
    assert room.words(leaver) == ["last"]
    lawful(room)


@pytest.mark.rule("RNG-15")
def test_a_leave_that_is_missed_is_found_out_as_a_stop() -> None:
    room = quiet("a", "b", "c", "d", sites=0)
    leaver = ring_order(room)[2]
    room.loses = losing(Code.QUIT)
    room.obey(f"leave {leaver}\nadvance 1ms\ncrash {leaver}")
    gather(room, *(set("abcd") - {leaver}))
    assert room.of(Code.TS_ALIVE_RQU)
    lawful(room)


@pytest.mark.rule("RNG-15")
def test_one_that_is_alone_or_never_came_in_leaves_at_once() -> None:
    room = started("a", sites=1)
    room.obey("join a")
    assert isinstance(step(room, "a", Leave())[-1], Depart)
    room = started("a", sites=1)
    room.obey("join a")
    gather(room, "a")
    assert "a has left" in room.obey("leave a\nadvance 300ms")


# -- RNG-16 two phases --------------------------------------------------------------------------


def reforming() -> tuple[Room, str, str, str]:
    """One of four dies after a message that not all have; the others form a new ring.
    Returned too: the dead, the coordinator, and the one that lacks the last turn."""
    room = quiet("a", "b", "c", "d")
    s = at_rest(room)
    speaker, dead, third, lacks = (holder_of(room, s + more) for more in range(4))
    room.loses = lambda by, to, packet: to in (lacks, dead) and by == speaker
    room.obey(f"service safe\nsay {speaker} late\ncrash {dead}")
    room.until(lambda: S(room, third) == s + 1)
    room.obey(f"pause {lacks}")
    room.loses = lambda by, to, packet: to == lacks and code_of(packet) is not Code.REF_INV_BC
    room.until(lambda: room.of(Code.REF_INV_BC), late_ms=2_500)
    assert S(room, lacks) == s
    room.loses = None
    room.obey(f"resume {lacks}")
    return room, dead, speaker, lacks


@pytest.mark.rule("RNG-16")
def test_first_all_are_invited_and_what_is_missing_is_sent_again() -> None:
    """Phase 1: acknowledgments with S; the coordinator sends again what one lacks."""
    room, dead, leader, lacks = reforming()
    left = set("abcd") - {dead}
    gather(room, *left)
    answers = {sent.by: sent.packet.header.s for sent in reversed(room.of(Code.RSP_POS))}
    assert answers.keys() == left - {leader}
    assert answers[lacks] == S_at(room, leader) - 1, "it reports which turns it has"
    again = room.of(Code.RESEND_DATA, by=leader)
    assert {sent.to for sent in again} == {(room.actors[lacks].address,)}
    ring_us = min(sent.at_us for sent in room.of(Code.NEWTR_BC))
    assert all(sent.at_us <= ring_us for sent in again)
    assert all(room.words(name) == ["late"] for name in left), "messages of the old ring count"
    lawful(room)


def S_at(room: Room, leader: str) -> int:
    """The last turn of the old ring, by its coordinator's description."""
    return max(int(sent.packet.header.s) for sent in room.of(Code.REF_INV_BC, by=leader))


@pytest.mark.rule("RNG-16")
def test_then_the_new_ring_goes_round_and_counts_when_all_may_resume() -> None:
    """Phase 2: the ring with the safety parameter, acknowledged; then resume."""
    room, dead, leader, _ = reforming()
    left = set("abcd") - {dead}
    gather(room, *left)
    at = {code: [sent.at_us for sent in room.of(code)] for code in Code}
    assert max(at[Code.RSP_POS]) < min(at[Code.NEWTR_BC]) < min(at[Code.NEWTR_ACK])
    assert max(at[Code.NEWTR_ACK]) < min(at[Code.RESUME])
    assert {sent.by for sent in room.of(Code.NEWTR_BC, Code.RESUME)} == {leader}
    assert {sent.by for sent in room.of(Code.NEWTR_ACK)} == left - {leader}
    part = room.of(Code.NEWTR_BC)[0].packet
    assert read_ring(part.header.version, part.piece).base == S_at(room, leader)
    assert all(site(room, name).ordering.safe >= S_at(room, leader) for name in left)
    assert all(room.words(name) == ["late"] for name in left), "all up to there is committed"


@pytest.mark.rule("RNG-16")
def test_no_application_sees_a_ring_before_resume() -> None:
    room, dead, leader, _ = reforming()
    room.loses = losing(Code.RESUME, Code.TOKEN_BC)
    views = {name: len(room.actors[name].views) for name in set("abcd") - {dead, leader}}
    room.until(lambda: len(room.actors[leader].views) > 1)
    room.pass_ms(20)
    assert {name: len(room.actors[name].views) for name in views} == views
    assert {site(room, name).reformation.state.name for name in views} == {"W_RSU"}
    room.loses = None
    gather(room, *(set("abcd") - {dead}))
    assert room.of(Code.RESUME_RQU), "the word was lost, and asked for"


@pytest.mark.rule("RNG-16")
def test_old_messages_are_committed_before_the_view_with_new_members() -> None:
    room = quiet("a", "b", "c", sites=0)
    room.obey("start ring d\nservice safe\nsay a old")
    told = room.obey("join d\nadvance 600ms").splitlines()
    for name in "abc":
        said = [line for line in told if line.startswith(f"{name} ")]
        assert [line.split()[1] for line in said] == ["delivers", "view"], said
        assert [m.name for m in room.actors[name].views[-1].joined] == ["d"]
        assert room.actors[name].views[-1].left == ()
    assert {m.name for m in room.actors["d"].views[0].joined} == set("abcd"), "all are new to d"
    lawful(room)


# -- RNG-17 failures meanwhile ------------------------------------------------------------------


def after_the(code: Code) -> Callable[[Room], bool]:
    return lambda room: bool(room.of(code))


MEANWHILE = {
    "a member before it answered": (after_the(Code.REF_INV_BC), "m"),
    "a member after it answered": (after_the(Code.RSP_POS), "m"),
    "a member before it has the ring": (after_the(Code.NEWTR_BC), "m"),
    "a member after it has the ring": (after_the(Code.NEWTR_ACK), "m"),
    "the coordinator after it invited": (after_the(Code.REF_INV_BC), "c"),
    "the coordinator after it was answered": (after_the(Code.RSP_POS), "c"),
    "the coordinator after it sent the ring": (after_the(Code.NEWTR_BC), "c"),
    "the coordinator after it was acknowledged": (after_the(Code.NEWTR_ACK), "c"),
    "the coordinator after it sent RESUME": (after_the(Code.RESUME), "c"),
    "both after the invitation": (after_the(Code.REF_INV_BC), "cm"),
    "both after the ring": (after_the(Code.NEWTR_BC), "cm"),
    "both after the word to resume": (after_the(Code.RESUME), "cm"),
}


@pytest.mark.rule("RNG-17")
@pytest.mark.parametrize("when", MEANWHILE)
def test_after_any_failure_all_end_in_one_ring(when: str) -> None:
    """Of seven one has died, and the ring is reformed when others die."""
    names = set("abcdefg")
    room = quiet(*sorted(names))
    s = at_rest(room)
    dead = {holder_of(room, s)}
    room.obey(f"service safe\nsay {holder_of(room, s + 1)} word\ncrash {min(dead)}")
    happened, who = MEANWHILE[when]
    room.until(lambda: happened(room), late_ms=3_000)
    leader = room.of(Code.REF_INV_BC)[-1].by
    dead |= {leader} if "c" in who else set()
    dead |= {holder_of(room, s + 3)} if "m" in who else set()
    assert len(dead) == 1 + len(who)
    for name in sorted(dead):
        if room.actors[name].core is not None:
            room.obey(f"crash {name}")
    gather(room, *(names - dead))
    room.obey(f"say {min(names - dead)} on")
    room.until(lambda: all(room.words(name)[-1:] == ["on"] for name in names - dead))
    lawful(room)


@pytest.mark.rule("RNG-17")
def test_a_coordinator_that_learns_of_its_own_ring_abandons_its_reformation() -> None:
    """It was cut off alone for a while: the ring goes on as it was, with one version."""
    room = quiet("a", "b", "c", "d", "e")
    room.pass_ms(8_000)
    version = site(room, "a").state.ring.version
    alone, holder = ring_order(room)[1:3]
    at_rest(room, by=holder)
    room.loses = lambda by, to, packet: alone in (by, to)
    room.until(lambda: site(room, alone).coordinator.state.name == "W_RSP", late_ms=3_000)
    room.loses = None
    gather(room, *"abcde")
    assert {site(room, name).state.ring.version for name in "abcde"} == {version}
    assert room.of(Code.ABORT_BC_RQU, by=alone)
    room.obey("say a on")
    room.until(lambda: all(room.words(name) == ["on"] for name in "abcde"))
    lawful(room)


@pytest.mark.rule("RNG-17")
def test_a_newcomer_requests_the_state_again_when_the_reformation_is_given_up() -> None:
    """The timer of its request ends with the ring, and no other ring is installed."""
    room = quiet("a", "b", sites=0, state=1)
    room.loses = losing(Code.STATE)
    room.obey("start ring c")
    room.obey("join c")
    room.until(lambda: site(room, "c").transfer.is_waiting())
    who, other = site(room, "c"), ring_order(room, "c")[1]
    room.until(lambda: who.token.holder().name == other)
    silence_holder(who)
    step(room, "c", Expired(Timer.T_RT))
    assert not who.state.in_force
    back = step(room, "c", handed(room, other, turn(room, S(room, "c") + 1, by=other)))
    assert who.state.in_force
    assert Code.STATE_ASK in {code_of(packet) for _, packet in packets_in(back)}
    assert Timer.REPAIR in armed_in(back)
