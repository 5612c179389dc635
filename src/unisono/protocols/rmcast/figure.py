"""The life of a member as a table of arrows. The paper prints three algorithms and no figure; this
is the diagram that its text describes, with the additions that it leaves room for."""

from __future__ import annotations

from enum import auto
from typing import TYPE_CHECKING, Final

from unisono.core import (
    Captured,
    Cause,
    Congested,
    Effect,
    Join,
    Leave,
    Multicast,
    Restart,
    Unreachable,
)
from unisono.fsa import Arrow, Figure, Named, always, impossible, stay
from unisono.protocols.rmcast.packets import (
    Announce,
    Beat,
    Data,
    Refuse,
    Seek,
    StatePiece,
    StateRequest,
    Welcome,
)

if TYPE_CHECKING:
    from unisono.core import Event, Expired
    from unisono.protocols.rmcast.core import Rmcast


class MemberState(Named):
    OUTSIDE = auto()
    """Not asked to join yet."""
    SEEKING = auto()
    """Looking for the group."""
    CATCHING_UP = auto()
    """A member that still waits for the group's state; it receives, and delivers nothing."""
    MEMBER = auto()
    LEAVING = auto()
    """Has said goodbye, and hands over what others may still need."""
    DONE = auto()


class Timer(Named):
    SEEK = auto()
    """Ask again whether there is a group."""
    FOUND = auto()
    """Nobody answered: found the group."""
    BEAT = auto()
    """Algorithm 2: look who is silent, and send heartbeats where needed."""
    ASK = auto()
    """Ask again for what is missing."""
    ANNOUNCE = auto()
    """Tell the world that this part of the group is here."""
    LEAVE = auto()
    """Nobody answered the goodbye."""
    PROBE = auto()
    """Ask those that are quiet for a sign of life."""


OUTSIDE, SEEKING, CATCHING_UP, MEMBER, LEAVING, DONE = MemberState
INSIDE: Final = (CATCHING_UP, MEMBER, LEAVING)

# -- when -----------------------------------------------------------------------------------------


def with_state_for_me(me: Rmcast, packet: Welcome) -> bool:
    return me.membership.is_for_me(packet) and packet.with_state


def it_is_for_me(me: Rmcast, packet: Welcome) -> bool:
    return me.membership.is_for_me(packet)


def i_was_refused_enough(me: Rmcast, packet: Refuse) -> bool:
    return me.membership.refused_enough(packet)


def another_should_found(me: Rmcast, packet: Seek) -> bool:
    return packet.member < me.me and not packet.withdrawn


def i_am_doomed(me: Rmcast, event: object) -> bool:
    return me.detector.verdict is not None


def the_state_is_here(me: Rmcast, event: object) -> bool:
    return me.membership.state_is_here()


def they_are_taking_over(me: Rmcast, event: object) -> bool:
    return me.membership.progressed()


def all_is_handed_over(me: Rmcast, event: object) -> bool:
    return me.membership.handed_over()


# -- do -------------------------------------------------------------------------------------------


def seek(me: Rmcast, event: Join | Expired, out: list[Effect]) -> None:
    me.membership.seek(out, first=isinstance(event, Join))


def await_founder(me: Rmcast, packet: Seek | Announce, out: list[Effect]) -> None:
    me.membership.wait(packet, out)


def found(me: Rmcast, event: Expired, out: list[Effect]) -> None:
    me.membership.found(out)


def enter(me: Rmcast, packet: Welcome, out: list[Effect]) -> None:
    me.membership.enter(packet, out)


def give_up(me: Rmcast, packet: Refuse, out: list[Effect]) -> None:
    cause = Cause.SUPERSEDED if packet.known else Cause.REFUSED
    me.stop(packet.reason, cause, out, packet.known)


def adopt(me: Rmcast, event: object, out: list[Effect]) -> None:
    me.membership.adopt(out)


def consider(me: Rmcast, packet: Seek, out: list[Effect]) -> None:
    me.membership.consider(packet, out)


