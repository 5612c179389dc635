"""The paper's four machines as tables of arrows: Figures 7 to 12.

Each has the paper's three states. Packets and timers go to Send and Receive in normal operation,
to Reformation or Coordinator otherwise; what one machine tells another is an internal event.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from unisono.fsa import Arrow, Figure, always, stay
from unisono.protocols.ring.codes import Code, Timer

if TYPE_CHECKING:
    from unisono.core import Effect
    from unisono.protocols.ring.core import Site
    from unisono.protocols.ring.packets import (
        Abort,
        Control,
        CoordRequest,
        Delegate,
        Person,
        ResendRequest,
        RingPart,
        Token,
    )


class Send(Enum):
    INIT = auto()
    """No ring, or it is being reformed."""
    NORMAL = auto()
    """All expected turns came; if the token is here, speak."""
    WAITACK = auto()
    """Spoken; the next turn is expected."""


class Receive(Enum):
    INIT = auto()
    NORMAL = auto()
    RESEND = auto()
    """A gap shows; what is missing was asked for."""


class Coordinator(Enum):
    INIT = auto()
    W_RSP = auto()
    """Invited; waits for responses."""
    W_REF = auto()
    """Sent the new ring; waits for acknowledgments."""


class Reformation(Enum):
    INIT = auto()
    """Waits for an invitation."""
    W_TR = auto()
    """Answered one; waits for the new token ring."""
    W_RSU = auto()
    """Has the new ring; waits for the word to resume."""


# -- when -----------------------------------------------------------------------------------------


def i_have_something_to_say(me: Site, event: object) -> bool:
    return me.token.may_speak()


def somebody_wants_in_or_out(me: Site, event: object) -> bool:
    return me.entrance.has_changes()


def all_is_quiet(me: Site, event: object) -> bool:
    return me.token.wait_us() > 0


def the_token_is_here(me: Site, event: object) -> bool:
    return me.token.is_here()


def it_is_the_expected_ring(me: Site, packet: Token) -> bool:
    return packet.header.version == me.ring.version


def a_later_ring_goes_on(me: Site, packet: Token) -> bool:
    return packet.header.version > me.version


def there_is_a_gap(me: Site, event: object) -> bool:
    return me.ordering.has_gap()


def the_gap_is_closed(me: Site, event: object) -> bool:
    return not me.ordering.has_gap()


def the_holder_is_silent(me: Site, event: object) -> bool:
    return me.token.tries >= me.parameters.tries


def i_agree(me: Site, packet: Person) -> bool:
    return me.reform.agrees(packet)


def i_should_lead(me: Site, packet: Person) -> bool:
    return me.reform.should_lead(packet)


def it_is_silent_here_too(me: Site, packet: CoordRequest) -> bool:
    return me.reform.confirms(packet)


def a_ring_is_known(me: Site, event: object) -> bool:
    return me.entrance.may_ask_again()


def it_is_worthy(me: Site, packet: Person) -> bool:
    return me.reform.is_worthy(packet)


def it_is_worthier(me: Site, packet: Person) -> bool:
    return me.reform.is_worthier(packet)


def my_ring_goes_on(me: Site, packet: Any) -> bool:
    return me.reform.may_return(packet)


def it_gives_up(me: Site, packet: Abort) -> bool:
    return me.reform.is_given_up(packet)


def it_lists_me(me: Site, packet: RingPart) -> bool:
    return me.reform.offers(packet)


def it_is_without_me(me: Site, packet: RingPart) -> bool:
    return me.reform.leaves_out(packet)


def it_is_my_new_ring(me: Site, packet: Any) -> bool:
    version: object = packet.header.version
    return version == me.ring.version


def i_asked_enough(me: Site, event: object) -> bool:
    return me.reform.rounds >= me.parameters.tries


def all_answered(me: Site, event: object) -> bool:
    return me.reform.everyone_answered()


def the_majority_answered(me: Site, event: object) -> bool:
    return me.reform.may_form()


def too_few_would_remain(me: Site, event: object) -> bool:
    return me.reform.may_release()


def all_accepted(me: Site, event: object) -> bool:
    return me.reform.everyone_accepted()


def the_majority_accepted(me: Site, event: object) -> bool:
    return me.reform.may_resume()


def nobody_accepts(me: Site, event: object) -> bool:
    return me.reform.rounds >= 2 * me.parameters.tries


def my_ring_is_in_force(me: Site, packet: Person) -> bool:
    return me.reform.tells_of_my_ring(packet)


def another_ring_is_in_force(me: Site, packet: Person) -> bool:
    return me.reform.tells_of_another(packet)


def another_ring_is_in_force_there(me: Site, packet: Person) -> bool:
    return packet.header.version > me.version


def it_is_my_new_ring_after_all(me: Site, packet: Any) -> bool:
    return me.reform.is_in_force_elsewhere(packet)


def it_knows_more(me: Site, packet: Person) -> bool:
    return me.reform.should_win(packet)


# -- do: Send -------------------------------------------------------------------------------------


def open_shop(me: Site, event: object, out: list[Effect]) -> None:
    me.token.begin(out)


def speak(me: Site, event: object, out: list[Effect]) -> None:
    me.token.speak(out)


def wait_for_more(me: Site, event: object, out: list[Effect]) -> None:
    me.token.wait(out)


def reform_at_the_token(me: Site, event: object, out: list[Effect]) -> None:
    me.reform.at_token = True
    me.push(Code.E_REFSTART)
    me.push(Code.E_COORDINATOR)


def look_for_the_token(me: Site, event: object, out: list[Effect]) -> None:
    me.token.look(out)


def forward(me: Site, event: object, out: list[Effect]) -> None:
    me.token.forward(out)


def speak_for_it(me: Site, packet: Delegate, out: list[Effect]) -> None:
    me.token.entrust(packet)


def pass_over(me: Site, packet: Delegate, out: list[Effect]) -> None:
    me.door.drop("no_token")


def close_shop(me: Site, event: object, out: list[Effect]) -> None:
    me.token.stop(out)


# -- do: Receive ----------------------------------------------------------------------------------


def take(me: Site, packet: Token, out: list[Effect]) -> None:
    me.take(packet, out)


def ignore(me: Site, packet: Any, out: list[Effect]) -> None:
    me.door.drop("version")


def ask(me: Site, event: object, out: list[Effect]) -> None:
    me.repair.ask(out)


def look_for_it(me: Site, event: object, out: list[Effect]) -> None:
    me.repair.look(out)


def ping(me: Site, event: object, out: list[Effect]) -> None:
    # Deviates [RNG Figure 7]: the text lets Send ping the holder on T_SEND, and Figure 8 lets
    # Receive find the fault on T_RT. Here it is Receive and T_RT alone.
    me.token.ping(out)


def suspect(me: Site, event: object, out: list[Effect]) -> None:
    me.reform.suspect(out)


def yield_to_it(me: Site, packet: Person, out: list[Effect]) -> None:
    me.push(Code.E_REFSTART)
    me.push(Code.REF_INV_BC, packet)


def lead_instead(me: Site, packet: Person, out: list[Effect]) -> None:
    me.reform.deny(packet, out)
    me.push(Code.E_REFSTART)
    me.push(Code.E_COORDINATOR)


def deny(me: Site, packet: Person, out: list[Effect]) -> None:
    me.reform.deny(packet, out)


def coordinate(me: Site, packet: object, out: list[Effect]) -> None:
    me.reform.suspect_holder()
    me.push(Code.E_REFSTART)
    me.push(Code.E_COORDINATOR)


def follow_the_later(me: Site, packet: Any, out: list[Effect]) -> None:
    me.push(Code.E_REFSTART)
    me.push(Code.E_INIT)


def note_join(me: Site, packet: Person, out: list[Effect]) -> None:
    me.entrance.note_join(packet, out)


def note_quit(me: Site, packet: Person, out: list[Effect]) -> None:
    me.entrance.note_quit(packet, out)


def say_alive(me: Site, packet: Control, out: list[Effect]) -> None:
    me.repair.say_alive(packet, out)


def resend(me: Site, packet: Any, out: list[Effect]) -> None:
    me.repair.resend(packet, out)


def say_resume(me: Site, packet: Control, out: list[Effect]) -> None:
    me.reform.say_resume(packet, out)


def acknowledge_again(me: Site, packet: RingPart, out: list[Effect]) -> None:
    me.reform.acknowledge(packet, out)


def go_on(me: Site, event: object, out: list[Effect]) -> None:
    """The row is unbroken again."""


# -- do: Reformation ------------------------------------------------------------------------------


def wait_for_invitation(me: Site, event: object, out: list[Effect]) -> None:
    me.entrance.wait(out)


def ask_to_join(me: Site, event: object, out: list[Effect]) -> None:
    me.entrance.ask(out)


def stand(me: Site, event: object, out: list[Effect]) -> None:
    me.push(Code.E_COORDINATOR)


def promise(me: Site, packet: Person, out: list[Effect]) -> None:
    me.reform.promise(packet, out)


def take_repair(me: Site, packet: Token, out: list[Effect]) -> None:
    me.reform.take_repair(packet, out)


def ask_the_leader(me: Site, event: object, out: list[Effect]) -> None:
    me.reform.ask_leader(out)


def accept(me: Site, packet: RingPart, out: list[Effect]) -> None:
    me.reform.accept_offer(packet, out)


def install(me: Site, event: object, out: list[Effect]) -> None:
    me.install(out)
    me.push(Code.E_REFEND)


def ask_resume(me: Site, event: object, out: list[Effect]) -> None:
    me.reform.ask_resume(out)


def return_to_ring(me: Site, event: object, out: list[Effect]) -> None:
    me.reform.return_to_ring(out)
    me.push(Code.E_REFEND)


def be_released(me: Site, packet: Control, out: list[Effect]) -> None:
    me.entrance.be_released(packet)


def deny_and_stand(me: Site, packet: Person, out: list[Effect]) -> None:
    me.reform.deny(packet, out)
    me.push(Code.E_COORDINATOR)


def hear_of_ring(me: Site, packet: Any, out: list[Effect]) -> None:
    me.entrance.hear_of(packet, out)


# -- do: Coordinator ------------------------------------------------------------------------------


def invite(me: Site, event: object, out: list[Effect]) -> None:
    me.reform.invite(out)


def count_in(me: Site, packet: Person, out: list[Effect]) -> None:
    me.reform.count_in(packet, out)


def resend_to_follower(me: Site, packet: ResendRequest, out: list[Effect]) -> None:
    me.reform.resend(packet, out)


def send_ring(me: Site, event: object, out: list[Effect]) -> None:
    me.reform.form(out)


def send_ring_again(me: Site, event: object, out: list[Effect]) -> None:
    me.reform.say_ring(out)


def release(me: Site, event: object, out: list[Effect]) -> None:
    me.reform.release(out)


def note_ack(me: Site, packet: Control, out: list[Effect]) -> None:
    me.reform.accepted.add(packet.header.sender)


def resume(me: Site, event: object, out: list[Effect]) -> None:
    me.reform.resume(out)
    me.install(out)
    me.push(Code.E_REFEND)


def give_up(me: Site, event: object, out: list[Effect]) -> None:
    me.reform.give_up(out)
    me.push(Code.E_INIT)


def abort(me: Site, packet: Person, out: list[Effect]) -> None:
    me.reform.give_up(out)
    me.push(Code.E_ABORT_REF)


def go_and_join(me: Site, packet: Any, out: list[Effect]) -> None:
    me.reform.give_up(out)
    me.entrance.hear_of(packet, out)
    me.push(Code.E_INIT)


def vote_for_it(me: Site, packet: Person, out: list[Effect]) -> None:
    # Deviates [RNG Negative ack]: the paper tells all members who the new coordinator is. Here the
    # attempt is called off, and the one that knows more invites by itself.
    me.reform.give_up(out)
    me.push(Code.E_INIT)


def yield_as_coordinator(me: Site, packet: Person, out: list[Effect]) -> None:
    me.reform.give_up(out)
    me.push(Code.REF_INV_BC, packet)


def note_denial(me: Site, packet: Person, out: list[Effect]) -> None:
    me.reform.note_denial(packet)


# fmt: off
S, R, C, F = Send, Receive, Coordinator, Reformation
SENDING: Final = (S.NORMAL, S.WAITACK)
RECEIVING: Final = (R.NORMAL, R.RESEND)

SEND: Final = Figure("send", start=S.INIT, arrows=(
    #     from       on                 when                     do                   to
    Arrow(S.INIT,    Code.E_REFEND,     always,                  open_shop,           S.NORMAL),
    Arrow(S.NORMAL,  Code.E_SENDABLE,   somebody_wants_in_or_out, reform_at_the_token, S.NORMAL),
    Arrow(S.NORMAL,  Code.E_SENDABLE,   i_have_something_to_say, speak,               S.WAITACK),
    Arrow(S.NORMAL,  Code.E_SENDABLE,   all_is_quiet,            wait_for_more,       S.NORMAL),
    Arrow(S.NORMAL,  Code.E_SENDABLE,   always,                  wait_for_more,       S.NORMAL),
    Arrow(S.NORMAL,  Timer.T_SEND,      somebody_wants_in_or_out, reform_at_the_token, S.NORMAL),
    Arrow(S.NORMAL,  Timer.T_SEND,      the_token_is_here,       speak,               S.WAITACK),
    Arrow(S.NORMAL,  Timer.T_SEND,      always,                  stay,                S.NORMAL),
    Arrow(S.NORMAL,  Code.RB_DATA_RQU,  i_have_something_to_say, speak,               S.WAITACK),
    Arrow(S.NORMAL,  Code.DATA_BC_RQU,  the_token_is_here,       speak_for_it,        S.NORMAL),
    Arrow(SENDING,   Code.RB_DATA_RQU,  always,                  forward,             None),
    Arrow(SENDING,   Code.DATA_BC_RQU,  always,                  pass_over,           None),
    Arrow(S.WAITACK, Code.E_ACK,        always,                  look_for_the_token,  S.NORMAL),
    Arrow(S.NORMAL,  Code.E_ACK,        always,                  look_for_the_token,  S.NORMAL),
    Arrow(SENDING,   Code.E_REFSTART,   always,                  close_shop,          S.INIT),
    Arrow(SENDING,   Code.E_REFEND,     always,                  stay,                None),
    Arrow(S.WAITACK, Code.E_SENDABLE,   always,                  stay,                None),
    Arrow(S.WAITACK, Timer.T_SEND,      always,                  stay,                None),
    *(Arrow(S.INIT, on, always, stay, None) for on in (
        Code.E_SENDABLE, Code.E_ACK, Code.E_REFSTART, Code.RB_DATA_RQU, Code.DATA_BC_RQU,
        Timer.T_SEND)),
))

_LATE_IN_NORMAL: Final = (
    Code.RESUME, Code.RSP_POS, Code.RSP_NEG, Code.NEWTR_ACK, Code.ABORT_BC_RQU, Code.RELEASE,
    Code.RING_INFO, Code.FAST_ACK, Code.TS_ALIVE_RSP)

RECEIVE: Final = Figure("receive", start=R.INIT, arrows=(
    #     from       on                 when                     do                   to
    Arrow(R.INIT,    Code.E_REFEND,     always,                  go_on,               R.NORMAL),
    Arrow(RECEIVING, Code.TOKEN_BC,     it_is_the_expected_ring, take,                None),
    Arrow(RECEIVING, Code.TOKEN_BC,     a_later_ring_goes_on,    follow_the_later,    R.INIT),
    Arrow(RECEIVING, Code.TOKEN_BC,     always,                  ignore,              None),
    Arrow(R.NORMAL,  None,              there_is_a_gap,          look_for_it,         R.RESEND),
    Arrow(R.RESEND,  None,              the_gap_is_closed,       go_on,               R.NORMAL),
    Arrow(RECEIVING, Code.RESEND_DATA,  it_is_the_expected_ring, take,                None),
    Arrow(RECEIVING, Code.RESEND_DATA,  always,                  ignore,              None),
    Arrow(R.RESEND,  Timer.REPAIR,      always,                  ask,                 R.RESEND),
    Arrow(R.NORMAL,  Timer.REPAIR,      always,                  stay,                R.NORMAL),
    Arrow(RECEIVING, Timer.T_RT,        the_holder_is_silent,    suspect,             R.INIT),
    Arrow(RECEIVING, Timer.T_RT,        always,                  ping,                None),
    Arrow(RECEIVING, Code.REF_INV_BC,   i_agree,                 yield_to_it,         R.INIT),
    Arrow(RECEIVING, Code.REF_INV_BC,   i_should_lead,           lead_instead,        R.INIT),
    Arrow(RECEIVING, Code.REF_INV_BC,   always,                  deny,                None),
    Arrow(RECEIVING, Code.COORD_RQU,    it_is_silent_here_too,   coordinate,          R.INIT),
    Arrow(RECEIVING, Code.COORD_RQU,    always,                  stay,                None),
    Arrow(RECEIVING, Code.MEMBER_JOIN,  always,                  note_join,           None),
    Arrow(RECEIVING, Code.QUIT,         always,                  note_quit,           None),
    Arrow(RECEIVING, Code.TS_ALIVE_RQU, always,                  say_alive,           None),
    Arrow(RECEIVING, Code.RESEND_RQU,   always,                  resend,              None),
    Arrow(RECEIVING, Code.RESUME_RQU,   always,                  say_resume,          None),
    Arrow(RECEIVING, Code.NEWTR_BC,     it_is_my_new_ring,       acknowledge_again,   None),
    Arrow(RECEIVING, Code.NEWTR_BC,     always,                  stay,                None),
    Arrow(RECEIVING, Code.E_REFSTART,   always,                  stay,                R.INIT),
    Arrow(RECEIVING, Code.E_REFEND,     always,                  stay,                None),
    *(Arrow(RECEIVING, on, always, stay, None) for on in _LATE_IN_NORMAL),
    *(Arrow(R.INIT, on, always, stay, None) for on in (
        Code.TOKEN_BC, Code.RESEND_DATA, Code.REF_INV_BC, Code.COORD_RQU, Code.MEMBER_JOIN,
        Code.QUIT, Code.TS_ALIVE_RQU, Code.RESEND_RQU, Code.RESUME_RQU, Code.NEWTR_BC,
        Code.E_REFSTART, Timer.T_RT, Timer.REPAIR, *_LATE_IN_NORMAL)),
))

_LATE_IN_REFORMATION: Final = (
    Code.MEMBER_JOIN, Code.FAST_ACK, Code.RESUME_RQU, Code.RSP_POS, Code.NEWTR_ACK, Code.COORD_RQU,
    Code.TS_ALIVE_RQU, Code.TS_ALIVE_RSP, Code.RESEND_RQU, Code.QUIT)

REFORMATION: Final = Figure("reformation", start=F.INIT, arrows=(
    #     from       on                 when                     do                   to
    Arrow(F.INIT,    Code.E_INIT,       always,                  wait_for_invitation, F.INIT),
    Arrow(F.INIT,    Code.E_ABORT_REF,  always,                  return_to_ring,      F.INIT),
    Arrow(F.INIT,    Timer.T_REFORM,    a_ring_is_known,         ask_to_join,         F.INIT),
    Arrow(F.INIT,    Timer.T_REFORM,    always,                  stand,               F.INIT),
    Arrow(F.INIT,    Code.REF_INV_BC,   it_is_worthy,            promise,             F.W_TR),
    Arrow(F.INIT,    Code.REF_INV_BC,   i_should_lead,           deny_and_stand,      F.INIT),
    Arrow(F.INIT,    Code.REF_INV_BC,   always,                  deny,                F.INIT),
    Arrow(F.INIT,    Code.TOKEN_BC,     my_ring_goes_on,         return_to_ring,      F.INIT),
    Arrow(F.INIT,    Code.TOKEN_BC,     it_is_my_new_ring_after_all, install,         F.INIT),
    Arrow(F.INIT,    Code.TOKEN_BC,     a_later_ring_goes_on,    hear_of_ring,        F.INIT),
    Arrow(F.INIT,    Code.TOKEN_BC,     always,                  stay,                F.INIT),
    Arrow(F.INIT,    Code.RSP_NEG,      it_is_my_new_ring_after_all, install,         F.INIT),
    Arrow(F.INIT,    Code.RSP_NEG,      always,                  stay,                F.INIT),
    Arrow(F.INIT,    Code.RESUME,       it_is_my_new_ring_after_all, install,         F.INIT),
    Arrow(F.INIT,    Code.RESUME,       always,                  stay,                F.INIT),
    Arrow(F.INIT,    Code.RING_INFO,    always,                  hear_of_ring,        F.INIT),

    Arrow(F.W_TR,    Timer.T_REF_RT,    always,                  wait_for_invitation, F.INIT),
    Arrow(F.W_TR,    Code.REF_INV_BC,   it_is_worthy,            promise,             F.W_TR),
    Arrow(F.W_TR,    Code.REF_INV_BC,   always,                  deny,                F.W_TR),
    Arrow(F.W_TR,    Code.RESEND_DATA,  always,                  take_repair,         F.W_TR),
    Arrow(F.W_TR,    Timer.REPAIR,      always,                  ask_the_leader,      F.W_TR),
    Arrow(F.W_TR,    Code.NEWTR_BC,     it_lists_me,             accept,              F.W_RSU),
    Arrow(F.W_TR,    Code.NEWTR_BC,     it_is_without_me,        wait_for_invitation, F.INIT),
    Arrow(F.W_TR,    Code.NEWTR_BC,     always,                  stay,                F.W_TR),
    Arrow(F.W_TR,    Code.ABORT_BC_RQU, it_gives_up,             return_to_ring,      F.INIT),
    Arrow(F.W_TR,    Code.ABORT_BC_RQU, always,                  stay,                F.W_TR),

    Arrow(F.W_RSU,   Code.RESUME,       it_is_my_new_ring,       install,             F.INIT),
    Arrow(F.W_RSU,   Code.RESUME,       always,                  stay,                F.W_RSU),
    Arrow(F.W_RSU,   Code.TOKEN_BC,     it_is_my_new_ring,       install,             F.INIT),
    Arrow(F.W_RSU,   Code.TOKEN_BC,     always,                  stay,                F.W_RSU),
    Arrow(F.W_RSU,   Timer.T_REF_RT,    i_asked_enough,          wait_for_invitation, F.INIT),
    Arrow(F.W_RSU,   Timer.T_REF_RT,    always,                  ask_resume,          F.W_RSU),
    Arrow(F.W_RSU,   Code.REF_INV_BC,   it_is_worthy,            promise,             F.W_TR),
    Arrow(F.W_RSU,   Code.REF_INV_BC,   always,                  deny,                F.W_RSU),
    Arrow(F.W_RSU,   Code.NEWTR_BC,     it_is_my_new_ring,       acknowledge_again,   F.W_RSU),
    Arrow(F.W_RSU,   Code.NEWTR_BC,     always,                  stay,                F.W_RSU),

    *(Arrow((F.INIT, F.W_TR, F.W_RSU), on, always, stay, None) for on in _LATE_IN_REFORMATION),
    Arrow((F.INIT, F.W_TR, F.W_RSU), Code.RELEASE, always,       be_released,         None),
    *(Arrow(F.INIT, on, always, stay, None) for on in (
        Timer.T_REF_RT, Timer.REPAIR, Code.RESEND_DATA, Code.NEWTR_BC, Code.ABORT_BC_RQU)),
    *(Arrow(F.W_TR, on, always, stay, None) for on in (
        Code.E_INIT, Code.E_ABORT_REF, Timer.T_REFORM, Code.TOKEN_BC, Code.RSP_NEG, Code.RING_INFO,
        Code.RESUME)),
    *(Arrow(F.W_RSU, on, always, stay, None) for on in (
        Code.E_INIT, Code.E_ABORT_REF, Timer.T_REFORM, Timer.REPAIR, Code.RSP_NEG, Code.RING_INFO,
        Code.RESEND_DATA, Code.ABORT_BC_RQU)),
))

_LATE_IN_COORDINATION: Final = (
    Code.MEMBER_JOIN, Code.FAST_ACK, Code.RESUME, Code.RESUME_RQU, Code.ABORT_BC_RQU,
    Code.COORD_RQU, Code.TS_ALIVE_RQU, Code.TS_ALIVE_RSP, Code.RESEND_DATA,
    Code.QUIT, Code.RELEASE, Code.NEWTR_BC)
WORKING: Final = (C.W_RSP, C.W_REF)

COORDINATOR: Final = Figure("coordinator", start=C.INIT, arrows=(
    #     from       on                 when                     do                   to
    Arrow(C.INIT,    Code.E_COORDINATOR, always,                 invite,              C.W_RSP),
    Arrow(C.W_RSP,   Code.RSP_POS,      always,                  count_in,            C.W_RSP),
    Arrow(C.W_RSP,   Code.RESEND_RQU,   always,                  resend_to_follower,  C.W_RSP),
    Arrow(C.W_RSP,   None,              all_answered,            send_ring,           C.W_REF),
    Arrow(C.W_RSP,   Timer.T_TS,        the_majority_answered,   send_ring,           C.W_REF),
    Arrow(C.W_RSP,   Timer.T_TS,        too_few_would_remain,    release,             C.W_RSP),
    Arrow(C.W_RSP,   Timer.T_TS,        always,                  invite,              C.W_RSP),
    Arrow(C.W_RSP,   Code.RSP_NEG,      my_ring_is_in_force,     abort,               C.INIT),
    Arrow(C.W_RSP,   Code.RSP_NEG,      another_ring_is_in_force, go_and_join,        C.INIT),
    Arrow(C.W_RSP,   Code.RSP_NEG,      it_knows_more,           vote_for_it,         C.INIT),
    Arrow(C.W_RSP,   Code.RSP_NEG,      always,                  note_denial,         C.W_RSP),
    Arrow(C.W_RSP,   Code.RING_INFO,    another_ring_is_in_force_there, go_and_join,  C.INIT),
    Arrow(C.W_RSP,   Code.RING_INFO,    always,                  stay,                C.W_RSP),
    Arrow(WORKING,   Code.REF_INV_BC,   it_is_worthier,            yield_as_coordinator, C.INIT),
    Arrow(WORKING,   Code.REF_INV_BC,   always,                  deny,                None),
    Arrow(WORKING,   Code.TOKEN_BC,     a_later_ring_goes_on,    go_and_join,         C.INIT),
    Arrow(C.W_RSP,   Code.TOKEN_BC,     always,                  stay,                C.W_RSP),
    Arrow(C.W_REF,   Code.TOKEN_BC,     it_is_my_new_ring,       resume,              C.INIT),
    Arrow(C.W_REF,   Code.TOKEN_BC,     always,                  stay,                C.W_REF),
    Arrow(C.W_REF,   Code.NEWTR_ACK,    it_is_my_new_ring,       note_ack,            C.W_REF),
    Arrow(C.W_REF,   Code.NEWTR_ACK,    always,                  stay,                C.W_REF),
    Arrow(C.W_REF,   None,              all_accepted,            resume,              C.INIT),
    Arrow(C.W_REF,   Timer.T_TS,        the_majority_accepted,   resume,              C.INIT),
    Arrow(C.W_REF,   Timer.T_TS,        nobody_accepts,          give_up,             C.INIT),
    Arrow(C.W_REF,   Timer.T_TS,        always,                  send_ring_again,     C.W_REF),
    *(Arrow(WORKING, on, always, stay, None) for on in _LATE_IN_COORDINATION),
    Arrow(WORKING,   Code.E_COORDINATOR, always,                 stay,                None),
    Arrow(C.W_RSP,   Code.NEWTR_ACK,    always,                  stay,                C.W_RSP),
    *(Arrow(C.W_REF, on, always, stay, None) for on in (
        Code.RSP_POS, Code.RSP_NEG, Code.RING_INFO, Code.RESEND_RQU)),
    *(Arrow(C.INIT, on, always, stay, None) for on in (
        Code.RSP_POS, Code.RSP_NEG, Code.RING_INFO, Code.REF_INV_BC, Code.TOKEN_BC, Code.NEWTR_ACK,
        Code.RESEND_RQU, Timer.T_TS, *_LATE_IN_COORDINATION)),
))
# fmt: on
