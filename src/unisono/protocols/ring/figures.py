"""The paper's four machines as tables of arrows: Figures 7 to 12.

Packets and timers go to Send and Receive in normal operation, to Reformation or Coordinator
otherwise; what one machine tells another is an internal event.
"""

from __future__ import annotations

from typing import Final

from unisono.fsa import Arrow, Figure, always, stay
from unisono.protocols.ring.actions import (
    abort,
    accept,
    acknowledge_again,
    ask,
    ask_resume,
    ask_the_leader,
    ask_to_join,
    be_released,
    close_shop,
    coordinate,
    count_in,
    deny,
    deny_and_stand,
    escape,
    follow_the_later,
    forward,
    give_up,
    go_and_join,
    go_on,
    hear_of_ring,
    ignore,
    install,
    invite,
    lead_instead,
    look_for_it,
    look_for_the_token,
    note_ack,
    note_denial,
    note_join,
    note_quit,
    open_shop,
    pass_early,
    pass_over,
    ping,
    promise,
    reform_at_the_token,
    release,
    resend,
    resend_to_follower,
    resume,
    return_to_ring,
    say_alive,
    say_resume,
    send_ring,
    send_ring_again,
    speak,
    speak_for_it,
    stand,
    suspect,
    take,
    take_repair,
    vote_for_it,
    wait_for_invitation,
    wait_for_more,
    yield_as_coordinator,
    yield_to_it,
)
from unisono.protocols.ring.codes import Code, Timer
from unisono.protocols.ring.guards import (
    a_later_ring_goes_on,
    a_ring_is_known,
    all_accepted,
    all_answered,
    another_ring_is_in_force,
    i_agree,
    i_asked_enough,
    i_can_do_without_it,
    i_have_something_to_say,
    i_should_lead,
    it_gives_up,
    it_is_beyond_my_promise,
    it_is_in_force_after_all,
    it_is_my_ring,
    it_is_silent_here_too,
    it_is_without_me,
    it_is_worthier,
    it_is_worthy,
    it_knows_more,
    it_lists_me,
    my_ring_goes_on,
    my_ring_is_in_force,
    nobody_accepts,
    others_have_more_to_say,
    somebody_wants_in_or_out,
    the_gap_is_closed,
    the_holder_is_silent,
    the_majority_accepted,
    the_majority_answered,
    the_token_is_here,
    there_is_a_gap,
    too_few_would_remain,
)
from unisono.protocols.ring.states import (
    CoordinatorState,
    ReceiveState,
    ReformationState,
    SendState,
)

# fmt: off
S, R, C, F = SendState, ReceiveState, CoordinatorState, ReformationState
SENDING: Final = (S.NORMAL, S.WAITACK)
RECEIVING: Final = (R.NORMAL, R.RESEND)

