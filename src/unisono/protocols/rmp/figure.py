"""The state tables of RMP: normal operation, and reformation [RMP §1, §3]."""

from __future__ import annotations

from enum import auto
from typing import Final

from unisono.fsa import Arrow, Figure, Named, always, stay
from unisono.protocols.rmp.packets import TokenAccepted
from unisono.protocols.rmp.reform_packets import Accept, Fault, Proposal, Resume, Sync
from unisono.protocols.rmp.reformation import (
    AttemptLost,
    ListDecided,
    RingReformation,
    Suspected,
)
from unisono.protocols.rmp.state import Timer
from unisono.protocols.rmp.token import TokenRotation


class TokenState(Named):
    NOT_TOKEN_SITE = auto()
    GETTING_PACKETS = auto()
    """The token is for us, and slots are empty."""
    TOKEN_SITE = auto()
    PASSING_TOKEN = auto()
    """Our ACK is out, and the next site has not accepted the token."""


class ReformState(Named):
    NORMAL = auto()
    START_RECOVERY = auto()
    """We are the reform site, and gather synchronization points."""
    SENT_NEW_LIST = auto()
    """We gather confirmations."""
    SLAVE = auto()
    """We have answered a reform site."""
    CONFIRMING = auto()
    """We have its new list, and fetch what it asks us to hold."""
    CONFIRMED = auto()
    ABORT_RECOVERY = auto()
    """The attempt failed; whoever wakes first makes the next one."""


# fmt: off
T, K = TokenState, TokenRotation
TOKEN: Final = Figure("token", start=T.NOT_TOKEN_SITE, arrows=(
    #     from               on             when            do                to
    Arrow(T.NOT_TOKEN_SITE,  None,          K.may_accept,   K.accept,         T.TOKEN_SITE),
    Arrow(T.NOT_TOKEN_SITE,  None,          K.is_named,     K.wait_for_slots, T.GETTING_PACKETS),
    Arrow(T.GETTING_PACKETS, None,          K.is_frozen,    K.stop,           T.NOT_TOKEN_SITE),
    Arrow(T.GETTING_PACKETS, None,          K.may_accept,   K.accept,         T.TOKEN_SITE),
    Arrow(T.TOKEN_SITE,      None,          K.is_frozen,    K.stop,           T.NOT_TOKEN_SITE),
    Arrow(T.TOKEN_SITE,      None,          K.can_order,    K.acknowledge,    T.PASSING_TOKEN),
    Arrow(T.TOKEN_SITE,      None,          K.is_awaited,   K.acknowledge,    T.PASSING_TOKEN),
    Arrow(T.TOKEN_SITE,      Timer.TOKEN,   always,         K.acknowledge,    T.PASSING_TOKEN),
    Arrow(T.PASSING_TOKEN,   None,          K.was_accepted, K.passed,         T.NOT_TOKEN_SITE),
    Arrow(T.PASSING_TOKEN,   Timer.PASS,    always,         K.repeat,         T.PASSING_TOKEN),
    Arrow(tuple(T),          TokenAccepted, always,         K.confirm,        None),
    Arrow((T.NOT_TOKEN_SITE, T.GETTING_PACKETS, T.PASSING_TOKEN), Timer.TOKEN, always, stay, None),
    Arrow((T.NOT_TOKEN_SITE, T.GETTING_PACKETS, T.TOKEN_SITE), Timer.PASS, always, stay, None),
))

