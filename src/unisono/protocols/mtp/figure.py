"""The life of a member as a table of arrows: outside, joining, inside, leaving.

Figures 1 to 3 of the paper are in `agreement.py`; they have no states but their variables.
"""

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
from unisono.protocols.mtp.packets import (
    Ack,
    Confirm,
    Data,
    Deny,
    Empty,
    Expel,
    Grant,
    JoinRequest,
    LeaveRequest,
    Nak,
    Propose,
    Refuse,
    ReplicaSeat,
    Report,
    Stand,
    StatePiece,
    StateRequest,
    Support,
    TokenRequest,
)

if TYPE_CHECKING:
    from unisono.core import Event, Expired
    from unisono.protocols.mtp.core import Mtp


class MemberState(Named):
    OUTSIDE = auto()
    """Not asked to join yet."""
    JOINING = auto()
    """Asks the master to be let in; a master replica, for its council."""
    CATCHING_UP = auto()
    """Let in, and waiting for the roster and the state; it receives, and delivers nothing."""
    MEMBER = auto()
    LEAVING = auto()
    """Says the last of what it has to say, and asks to be let out."""
    DONE = auto()


class Timer(Named):
    JOIN = auto()
    """Ask again to be let in."""
    STATE = auto()
    """Ask again for the roster or the state."""
    HEARTBEAT = auto()
    """The window opens again; what is not settled is advertised, asked for, or said again."""
    BEAT = auto()
    """Nobody is silent for longer: report, look who is silent, set the pace."""
    LEAVE = auto()
    """Nobody let us out."""
    MORE = auto()
    """Deliver what one step was not to deliver at once."""


OUTSIDE, JOINING, CATCHING_UP, MEMBER, LEAVING, DONE = MemberState
INSIDE: Final = (CATCHING_UP, MEMBER, LEAVING)

# -- when -----------------------------------------------------------------------------------------


def it_is_for_me(me: Mtp, packet: Confirm) -> bool:
    return packet.key == me.key


def i_was_refused_enough(me: Mtp, packet: Refuse) -> bool:
    return me.membership.refused_enough(packet)


def i_am_doomed(me: Mtp, event: object) -> bool:
    return me.verdict is not None


def the_web_is_founded(me: Mtp, event: object) -> bool:
    return me.replicas.leads and me.replicas.committed > 0


def all_is_here(me: Mtp, event: object) -> bool:
    return me.membership.all_is_here()


def i_am_out(me: Mtp, event: object) -> bool:
    return me.membership.out


# -- do -------------------------------------------------------------------------------------------


def ask_to_join(me: Mtp, event: Join | Expired, out: list[Effect]) -> None:
    me.membership.ask(out, first=isinstance(event, Join))


def remember(me: Mtp, event: Restart, out: list[Effect]) -> None:
    me.membership.remember(event.stable)


def open_web(me: Mtp, event: object, out: list[Effect]) -> None:
    me.membership.open_web(out)


def enter(me: Mtp, packet: Confirm, out: list[Effect]) -> None:
    me.membership.enter(packet, out)


def give_up(me: Mtp, packet: Refuse, out: list[Effect]) -> None:
    me.doom(packet.reason, Cause.SUPERSEDED if packet.known else Cause.REFUSED)
    me.stop(packet.reason, out, packet.known)


def pull(me: Mtp, event: Expired, out: list[Effect]) -> None:
    me.membership.pull(out)


def take_piece(me: Mtp, packet: StatePiece, out: list[Effect]) -> None:
    me.membership.take(packet, out)


def begin(me: Mtp, event: object, out: list[Effect]) -> None:
    me.membership.begin(out)


def multicast(me: Mtp, event: Multicast, out: list[Effect]) -> None:
    me.send_queue.say(event)


def take_data(me: Mtp, packet: Data, out: list[Effect]) -> None:
    me.receiver.take(packet)


def hear_empty(me: Mtp, packet: Empty, out: list[Effect]) -> None:
    me.receiver.hear_empty(packet)


def use_token(me: Mtp, packet: Grant, out: list[Effect]) -> None:
    me.send_queue.use(packet, out)


def line_up(me: Mtp, packet: TokenRequest, out: list[Effect]) -> None:
    if me.leads:
        me.coordinator.request(packet.header.sender, packet, out)