SEND: Final = Figure("send", start=S.INIT, arrows=(
    #     from       on                 when                     do                   to
    Arrow(S.INIT,    Code.E_REFEND,     always,                  open_shop,           S.NORMAL),
    Arrow(S.NORMAL,  Code.E_SENDABLE,   somebody_wants_in_or_out, reform_at_the_token, S.NORMAL),
    Arrow(S.NORMAL,  Code.E_SENDABLE,   i_have_something_to_say, speak,               S.WAITACK),
    Arrow(S.NORMAL,  Code.E_SENDABLE,   others_have_more_to_say, speak,               S.WAITACK),
    Arrow(S.NORMAL,  Code.E_SENDABLE,   always,                  wait_for_more,       S.NORMAL),
    Arrow(S.NORMAL,  Timer.T_SEND,      somebody_wants_in_or_out, reform_at_the_token, S.NORMAL),
    Arrow(S.NORMAL,  Timer.T_SEND,      the_token_is_here,       speak,               S.WAITACK),
    Arrow(S.NORMAL,  Timer.T_SEND,      always,                  stay,                S.NORMAL),
    Arrow(S.NORMAL,  Code.RB_DATA_RQU,  i_have_something_to_say, speak,               S.WAITACK),
    Arrow(S.NORMAL,  Code.DATA_BC_RQU,  the_token_is_here,       speak_for_it,        S.NORMAL),
    Arrow(SENDING,   Code.E_AWAITED,    i_can_do_without_it,     pass_early,          S.WAITACK),
    Arrow(SENDING,   Code.E_AWAITED,    always,                  stay,                None),
    Arrow(SENDING,   Code.RB_DATA_RQU,  always,                  forward,             None),
    Arrow(SENDING,   Code.DATA_BC_RQU,  always,                  pass_over,           None),
    Arrow(S.WAITACK, Code.E_ACK,        always,                  look_for_the_token,  S.NORMAL),
    Arrow(S.NORMAL,  Code.E_ACK,        always,                  look_for_the_token,  S.NORMAL),
    Arrow(SENDING,   Code.E_REFSTART,   always,                  close_shop,          S.INIT),
    Arrow(SENDING,   Code.E_REFEND,     always,                  stay,                None),
    Arrow(S.WAITACK, Code.E_SENDABLE,   always,                  stay,                None),
    Arrow(S.WAITACK, Timer.T_SEND,      always,                  stay,                None),
    *(Arrow(S.INIT, on, always, stay, None) for on in (
        Code.E_SENDABLE, Code.E_AWAITED, Code.E_ACK, Code.E_REFSTART, Code.RB_DATA_RQU,
        Code.DATA_BC_RQU, Timer.T_SEND)),
))

_LATE_IN_NORMAL: Final = (
    Code.RESUME, Code.RSP_POS, Code.RSP_NEG, Code.NEWTR_ACK, Code.ABORT_BC_RQU, Code.RELEASE,
    Code.RING_INFO, Code.FAST_ACK, Code.TS_ALIVE_RSP)