def weigh(me: Rmcast, packet: Announce, out: list[Effect]) -> None:
    me.merging.weigh(packet, out)


def announce(me: Rmcast, event: Expired, out: list[Effect]) -> None:
    me.merging.announce(out)


def multicast(me: Rmcast, event: Multicast, out: list[Effect]) -> None:
    me.multicast(event, out)


def take(me: Rmcast, packet: Data, out: list[Effect]) -> None:
    me.ordering.take(packet)


def answer(me: Rmcast, packet: Beat, out: list[Effect]) -> None:
    me.answer(packet, out)


def beat(me: Rmcast, event: Expired, out: list[Effect]) -> None:
    me.beat(out)


def probe(me: Rmcast, event: Expired, out: list[Effect]) -> None:
    me.probe(out)


def doubt(me: Rmcast, event: Unreachable, out: list[Effect]) -> None:
    me.detector.refuse(event.address, me.now_us)


def ask(me: Rmcast, event: Expired, out: list[Effect]) -> None:
    me.asking = False


def give_state(me: Rmcast, packet: StateRequest, out: list[Effect]) -> None:
    me.membership.give(packet, out)


def keep_state(me: Rmcast, event: Captured, out: list[Effect]) -> None:
    me.membership.keep(event)


def take_state(me: Rmcast, packet: StatePiece, out: list[Effect]) -> None:
    me.membership.take(packet, out)


def hold_back(me: Rmcast, event: Congested, out: list[Effect]) -> None:
    me.congested = event.on


def say_goodbye(me: Rmcast, event: Leave, out: list[Effect]) -> None:
    me.membership.leave(out)


def depart(me: Rmcast, event: Event, out: list[Effect]) -> None:
    me.depart(out)


def withdraw(me: Rmcast, event: Leave, out: list[Effect]) -> None:
    me.membership.withdraw(out)
    me.depart(out)


def abandon(me: Rmcast, event: Leave, out: list[Effect]) -> None:
    me.abandon(out)


def wait_on(me: Rmcast, event: Expired, out: list[Effect]) -> None:
    me.membership.wait_on(out)


def go_unanswered(me: Rmcast, event: Expired, out: list[Effect]) -> None:
    me.stop("left before the others had taken over", Cause.STOPPED, out)


def stop(me: Rmcast, event: object, out: list[Effect]) -> None:
    assert me.detector.verdict is not None
    me.stop(me.detector.verdict, me.detector.cause, out)


