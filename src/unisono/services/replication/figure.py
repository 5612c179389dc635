"""[FTO §3, figure 4] The states of a replica and its arrows."""

from __future__ import annotations

from typing import Final

from unisono.fsa import Arrow, Figure, Named, always, discarded, stay
from unisono.services.replication.component import Component
from unisono.services.replication.effects import (
    Interrupted,
    RegularView,
    Submitted,
    TransitionalView,
)
from unisono.services.replication.records import (
    AttemptMessage,
    ForgetMessage,
    GreensMessage,
    LogCheckpoint,
    RedsMessage,
    SentAgainMessage,
    StateMessage,
    UpdatesMessage,
)


class ReplicaState(Named):
    """Where a replica is on the way from one primary component to the next."""

    NON_PRIM = "a component that is not primary"
    EXCHANGE_STATES = "all tell what they know"
    EXCHANGE_ACTIONS = "what some lack is sent again"
    CONSTRUCT = "the attempt is recorded, and not known to be complete"
    REG_PRIM = "the primary component"
    TRANS_PRIM = "the end of the primary component: what comes may not be with all"
    NO = "the end came before the attempt was complete"
    UN = "the attempt was complete at the end: another may have gone on"


NON_PRIM, EXCHANGE_STATES, EXCHANGE_ACTIONS, CONSTRUCT, REG_PRIM, TRANS_PRIM, NO, UN = ReplicaState
EVENTS: Final = (
    RegularView, TransitionalView, Interrupted, Submitted, UpdatesMessage, StateMessage,
    AttemptMessage, GreensMessage, RedsMessage, LogCheckpoint, SentAgainMessage, ForgetMessage,
)  # fmt: skip
EXCHANGING: Final = (EXCHANGE_STATES, EXCHANGE_ACTIONS)
C = Component


# fmt: off
ARROWS: Final = (
    #     from              on                when             do                 to
    Arrow(NON_PRIM,         RegularView,      always,          C.exchange,        EXCHANGE_STATES),
    Arrow(NON_PRIM,         StateMessage,     C.is_later,      C.follow,          EXCHANGE_STATES),
    Arrow(NON_PRIM,         StateMessage,     always,          stay,              NON_PRIM),
    Arrow(NON_PRIM,         ForgetMessage,    C.is_apart_from, C.forget,          EXCHANGE_STATES),
    Arrow(NON_PRIM,         ForgetMessage,    always,          stay,              NON_PRIM),
    Arrow(NON_PRIM,         AttemptMessage,   C.is_left_out,   C.depart,          NON_PRIM),
    Arrow(NON_PRIM,         AttemptMessage,   always,          stay,              NON_PRIM),
    Arrow(NON_PRIM,         UpdatesMessage,   always,          C.take_red,        NON_PRIM),
    Arrow(NON_PRIM,         Submitted,        always,          C.submit,          NON_PRIM),
    Arrow(NON_PRIM,         Interrupted,      always,          C.interrupt,       NON_PRIM),

    Arrow(EXCHANGE_STATES,  StateMessage,     always,          C.note_state,      EXCHANGE_STATES),
    Arrow(EXCHANGE_STATES,  None,             C.all_told,      C.send_again,      EXCHANGE_ACTIONS),
    Arrow(EXCHANGE_ACTIONS, GreensMessage,    always,          C.take_greens,     EXCHANGE_ACTIONS),
    Arrow(EXCHANGE_ACTIONS, LogCheckpoint,    always,          C.take_checkpoint, EXCHANGE_ACTIONS),
    Arrow(EXCHANGE_ACTIONS, RedsMessage,      always,          C.take_reds,       EXCHANGE_ACTIONS),
    Arrow(EXCHANGE_ACTIONS, SentAgainMessage, always,          C.note_sent,       EXCHANGE_ACTIONS),
    Arrow(EXCHANGE_ACTIONS, None,             C.is_quorum,     C.attempt,         CONSTRUCT),
    Arrow(EXCHANGE_ACTIONS, None,             C.is_whole,      C.go_on_apart,     NON_PRIM),
    Arrow(EXCHANGING,       RegularView,      always,          C.exchange,        EXCHANGE_STATES),
    Arrow(EXCHANGING,       TransitionalView, always,          stay,              NON_PRIM),
    Arrow(EXCHANGING,       Interrupted,      always,          C.interrupt,       NON_PRIM),

    Arrow(CONSTRUCT,        AttemptMessage,   always,          C.note_attempt,    CONSTRUCT),
    Arrow(CONSTRUCT,        None,             C.goes_on,       C.begin_primary,   REG_PRIM),
    Arrow(CONSTRUCT,        UpdatesMessage,   C.is_dismissed,  C.depart,          NON_PRIM),
    Arrow(CONSTRUCT,        UpdatesMessage,   always,          stay,              CONSTRUCT),
    Arrow(CONSTRUCT,        TransitionalView, always,          stay,              NO),
    Arrow(CONSTRUCT,        RegularView,      always,          C.leave_attempt,   EXCHANGE_STATES),
    Arrow(CONSTRUCT,        Interrupted,      always,          C.interrupt,       NON_PRIM),

    Arrow(REG_PRIM,         UpdatesMessage,   always,          C.take_green,      REG_PRIM),
    Arrow(REG_PRIM,         Submitted,        always,          C.submit,          REG_PRIM),
    Arrow(REG_PRIM,         None,             C.is_regrouped,  C.leave_primary,   EXCHANGE_STATES),
    Arrow(REG_PRIM,         TransitionalView, always,          stay,              TRANS_PRIM),
    Arrow(REG_PRIM,         RegularView,      always,          C.leave_primary,   EXCHANGE_STATES),
    Arrow(REG_PRIM,         Interrupted,      always,          C.interrupt,       NON_PRIM),

    Arrow(TRANS_PRIM,       UpdatesMessage,   always,          C.take_yellow,     TRANS_PRIM),
    Arrow(TRANS_PRIM,       RegularView,      always,          C.leave_primary,   EXCHANGE_STATES),
    Arrow(TRANS_PRIM,       Interrupted,      always,          C.interrupt,       NON_PRIM),

    Arrow(NO,               AttemptMessage,   always,          C.note_attempt,    NO),
    Arrow(NO,               None,             C.all_attempted, stay,              UN),
    Arrow(NO,               RegularView,      always,          C.leave_attempt,   EXCHANGE_STATES),
    Arrow(NO,               Interrupted,      always,          C.interrupt,       NON_PRIM),

    Arrow(UN,               UpdatesMessage,   C.is_member,     C.install_late,    TRANS_PRIM),
    Arrow(UN,               UpdatesMessage,   always,          stay,              UN),
    Arrow(UN,               RegularView,      always,          C.exchange,        EXCHANGE_STATES),
    Arrow(UN,               Interrupted,      always,          C.interrupt,       NON_PRIM),
)
# fmt: on
FIGURE: Final = Figure(
    "replication", start=NON_PRIM, arrows=(*ARROWS, *discarded(ARROWS, ReplicaState, EVENTS))
)