RECEIVE: Final = Figure("receive", start=R.INIT, arrows=(
    #     from       on                 when                     do                   to
    Arrow(R.INIT,    Code.E_REFEND,     always,                  go_on,               R.NORMAL),
    Arrow(RECEIVING, Code.TOKEN_BC,     it_is_my_ring, take,                None),
    Arrow(RECEIVING, Code.TOKEN_BC,     a_later_ring_goes_on,    follow_the_later,    R.INIT),
    Arrow(RECEIVING, Code.TOKEN_BC,     always,                  ignore,              None),
    Arrow(R.NORMAL,  None,              there_is_a_gap,          look_for_it,         R.RESEND),
    Arrow(R.RESEND,  None,              the_gap_is_closed,       go_on,               R.NORMAL),
    Arrow(RECEIVING, Code.RESEND_DATA,  it_is_my_ring, take,                None),
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
    Arrow(RECEIVING, Code.NEWTR_BC,     it_is_my_ring,       acknowledge_again,   None),
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
    Arrow(F.INIT,    Code.TOKEN_BC,     it_is_in_force_after_all, install,         F.INIT),
    Arrow(F.INIT,    Code.TOKEN_BC,     a_later_ring_goes_on,    hear_of_ring,        F.INIT),
    Arrow(F.INIT,    Code.TOKEN_BC,     always,                  stay,                F.INIT),
    Arrow(F.INIT,    Code.RSP_NEG,      it_is_in_force_after_all, install,         F.INIT),
    Arrow(F.INIT,    Code.RSP_NEG,      always,                  stay,                F.INIT),
    Arrow(F.INIT,    Code.RESUME,       it_is_in_force_after_all, install,         F.INIT),
    Arrow(F.INIT,    Code.RESUME,       always,                  stay,                F.INIT),
    Arrow(F.INIT,    Code.RING_INFO,    always,                  hear_of_ring,        F.INIT),

    Arrow(F.W_TR,    Timer.T_REF_RT,    always,                  wait_for_invitation, F.INIT),
    Arrow(F.W_TR,    Code.REF_INV_BC,   it_is_worthy,            promise,             F.W_TR),
    Arrow(F.W_TR,    Code.REF_INV_BC,   always,                  deny,                F.W_TR),
    Arrow(F.W_TR,    Code.RESEND_DATA,  always,                  take_repair,         F.W_TR),
    Arrow(F.W_TR,    Timer.REPAIR,      always,                  ask_the_leader,      F.W_TR),
    Arrow(F.W_TR,    Code.TOKEN_BC,     it_is_beyond_my_promise, escape,              F.INIT),
    Arrow(F.W_TR,    Code.TOKEN_BC,     always,                  stay,                F.W_TR),
    Arrow(F.W_TR,    Code.NEWTR_BC,     it_lists_me,             accept,              F.W_RSU),
    Arrow(F.W_TR,    Code.NEWTR_BC,     it_is_without_me,        wait_for_invitation, F.INIT),
    Arrow(F.W_TR,    Code.NEWTR_BC,     always,                  stay,                F.W_TR),
    Arrow(F.W_TR,    Code.ABORT_BC_RQU, it_gives_up,             return_to_ring,      F.INIT),
    Arrow(F.W_TR,    Code.ABORT_BC_RQU, always,                  stay,                F.W_TR),

    Arrow(F.W_RSU,   Code.RESUME,       it_is_my_ring,       install,             F.INIT),
    Arrow(F.W_RSU,   Code.RESUME,       always,                  stay,                F.W_RSU),
    Arrow(F.W_RSU,   Code.TOKEN_BC,     it_is_my_ring,       install,             F.INIT),
    Arrow(F.W_RSU,   Code.TOKEN_BC,     always,                  stay,                F.W_RSU),
    Arrow(F.W_RSU,   Timer.T_REF_RT,    i_asked_enough,          wait_for_invitation, F.INIT),
    Arrow(F.W_RSU,   Timer.T_REF_RT,    always,                  ask_resume,          F.W_RSU),
    Arrow(F.W_RSU,   Code.REF_INV_BC,   it_is_worthy,            promise,             F.W_TR),
    Arrow(F.W_RSU,   Code.REF_INV_BC,   always,                  deny,                F.W_RSU),
    Arrow(F.W_RSU,   Code.NEWTR_BC,     it_is_my_ring,       acknowledge_again,   F.W_RSU),
    Arrow(F.W_RSU,   Code.NEWTR_BC,     always,                  stay,                F.W_RSU),

    *(Arrow((F.INIT, F.W_TR, F.W_RSU), on, always, stay, None) for on in _LATE_IN_REFORMATION),
    Arrow((F.INIT, F.W_TR, F.W_RSU), Code.RELEASE, always,       be_released,         None),
    *(Arrow(F.INIT, on, always, stay, None) for on in (
        Timer.T_REF_RT, Timer.REPAIR, Code.RESEND_DATA, Code.NEWTR_BC, Code.ABORT_BC_RQU)),
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
    Arrow(C.W_RSP,   Code.RING_INFO,    a_later_ring_goes_on, go_and_join,  C.INIT),
    Arrow(C.W_RSP,   Code.RING_INFO,    always,                  stay,                C.W_RSP),
    Arrow(WORKING,   Code.REF_INV_BC,   it_is_worthier,            yield_as_coordinator, C.INIT),
    Arrow(WORKING,   Code.REF_INV_BC,   always,                  deny,                None),
    Arrow(WORKING,   Code.TOKEN_BC,     a_later_ring_goes_on,    go_and_join,         C.INIT),
    Arrow(C.W_RSP,   Code.TOKEN_BC,     always,                  stay,                C.W_RSP),
    Arrow(C.W_REF,   Code.TOKEN_BC,     it_is_my_ring,       resume,              C.INIT),
    Arrow(C.W_REF,   Code.TOKEN_BC,     always,                  stay,                C.W_REF),
    Arrow(C.W_REF,   Code.NEWTR_ACK,    it_is_my_ring,       note_ack,            C.W_REF),
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