R, F = ReformState, RingReformation
FOLLOWING: Final = (R.SLAVE, R.CONFIRMING, R.CONFIRMED)
WAITING: Final = (*FOLLOWING, R.ABORT_RECOVERY)
REFORMATION: Final = Figure("reformation", start=R.NORMAL, arrows=(
    #     from              on            when                do                 to
    Arrow(R.NORMAL,         Suspected,    always,             F.begin,           R.START_RECOVERY),
    Arrow(tuple(R),         Fault,        F.is_highest,       F.answer,          R.SLAVE),
    Arrow(tuple(R),         Fault,        always,             stay,              None),
    Arrow(R.START_RECOVERY, Sync,         F.may_answer,       F.gather,          R.START_RECOVERY),
    Arrow(R.START_RECOVERY, None,         F.is_false_alarm,   F.resume_all,      R.NORMAL),
    Arrow(R.START_RECOVERY, None,         F.others_are_dead,  F.propose,         R.SENT_NEW_LIST),
    Arrow(R.START_RECOVERY, Timer.REFORM, F.may_ask_again,    F.ask_again,       R.START_RECOVERY),
    Arrow(R.START_RECOVERY, Timer.REFORM, F.may_propose,      F.propose,         R.SENT_NEW_LIST),
    Arrow(R.START_RECOVERY, Timer.REFORM, F.may_hope,         F.abort,           R.ABORT_RECOVERY),
    Arrow(R.START_RECOVERY, Timer.REFORM, always,             F.give_verdict,    R.NORMAL),
    Arrow(R.SENT_NEW_LIST,  Accept,       F.is_mine,          F.count,           R.SENT_NEW_LIST),
    Arrow(R.SENT_NEW_LIST,  None,         F.holds_all_myself, F.count_myself,    R.SENT_NEW_LIST),
    Arrow(R.SENT_NEW_LIST,  None,         F.all_confirmed,    F.commit,          R.NORMAL),
    Arrow(R.SENT_NEW_LIST,  Timer.REFORM, F.may_ask_again,    F.propose_again,   R.SENT_NEW_LIST),
    Arrow(R.SENT_NEW_LIST,  Timer.REFORM, F.may_commit,       F.commit,          R.NORMAL),
    Arrow(R.SENT_NEW_LIST,  Timer.REFORM, F.quorum_confirmed, F.commit_first,    R.CONFIRMING),
    Arrow(R.SENT_NEW_LIST,  Timer.REFORM, always,             F.abort,           R.ABORT_RECOVERY),
    Arrow(FOLLOWING,        Proposal,     F.is_highest_list,  F.take_list,       R.CONFIRMING),
    Arrow(R.ABORT_RECOVERY, Proposal,     F.is_highest_list,  F.take_list,       R.CONFIRMING),
    Arrow(R.CONFIRMING,     None,         F.holds_decided,    F.install_decided, R.NORMAL),
    Arrow(R.CONFIRMING,     None,         F.holds_all,        F.accept,          R.CONFIRMED),
    Arrow(R.CONFIRMED,      Timer.REFORM, F.may_ask_again,    F.accept_again,    R.CONFIRMED),
    Arrow(R.SLAVE,          Timer.REFORM, F.may_ask_again,    F.answer_again,    R.SLAVE),
    Arrow(R.CONFIRMING,     Timer.REFORM, F.may_ask_again,    F.wait,            R.CONFIRMING),
    Arrow(FOLLOWING,        Timer.REFORM, always,             F.abort,           R.ABORT_RECOVERY),
    Arrow(WAITING,          Resume,       F.is_for_promise,   F.resume,          R.NORMAL),
    Arrow(WAITING,          AttemptLost,  F.is_hopeless,     F.give_verdict,    R.NORMAL),
    Arrow(WAITING,          AttemptLost,  F.is_for_promise,   F.wait_randomly,   R.ABORT_RECOVERY),
    Arrow(tuple(R),         ListDecided,  F.can_install,      F.install,         R.NORMAL),
    Arrow(R.NORMAL,         ListDecided,  F.is_known,         stay,              None),
    Arrow(tuple(R),         ListDecided,  F.leaves_me_out,    F.stop_excluded,   R.NORMAL),
    Arrow(tuple(R),         ListDecided,  always,             F.catch_up,        R.CONFIRMING),
    Arrow(R.ABORT_RECOVERY, Timer.REFORM, always,             F.begin,           R.START_RECOVERY),
    *(Arrow(state, on, always, stay, None) for state in R for on in
      (Suspected, Sync, Accept, Proposal, Resume, AttemptLost, Timer.REFORM)
      if (state, on) not in {
          (R.NORMAL, Suspected), (R.START_RECOVERY, Timer.REFORM), (R.SENT_NEW_LIST, Timer.REFORM),
          (R.SLAVE, Timer.REFORM), (R.CONFIRMING, Timer.REFORM), (R.CONFIRMED, Timer.REFORM),
          (R.ABORT_RECOVERY, Timer.REFORM)}),
))
# fmt: on
