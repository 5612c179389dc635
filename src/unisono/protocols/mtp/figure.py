"""The life cycle of a member as a table of arrows: outside, joining, inside, leaving.

Figures 1 to 3 of the paper are in `agreement.py`; they have no states but their variables.
"""

from __future__ import annotations

from typing import Final

from unisono.core import Captured, Congested, Join, Leave, Multicast, Restart, Unreachable
from unisono.fsa import Arrow, Figure, always, impossible, stay
from unisono.protocols.mtp.admission import MasterAdmission
from unisono.protocols.mtp.coordinator import Coordinator
from unisono.protocols.mtp.fail_stop import FailStop
from unisono.protocols.mtp.heartbeat import Heartbeat
from unisono.protocols.mtp.joining import Joiner
from unisono.protocols.mtp.leaving import Leaver
from unisono.protocols.mtp.member_watch import MemberWatch
from unisono.protocols.mtp.membership import Membership
from unisono.protocols.mtp.ordering import Ordering
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
from unisono.protocols.mtp.repair import Repair
from unisono.protocols.mtp.replicas import Replicas
from unisono.protocols.mtp.send_queue import SendQueue
from unisono.protocols.mtp.state import StateSource, StateTaker
from unisono.protocols.mtp.states import (
    CATCHING_UP,
    DONE,
    INSIDE,
    JOINING,
    LEAVING,
    MEMBER,
    OUTSIDE,
    Timer,
)

PACKETS: Final = (
    Data, Empty, Grant, TokenRequest, Nak, Deny, Report, LeaveRequest, JoinRequest, Expel,
    Confirm, Refuse, StateRequest, StatePiece, ReplicaSeat, Propose, Ack, Stand, Support,
)  # fmt: skip
STARTED: Final = (JOINING, *INSIDE)
STAYING: Final = (CATCHING_UP, MEMBER)
CALLS: Final = (Join, Restart, Leave, Multicast, Congested, Captured, Unreachable)

# fmt: off
FIGURE: Final = Figure("mtp", start=OUTSIDE, arrows=(
    #     from         on               when                do                        to
    Arrow(OUTSIDE,     Restart,         always,             Joiner.remember,          OUTSIDE),
    Arrow(OUTSIDE,     Join,            always,             Joiner.ask_to_join,       JOINING),
    Arrow(OUTSIDE,     Leave,           always,             Leaver.depart,            DONE),

    Arrow(JOINING,     None,            FailStop.must_stop, FailStop.stop,            DONE),
    Arrow(JOINING,     None,            Joiner.has_founded, Joiner.open_web,          MEMBER),
    Arrow(JOINING,     Timer.JOIN,      always,             Joiner.ask_to_join,       JOINING),
    Arrow(JOINING,     Confirm,         Joiner.is_for_me,   Joiner.enter,             CATCHING_UP),
    Arrow(JOINING,     Confirm,         always,             stay,                     JOINING),
    Arrow(JOINING,     Refuse,          Joiner.is_refused,  Joiner.give_up,           DONE),
    Arrow(JOINING,     Refuse,          always,             Joiner.stay_out,          JOINING),
    Arrow(JOINING,     Leave,           always,             Joiner.withdraw,          DONE),

    Arrow(INSIDE,      None,            FailStop.must_stop, FailStop.stop,            DONE),

    Arrow(CATCHING_UP, StatePiece,      always,             StateTaker.take_piece,    CATCHING_UP),
    Arrow(CATCHING_UP, Timer.STATE,     always,             StateTaker.pull_again,    CATCHING_UP),
    Arrow(CATCHING_UP, None,            Joiner.is_current,  Joiner.begin,             MEMBER),
    Arrow(CATCHING_UP, Leave,           always,             Leaver.depart,            DONE),
    Arrow(STAYING,     Refuse,          Joiner.is_outdated, Joiner.give_up,           DONE),
    Arrow(INSIDE,      Refuse,          always,             stay,                     None),

    Arrow(MEMBER,      Multicast,       always,             SendQueue.multicast,      MEMBER),
    Arrow(MEMBER,      Leave,           always,             Leaver.leave,             LEAVING),

    Arrow(LEAVING,     None,            Leaver.is_out,      Leaver.depart,            DONE),
    Arrow(LEAVING,     Timer.LEAVE,     always,             Leaver.go_unanswered,     LEAVING),

    Arrow(INSIDE,      Data,            always,             Ordering.take_data,       None),
    Arrow(INSIDE,      Empty,           always,             Repair.take_empty,        None),
    Arrow(INSIDE,      Grant,           always,             SendQueue.use_token,      None),
    Arrow(INSIDE,      TokenRequest,    always,             Coordinator.take_request, None),
    Arrow(INSIDE,      Nak,             always,             Repair.answer_nak,        None),
    Arrow(INSIDE,      Deny,            always,             Repair.take_denial,       None),
    Arrow(INSIDE,      Report,          always,             MemberWatch.take_report,  None),
    Arrow(INSIDE,      LeaveRequest,    always,             MasterAdmission.let_out,  None),
    Arrow(INSIDE,      JoinRequest,     always,             MasterAdmission.admit,    None),
    Arrow(INSIDE,      Expel,           always,             Membership.be_expelled,   None),
    Arrow(INSIDE,      StateRequest,    always,             StateSource.give_piece,   None),
    Arrow(INSIDE,      Captured,        always,             StateSource.keep_state,   None),
    Arrow(INSIDE,      Congested,       always,             Ordering.hold_back,       None),
    Arrow(INSIDE,      Timer.HEARTBEAT, always,             Heartbeat.heartbeat,      None),
    Arrow(INSIDE,      Timer.MORE,      always,             stay,                     None),
    Arrow(INSIDE,      Unreachable,     always,             Heartbeat.doubt,          None),
    Arrow(JOINING,     Timer.BEAT,      always,             Heartbeat.beat_outside,   None),
    Arrow(INSIDE,      Timer.BEAT,      always,             Heartbeat.beat,           None),
    Arrow(STARTED,     ReplicaSeat,     always,             Replicas.hear_seat,       None),
    Arrow(STARTED,     Propose,         always,             Replicas.hold_proposal,   None),
    Arrow(STARTED,     Ack,             always,             Replicas.count_ack,       None),
    Arrow(STARTED,     Stand,           always,             Replicas.support,         None),
    Arrow(INSIDE,      Support,         always,             Coordinator.take_support, None),

    # Late packets, and those for others.
    Arrow((JOINING, CATCHING_UP, LEAVING, OUTSIDE), Multicast, always, impossible, None),
    Arrow(LEAVING, Leave, always, stay, None),
    Arrow((MEMBER, LEAVING), StatePiece, always, stay, None),
    Arrow((MEMBER, LEAVING), Timer.STATE, always, stay, None),
    Arrow(STAYING, Timer.LEAVE, always, stay, None),
    *(Arrow(INSIDE, on, always, stay, None) for on in (Confirm, Join, Restart, Timer.JOIN)),
    *(Arrow(JOINING, on, always, stay, None) for on in (
        Data, Empty, Grant, TokenRequest, Nak, Deny, Report, LeaveRequest, JoinRequest, Expel,
        StateRequest, StatePiece, Support, Captured, Congested, Join, Restart, Unreachable,
        Timer.STATE, Timer.HEARTBEAT, Timer.LEAVE, Timer.MORE)),
    *(Arrow(OUTSIDE, on, always, stay, None) for on in (
        *PACKETS, Captured, Congested, Unreachable, *Timer)),
    *(Arrow(DONE, on, always, stay, None) for on in (*PACKETS, *CALLS, *Timer)),
))
# fmt: on