def repair(me: Mtp, packet: Nak, out: list[Effect]) -> None:
    me.repair.repair(packet, out)


def hear_denial(me: Mtp, packet: Deny, out: list[Effect]) -> None:
    me.repair.denied(packet)


def hear_report(me: Mtp, packet: Report, out: list[Effect]) -> None:
    if me.leads:
        me.coordinator.report(packet.header.sender, packet)


def let_out(me: Mtp, packet: LeaveRequest, out: list[Effect]) -> None:
    if me.leads and packet.header.sender in me.web.members:
        me.coordinator.admission.leavers.add(packet.header.sender)


def let_in(me: Mtp, packet: JoinRequest, out: list[Effect]) -> None:
    if me.leads:
        me.coordinator.admission.join(packet, out)


def hear_expulsion(me: Mtp, packet: Expel, out: list[Effect]) -> None:
    waits = me.machine.state is CATCHING_UP
    if packet.key == me.key and (waits or not packet.stateless):
        me.doom("the master does not count this member in the web any more", Cause.EXCLUDED)


def give_piece(me: Mtp, packet: StateRequest, out: list[Effect]) -> None:
    me.membership.give(packet, out)


def keep_state(me: Mtp, event: Captured, out: list[Effect]) -> None:
    me.membership.keep(event)


def hold_back(me: Mtp, event: Congested, out: list[Effect]) -> None:
    me.congested = event.on


def hear_seat(me: Mtp, packet: ReplicaSeat, out: list[Effect]) -> None:
    me.replicas.hear(packet, out)


def hold_proposal(me: Mtp, packet: Propose, out: list[Effect]) -> None:
    me.replicas.proposed(packet, me.incoming_life, me.source, out)


def count_ack(me: Mtp, packet: Ack, out: list[Effect]) -> None:
    me.replicas.acknowledged(packet)


def support(me: Mtp, packet: Stand, out: list[Effect]) -> None:
    me.replicas.stood(packet, me.source, out)


def be_supported(me: Mtp, packet: Support, out: list[Effect]) -> None:
    me.be_supported(packet)


def heartbeat(me: Mtp, event: Expired, out: list[Effect]) -> None:
    me.heartbeat(out)


def beat(me: Mtp, event: Expired, out: list[Effect]) -> None:
    me.beat(out)


def doubt(me: Mtp, event: Unreachable, out: list[Effect]) -> None:
    if me.leads:
        me.coordinator.refuse(event.address)
    else:
        me.refuse(event.address)


def say_goodbye(me: Mtp, event: Leave, out: list[Effect]) -> None:
    me.membership.leave(out)


def go_unanswered(me: Mtp, event: Expired, out: list[Effect]) -> None:
    me.membership.go_unanswered(out)


def withdraw(me: Mtp, event: Leave, out: list[Effect]) -> None:
    me.membership.withdraw(out)
    me.depart(out)


def depart(me: Mtp, event: Event, out: list[Effect]) -> None:
    me.depart(out)


def stop(me: Mtp, event: object, out: list[Effect]) -> None:
    assert me.verdict is not None
    me.stop(me.verdict, out)


PACKETS: Final = (
    Data, Empty, Grant, TokenRequest, Nak, Deny, Report, LeaveRequest, JoinRequest, Expel,
    Confirm, Refuse, StateRequest, StatePiece, ReplicaSeat, Propose, Ack, Stand, Support,
)  # fmt: skip
CALLS: Final = (Join, Restart, Leave, Multicast, Congested, Captured, Unreachable)

