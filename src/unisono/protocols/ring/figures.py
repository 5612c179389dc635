"""The paper's four machines as tables of arrows: Figures 7 to 12.

Packets and timers go to Send and Receive in normal operation, to Reformation or Coordinator
otherwise; internal events go from one machine to another. An arrow names the method that does its
work, and the part that has it.

Fast path: packets from the middle of an arriving turn take no arrow (`Ordering.extends_turn`). The
slow twin is the arrow TOKEN_BC [is_my_ring] / take_turn, which would only store them: no guard
depends on a turn between its first and its last packet. A property test compares the two.
"""

from __future__ import annotations

from typing import Final

from unisono.fsa import Arrow, Figure, always, stay
from unisono.protocols.ring.codes import Code, Timer
from unisono.protocols.ring.coordinator import Coordinator
from unisono.protocols.ring.election import Election
from unisono.protocols.ring.installation import Installation
from unisono.protocols.ring.ordering import Ordering
from unisono.protocols.ring.receiver import Receiver
from unisono.protocols.ring.reformation import Reformation
from unisono.protocols.ring.repair import Repair
from unisono.protocols.ring.ring_search import RingSearch
from unisono.protocols.ring.state import RingState
from unisono.protocols.ring.states import (
    CoordinatorState,
    ReceiveState,
    ReformationState,
    SendState,
)
from unisono.protocols.ring.token_passing import TokenPassing

# fmt: off
S, R, C, F = SendState, ReceiveState, CoordinatorState, ReformationState
Token, Receive, Reform, Coord = TokenPassing, Receiver, Reformation, Coordinator
SENDING: Final = (S.NORMAL, S.WAITACK)
RECEIVING: Final = (R.NORMAL, R.RESEND)

SEND: Final = Figure("send", start=S.INIT, arrows=(
    #     from       on                when                  do                    to
    Arrow(S.INIT,    Code.E_REFEND,    always,               Token.start,          S.NORMAL),
    Arrow(S.NORMAL,  Code.E_SENDABLE,  Token.has_changes,    Token.reform,         S.NORMAL),
    Arrow(S.NORMAL,  Code.E_SENDABLE,  Token.can_send,       Token.take_turn,      S.WAITACK),
    Arrow(S.NORMAL,  Code.E_SENDABLE,  Token.is_wanted,      Token.take_turn,      S.WAITACK),
    Arrow(S.NORMAL,  Code.E_SENDABLE,  always,               Token.rest,           S.NORMAL),
    Arrow(S.NORMAL,  Timer.T_SEND,     Token.has_changes,    Token.reform,         S.NORMAL),
    Arrow(S.NORMAL,  Timer.T_SEND,     Token.has_token,      Token.take_turn,      S.WAITACK),
    Arrow(S.NORMAL,  Timer.T_SEND,     always,               stay,                 S.NORMAL),
    Arrow(S.NORMAL,  Code.RB_DATA_RQU, Token.can_send,       Token.take_turn,      S.WAITACK),
    Arrow(S.NORMAL,  Code.DATA_BC_RQU, Token.has_token,      Token.take_delegate,  S.NORMAL),
    Arrow(SENDING,   Code.E_AWAITED,   Token.can_pass_early, Token.pass_early,     S.WAITACK),
    Arrow(SENDING,   Code.E_AWAITED,   always,               stay,                 None),
    Arrow(SENDING,   Code.RB_DATA_RQU, always,               Token.forward,        None),
    Arrow(SENDING,   Code.DATA_BC_RQU, always,               Token.drop_delegate,  None),
    Arrow(S.WAITACK, Code.E_ACK,       always,               Token.look_for_token, S.NORMAL),
    Arrow(S.NORMAL,  Code.E_ACK,       always,               Token.look_for_token, S.NORMAL),
    Arrow(SENDING,   Code.E_REFSTART,  always,               Token.stop,           S.INIT),
    Arrow(SENDING,   Code.E_REFEND,    always,               stay,                 None),
    Arrow(S.WAITACK, Code.E_SENDABLE,  always,               stay,                 None),
    Arrow(S.WAITACK, Timer.T_SEND,     always,               stay,                 None),
    *(Arrow(S.INIT, on, always, stay, None) for on in (
        Code.E_SENDABLE, Code.E_AWAITED, Code.E_ACK, Code.E_REFSTART, Code.RB_DATA_RQU,
        Code.DATA_BC_RQU, Timer.T_SEND)),
))

_LATE_IN_NORMAL: Final = (
    Code.RESUME, Code.RSP_POS, Code.RSP_NEG, Code.NEWTR_ACK, Code.ABORT_BC_RQU, Code.RELEASE,
    Code.RING_INFO, Code.FAST_ACK, Code.TS_ALIVE_RSP)