# fmt: off
FIGURE: Final = Figure("rmcast", start=OUTSIDE, arrows=(
    #     from           on              when                  do             to
    Arrow(OUTSIDE,       Join,           always,               seek,          SEEKING),
    Arrow(SEEKING,       Timer.SEEK,     always,               seek,          SEEKING),
    Arrow(SEEKING,       Timer.FOUND,    always,               found,         MEMBER),
    Arrow(SEEKING,       Seek,           another_should_found, await_founder, SEEKING),
    Arrow(SEEKING,       Seek,           always,               stay,          SEEKING),
    Arrow(SEEKING,       Announce,       always,               await_founder, SEEKING),
    Arrow(SEEKING,       Welcome,        with_state_for_me,    enter,         CATCHING_UP),
    Arrow(SEEKING,       Welcome,        it_is_for_me,         enter,         MEMBER),
    Arrow(SEEKING,       Welcome,        always,               stay,          SEEKING),
    Arrow(SEEKING,       Refuse,         i_was_refused_enough, give_up,       DONE),
    Arrow(SEEKING,       Refuse,         always,               stay,          SEEKING),
    Arrow(SEEKING,       Leave,          always,               withdraw,      DONE),

    Arrow(INSIDE,        None,           i_am_doomed,          stop,          DONE),

    Arrow(CATCHING_UP,   StatePiece,          always,               take_state,    CATCHING_UP),
    Arrow(CATCHING_UP,   None,           the_state_is_here,    adopt,         MEMBER),
    Arrow(CATCHING_UP,   Leave,          always,               abandon,       DONE),

    Arrow(MEMBER,        Multicast,      always,               multicast,     MEMBER),
    Arrow(MEMBER,        Leave,          always,               say_goodbye,   LEAVING),

    Arrow(LEAVING,       None,           all_is_handed_over,   depart,        DONE),
    Arrow(LEAVING,       Timer.LEAVE,    they_are_taking_over, wait_on,       LEAVING),
    Arrow(LEAVING,       Timer.LEAVE,    always,               go_unanswered, DONE),
    Arrow(LEAVING,       Leave,          always,               stay,          LEAVING),

    Arrow(INSIDE,        Data,           always,               take,          None),
    Arrow(INSIDE,        Beat,           always,               answer,        None),
    Arrow(INSIDE,        Timer.BEAT,     always,               beat,          None),
    Arrow(INSIDE,        Timer.ASK,      always,               ask,           None),
    Arrow(INSIDE,        Timer.PROBE,    always,               probe,         None),
    Arrow(INSIDE,        Unreachable,    always,               doubt,         None),
    Arrow(INSIDE,        Timer.ANNOUNCE, always,               announce,      None),
    Arrow(INSIDE,        Seek,           always,               consider,      None),
    Arrow(INSIDE,        Announce,       always,               weigh,         None),
    Arrow((MEMBER, LEAVING), StateRequest,       always,               give_state,    None),
    Arrow((MEMBER, LEAVING), Captured,       always,               keep_state,    None),
    Arrow(INSIDE,        Congested,      always,               hold_back,     None),

    # What is late or not meant for us changes nothing.
    Arrow(CATCHING_UP,   StateRequest,       always,               stay,          None),
    Arrow(CATCHING_UP,   Captured,       always,               stay,          None),
    Arrow((MEMBER, LEAVING), StatePiece,          always,               stay,          None),
    Arrow(INSIDE,        Welcome,        always,               stay,          None),
    Arrow(INSIDE,        Refuse,         always,               stay,          None),
    Arrow(INSIDE,        Timer.SEEK,     always,               stay,          None),
    Arrow(INSIDE,        Timer.FOUND,    always,               stay,          None),
    Arrow((CATCHING_UP, MEMBER), Timer.LEAVE,    always,               stay,          None),
    Arrow(INSIDE,        Join,           always,               stay,          None),
    Arrow(INSIDE,        Restart,        always,               stay,          None),
    Arrow((CATCHING_UP, LEAVING), Multicast,      always,               impossible,    None),
    *(Arrow(SEEKING, on, always, stay, None) for on in (
        Data, Beat, StatePiece, StateRequest, Captured, Congested, Join, Restart, Unreachable,
        Timer.BEAT, Timer.ASK, Timer.ANNOUNCE, Timer.LEAVE, Timer.PROBE)),
    Arrow((OUTSIDE, SEEKING), Multicast,      always,               impossible,    None),
    *(Arrow(OUTSIDE, on, always, stay, None) for on in (
        Seek, Announce, Welcome, Refuse, Data, Beat, StatePiece, StateRequest, Captured, Congested,
        Restart, Unreachable,
        Timer.SEEK, Timer.FOUND, Timer.BEAT, Timer.ASK, Timer.ANNOUNCE, Timer.LEAVE, Timer.PROBE)),
    Arrow(OUTSIDE,       Leave,          always,               depart,        DONE),
    *(Arrow(DONE, on, always, stay, None) for on in (
        Join, Leave, Multicast, Restart, Congested, Captured, Unreachable,
        Seek, Announce, Welcome, Refuse, Data, Beat, StatePiece, StateRequest,
        Timer.SEEK, Timer.FOUND, Timer.BEAT, Timer.ASK, Timer.ANNOUNCE, Timer.LEAVE, Timer.PROBE)),
))
# fmt: on