# fmt: off
FIGURE: Final = Figure("mtp", start=OUTSIDE, arrows=(
    #     from               on               when                  do              to
    Arrow(OUTSIDE,           Restart,         always,               remember,       OUTSIDE),
    Arrow(OUTSIDE,           Join,            always,               ask_to_join,    JOINING),
    Arrow(OUTSIDE,           Leave,           always,               depart,         DONE),

    Arrow(JOINING,           None,            i_am_doomed,          stop,           DONE),
    Arrow(JOINING,           None,            the_web_is_founded,   open_web,       MEMBER),
    Arrow(JOINING,           Timer.JOIN,      always,               ask_to_join,    JOINING),
    Arrow(JOINING,           Confirm,         it_is_for_me,         enter,          CATCHING_UP),
    Arrow(JOINING,           Confirm,         always,               stay,           JOINING),
    Arrow(JOINING,           Refuse,          i_was_refused_enough, give_up,        DONE),
    Arrow(JOINING,           Refuse,          always,               stay,           JOINING),
    Arrow(JOINING,           Leave,           always,               withdraw,       DONE),

    Arrow(INSIDE,            None,            i_am_doomed,          stop,           DONE),

    Arrow(CATCHING_UP,       StatePiece,      always,               take_piece,     CATCHING_UP),
    Arrow(CATCHING_UP,       Timer.STATE,     always,               pull,           CATCHING_UP),
    Arrow(CATCHING_UP,       None,            all_is_here,          begin,          MEMBER),
    Arrow(CATCHING_UP,       Leave,           always,               depart,         DONE),

    Arrow(MEMBER,            Multicast,       always,               multicast,      MEMBER),
    Arrow(MEMBER,            Leave,           always,               say_goodbye,    LEAVING),

    Arrow(LEAVING,           None,            i_am_out,             depart,         DONE),
    Arrow(LEAVING,           Timer.LEAVE,     always,               go_unanswered,  LEAVING),

    Arrow(INSIDE,            Data,            always,               take_data,      None),
    Arrow(INSIDE,            Empty,           always,               hear_empty,     None),
    Arrow(INSIDE,            Grant,           always,               use_token,      None),
    Arrow(INSIDE,            TokenRequest,    always,               line_up,        None),
    Arrow(INSIDE,            Nak,             always,               repair,         None),
    Arrow(INSIDE,            Deny,            always,               hear_denial,    None),
    Arrow(INSIDE,            Report,          always,               hear_report,    None),
    Arrow(INSIDE,            LeaveRequest,    always,               let_out,        None),
    Arrow(INSIDE,            JoinRequest,     always,               let_in,         None),
    Arrow(INSIDE,            Expel,           always,               hear_expulsion, None),
    Arrow(INSIDE,            StateRequest,        always,               give_piece,     None),
    Arrow(INSIDE,            Captured,        always,               keep_state,     None),
    Arrow(INSIDE,            Congested,       always,               hold_back,      None),
    Arrow(INSIDE,            Timer.HEARTBEAT, always,               heartbeat,      None),
    Arrow(INSIDE,            Timer.MORE,      always,               stay,           None),
    Arrow(INSIDE,            Unreachable,     always,               doubt,          None),
    Arrow((JOINING, *INSIDE), Timer.BEAT,     always,               beat,           None),
    Arrow((JOINING, *INSIDE), ReplicaSeat,           always,               hear_seat,      None),
    Arrow((JOINING, *INSIDE), Propose,        always,               hold_proposal,  None),
    Arrow((JOINING, *INSIDE), Ack,            always,               count_ack,      None),
    Arrow((JOINING, *INSIDE), Stand,          always,               support,        None),
    Arrow(INSIDE,            Support,         always,               be_supported,   None),

    # What is late or not meant for us changes nothing.
    Arrow((JOINING, CATCHING_UP, LEAVING, OUTSIDE), Multicast, always, impossible, None),
    Arrow(LEAVING,           Leave,           always,               stay,           None),
    Arrow((MEMBER, LEAVING), StatePiece,      always,               stay,           None),
    Arrow((MEMBER, LEAVING), Timer.STATE,     always,               stay,           None),
    Arrow((CATCHING_UP, MEMBER), Timer.LEAVE, always,               stay,           None),
    *(Arrow(INSIDE, on, always, stay, None) for on in (
        Confirm, Refuse, Join, Restart, Timer.JOIN)),
    *(Arrow(JOINING, on, always, stay, None) for on in (
        Data, Empty, Grant, TokenRequest, Nak, Deny, Report, LeaveRequest, JoinRequest, Expel,
        StateRequest, StatePiece, Support, Captured, Congested, Join, Restart, Unreachable,
        Timer.STATE, Timer.HEARTBEAT, Timer.LEAVE, Timer.MORE)),
    *(Arrow(OUTSIDE, on, always, stay, None) for on in (
        *PACKETS, Captured, Congested, Unreachable, *Timer)),
    *(Arrow(DONE, on, always, stay, None) for on in (*PACKETS, *CALLS, *Timer)),
))
# fmt: on