RECEIVE: Final = Figure("receive", start=R.INIT, arrows=(
    #     from       on                 when                   do                        to
    Arrow(R.INIT,    Code.E_REFEND,     always,                Repair.gap_closed,        R.NORMAL),
    Arrow(RECEIVING, Code.TOKEN_BC,     RingState.is_my_ring,  Receive.take_turn,        None),
    Arrow(RECEIVING, Code.TOKEN_BC,     Election.is_later,     Receive.follow_later,     R.INIT),
    Arrow(RECEIVING, Code.TOKEN_BC,     always,                Receive.drop_foreign,     None),
    Arrow(R.NORMAL,  None,              Ordering.has_gap,      Repair.watch_gap,         R.RESEND),
    Arrow(R.RESEND,  None,              Ordering.has_no_gap,   Repair.gap_closed,        R.NORMAL),
    Arrow(RECEIVING, Code.RESEND_DATA,  RingState.is_my_ring,  Receive.take_turn,        None),
    Arrow(RECEIVING, Code.RESEND_DATA,  always,                Receive.drop_foreign,     None),
    Arrow(R.RESEND,  Timer.REPAIR,      always,                Repair.request,           R.RESEND),
    Arrow(R.NORMAL,  Timer.REPAIR,      always,                stay,                     R.NORMAL),
    Arrow(RECEIVING, Timer.T_RT,        Receive.holder_silent, Receive.suspect,          R.INIT),
    Arrow(RECEIVING, Timer.T_RT,        always,                Receive.ping,             None),
    Arrow(RECEIVING, Code.REF_INV_BC,   Receive.agrees,        Receive.yield_to_inviter, R.INIT),
    Arrow(RECEIVING, Code.REF_INV_BC,   Receive.should_lead,   Receive.lead_instead,     R.INIT),
    Arrow(RECEIVING, Code.REF_INV_BC,   always,                Receive.deny,             None),
    Arrow(RECEIVING, Code.COORD_RQU,    Receive.confirms,      Receive.coordinate,       R.INIT),
    Arrow(RECEIVING, Code.COORD_RQU,    always,                stay,                     None),
    Arrow(RECEIVING, Code.MEMBER_JOIN,  always,                Receive.note_join,        None),
    Arrow(RECEIVING, Code.QUIT,         always,                Receive.note_quit,        None),
    Arrow(RECEIVING, Code.TS_ALIVE_RQU, always,                Receive.answer_alive,     None),
    Arrow(RECEIVING, Code.RESEND_RQU,   always,                Receive.resend,           None),
    Arrow(RECEIVING, Code.RESUME_RQU,   always,                Receive.answer_resume,    None),
    Arrow(RECEIVING, Code.NEWTR_BC,     RingState.is_my_ring,  Receive.acknowledge_ring, None),
    Arrow(RECEIVING, Code.NEWTR_BC,     always,                stay,                     None),
    Arrow(RECEIVING, Code.E_REFSTART,   always,                stay,                     R.INIT),
    Arrow(RECEIVING, Code.E_REFEND,     always,                stay,                     None),
    *(Arrow(RECEIVING, on, always, stay, None) for on in _LATE_IN_NORMAL),
    *(Arrow(R.INIT, on, always, stay, None) for on in (
        Code.TOKEN_BC, Code.RESEND_DATA, Code.REF_INV_BC, Code.COORD_RQU, Code.MEMBER_JOIN,
        Code.QUIT, Code.TS_ALIVE_RQU, Code.RESEND_RQU, Code.RESUME_RQU, Code.NEWTR_BC,
        Code.E_REFSTART, Timer.T_RT, Timer.REPAIR, *_LATE_IN_NORMAL)),
))

ANY: Final = (F.INIT, F.W_TR, F.W_RSU)
_LATE_IN_REFORMATION: Final = (
    Code.MEMBER_JOIN, Code.FAST_ACK, Code.RESUME_RQU, Code.RSP_POS, Code.NEWTR_ACK, Code.COORD_RQU,
    Code.TS_ALIVE_RQU, Code.TS_ALIVE_RSP, Code.RESEND_RQU, Code.QUIT)

REFORMATION: Final = Figure("reformation", start=F.INIT, arrows=(
    #     from     on                 when                    do                          to
    Arrow(F.INIT,  Code.E_INIT,       always,                 Reform.wait_for_invitation, F.INIT),
    Arrow(F.INIT,  Code.E_ABORT_REF,  always,                 Reform.return_to_ring,      F.INIT),
    Arrow(F.INIT,  Timer.T_REFORM,    RingSearch.knows_ring,  Reform.ask_to_join,         F.INIT),
    Arrow(F.INIT,  Timer.T_REFORM,    always,                 Reform.stand,               F.INIT),
    Arrow(F.INIT,  Code.REF_INV_BC,   Election.is_worthy,     Reform.promise,             F.W_TR),
    Arrow(F.INIT,  Code.REF_INV_BC,   Reform.should_lead,     Reform.deny_and_stand,      F.INIT),
    Arrow(F.INIT,  Code.REF_INV_BC,   always,                 Election.deny,              F.INIT),
    Arrow(F.INIT,  Code.TOKEN_BC,     Reform.may_return,      Reform.return_to_ring,      F.INIT),
    Arrow(F.INIT,  Code.TOKEN_BC,     Reform.is_in_force,     Installation.install,       F.INIT),
    Arrow(F.INIT,  Code.TOKEN_BC,     Election.is_later,      Reform.note_ring,           F.INIT),
    Arrow(F.INIT,  Code.TOKEN_BC,     always,                 stay,                       F.INIT),
    Arrow(F.INIT,  Code.RSP_NEG,      Reform.is_in_force,     Installation.install,       F.INIT),
    Arrow(F.INIT,  Code.RSP_NEG,      always,                 stay,                       F.INIT),
    Arrow(F.INIT,  Code.RESUME,       Reform.is_in_force,     Installation.install,       F.INIT),
    Arrow(F.INIT,  Code.RESUME,       always,                 stay,                       F.INIT),
    Arrow(F.INIT,  Code.RING_INFO,    always,                 Reform.note_ring,           F.INIT),
    # Deviates [RNG Figure 10]: the paper's site ignores a ring that comes after T_REF_RT. It, or
    # the coordinator, was only slow.
    Arrow(F.INIT,  Code.NEWTR_BC,     Reform.is_offered,      Reform.accept,              F.W_RSU),
    Arrow(F.INIT,  Code.NEWTR_BC,     always,                 stay,                       F.INIT),

    Arrow(F.W_TR,  Timer.T_REF_RT,    always,                 Reform.wait_for_invitation, F.INIT),
    Arrow(F.W_TR,  Code.REF_INV_BC,   Election.is_worthy,     Reform.promise,             F.W_TR),
    Arrow(F.W_TR,  Code.REF_INV_BC,   always,                 Election.deny,              F.W_TR),
    Arrow(F.W_TR,  Code.RESEND_DATA,  always,                 Reform.take_repair,         F.W_TR),
    Arrow(F.W_TR,  Timer.REPAIR,      always,                 Reform.request_missing,     F.W_TR),
    Arrow(F.W_TR,  Code.TOKEN_BC,     Reform.is_past_promise, Reform.follow_later,        F.INIT),
    Arrow(F.W_TR,  Code.TOKEN_BC,     always,                 stay,                       F.W_TR),
    Arrow(F.W_TR,  Code.NEWTR_BC,     Reform.is_offered,      Reform.accept,              F.W_RSU),
    Arrow(F.W_TR,  Code.NEWTR_BC,     Reform.is_left_out,     Reform.wait_for_invitation, F.INIT),
    Arrow(F.W_TR,  Code.NEWTR_BC,     always,                 stay,                       F.W_TR),
    Arrow(F.W_TR,  Code.ABORT_BC_RQU, Reform.is_given_up,     Reform.return_to_ring,      F.INIT),
    Arrow(F.W_TR,  Code.ABORT_BC_RQU, always,                 stay,                       F.W_TR),

    Arrow(F.W_RSU, Code.RESUME,       RingState.is_my_ring,   Installation.install,       F.INIT),
    Arrow(F.W_RSU, Code.RESUME,       always,                 stay,                       F.W_RSU),
    Arrow(F.W_RSU, Code.TOKEN_BC,     RingState.is_my_ring,   Installation.install,       F.INIT),
    Arrow(F.W_RSU, Code.TOKEN_BC,     always,                 stay,                       F.W_RSU),
    Arrow(F.W_RSU, Timer.T_REF_RT,    Reform.asked_enough,    Reform.wait_for_invitation, F.INIT),
    Arrow(F.W_RSU, Timer.T_REF_RT,    always,                 Reform.ask_resume,          F.W_RSU),
    Arrow(F.W_RSU, Code.REF_INV_BC,   Election.is_worthy,     Reform.promise,             F.W_TR),
    Arrow(F.W_RSU, Code.REF_INV_BC,   always,                 Election.deny,              F.W_RSU),
    Arrow(F.W_RSU, Code.NEWTR_BC,     RingState.is_my_ring,   Receive.acknowledge_ring,   F.W_RSU),
    Arrow(F.W_RSU, Code.NEWTR_BC,     always,                 stay,                       F.W_RSU),

    *(Arrow(ANY,  on, always, stay, None) for on in _LATE_IN_REFORMATION),
    Arrow(ANY,     Code.RELEASE,      always,                 Reform.be_released,         None),
    *(Arrow(F.INIT, on, always, stay, None) for on in (
        Timer.T_REF_RT, Timer.REPAIR, Code.RESEND_DATA, Code.ABORT_BC_RQU)),
    *(Arrow(F.W_TR, on, always, stay, None) for on in (
        Code.E_INIT, Code.E_ABORT_REF, Timer.T_REFORM, Code.RSP_NEG, Code.RING_INFO, Code.RESUME)),
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
    #     from     on                  when                      do                      to
    Arrow(C.INIT,  Code.E_COORDINATOR, always,                   Coord.invite,           C.W_RSP),
    Arrow(C.W_RSP, Code.RSP_POS,       always,                   Coord.count_answer,     C.W_RSP),
    Arrow(C.W_RSP, Code.RESEND_RQU,    always,                   Coord.resend,           C.W_RSP),
    Arrow(C.W_RSP, None,               Coord.all_answered,       Coord.send_ring,        C.W_REF),
    Arrow(C.W_RSP, Timer.T_TS,         Coord.may_form,           Coord.send_ring,        C.W_REF),
    Arrow(C.W_RSP, Timer.T_TS,         Coord.too_few_stay,       Coord.release,          C.W_RSP),
    Arrow(C.W_RSP, Timer.T_TS,         always,                   Coord.invite,           C.W_RSP),
    Arrow(C.W_RSP, Code.RSP_NEG,       Coord.my_ring_goes_on,    Coord.abort,            C.INIT),
    Arrow(C.W_RSP, Code.RSP_NEG,       Coord.other_ring_goes_on, Coord.join_other_ring,  C.INIT),
    # Deviates [RNG Negative ack]: the paper reports the new coordinator to all members. Here the
    # attempt is called off, and the member that knows more invites by itself.
    Arrow(C.W_RSP, Code.RSP_NEG,       Coord.knows_more,         Coord.give_up,          C.INIT),
    Arrow(C.W_RSP, Code.RSP_NEG,       always,                   Coord.note_denial,      C.W_RSP),
    Arrow(C.W_RSP, Code.RING_INFO,     Election.is_later,        Coord.join_other_ring,  C.INIT),
    Arrow(C.W_RSP, Code.RING_INFO,     always,                   stay,                   C.W_RSP),
    Arrow(WORKING, Code.REF_INV_BC,    Coord.is_worthier,        Coord.yield_to_inviter, C.INIT),
    Arrow(WORKING, Code.REF_INV_BC,    always,                   Coord.deny,             None),
    Arrow(WORKING, Code.TOKEN_BC,      Election.is_later,        Coord.join_other_ring,  C.INIT),
    Arrow(C.W_RSP, Code.TOKEN_BC,      always,                   stay,                   C.W_RSP),
    Arrow(C.W_REF, Code.TOKEN_BC,      RingState.is_my_ring,     Coord.resume,           C.INIT),
    Arrow(C.W_REF, Code.TOKEN_BC,      always,                   stay,                   C.W_REF),
    Arrow(C.W_REF, Code.NEWTR_ACK,     RingState.is_my_ring,     Coord.note_accepted,    C.W_REF),
    Arrow(C.W_REF, Code.NEWTR_ACK,     always,                   stay,                   C.W_REF),
    Arrow(C.W_REF, None,               Coord.all_accepted,       Coord.resume,           C.INIT),
    Arrow(C.W_REF, Timer.T_TS,         Coord.majority_accepted,  Coord.resume,           C.INIT),
    Arrow(C.W_REF, Timer.T_TS,         Coord.nobody_accepts,     Coord.give_up,          C.INIT),
    Arrow(C.W_REF, Timer.T_TS,         always,                   Coord.send_ring_again,  C.W_REF),
    *(Arrow(WORKING, on, always, stay, None) for on in _LATE_IN_COORDINATION),
    Arrow(WORKING, Code.E_COORDINATOR, always,                   stay,                   None),
    Arrow(C.W_RSP, Code.NEWTR_ACK,     always,                   stay,                   C.W_RSP),
    *(Arrow(C.W_REF, on, always, stay, None) for on in (
        Code.RSP_POS, Code.RSP_NEG, Code.RING_INFO, Code.RESEND_RQU)),
    *(Arrow(C.INIT, on, always, stay, None) for on in (
        Code.RSP_POS, Code.RSP_NEG, Code.RING_INFO, Code.REF_INV_BC, Code.TOKEN_BC, Code.NEWTR_ACK,
        Code.RESEND_RQU, Timer.T_TS, *_LATE_IN_COORDINATION)),
))
# fmt: on
