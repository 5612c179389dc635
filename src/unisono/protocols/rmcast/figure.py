"""The states of a member as a table of arrows.

The paper prints three algorithms and no figure; this is the diagram that its text describes, with
the additions that it leaves open.
"""

from __future__ import annotations

from typing import Final

from unisono.core import Captured, Congested, Join, Leave, Multicast, Restart, Unreachable
from unisono.fsa import Arrow, Figure, always, impossible, stay
from unisono.protocols.rmcast.admission import Sponsor
from unisono.protocols.rmcast.delivery import Delivery
from unisono.protocols.rmcast.ending import Ending
from unisono.protocols.rmcast.failure import Failures
from unisono.protocols.rmcast.heartbeats import Heartbeats
from unisono.protocols.rmcast.joining import Joiner
from unisono.protocols.rmcast.leaving import Leaving
from unisono.protocols.rmcast.merging import Merging
from unisono.protocols.rmcast.ordering import Ordering
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
from unisono.protocols.rmcast.repair import Repair
from unisono.protocols.rmcast.send_queue import SendQueue
from unisono.protocols.rmcast.state_transfer import StateTransfer
from unisono.protocols.rmcast.states import (
    CATCHING_UP,
    DONE,
    INSIDE,
    LEAVING,
    MEMBER,
    OUTSIDE,
    SEEKING,
    Timer,
)

CURRENT: Final = (MEMBER, LEAVING)
"""It has the group's state."""
STAYING: Final = (CATCHING_UP, MEMBER)

# fmt: off
FIGURE: Final = Figure("rmcast", start=OUTSIDE, arrows=(
    #     from         on              when                     do                     to
    Arrow(OUTSIDE,     Join,           always,                  Joiner.seek,           SEEKING),
    Arrow(SEEKING,     Timer.SEEK,     always,                  Joiner.seek,           SEEKING),
    Arrow(SEEKING,     Timer.FOUND,    always,                  Joiner.found,          MEMBER),
    Arrow(SEEKING,     Seek,           Joiner.defers_to,        Joiner.await_founder,  SEEKING),
    Arrow(SEEKING,     Seek,           always,                  stay,                  SEEKING),
    Arrow(SEEKING,     Announce,       always,                  Joiner.await_founder,  SEEKING),
    Arrow(SEEKING,     Welcome,        Joiner.brings_state,     Joiner.enter,          CATCHING_UP),
    Arrow(SEEKING,     Welcome,        Joiner.is_mine,          Joiner.enter,          MEMBER),
    Arrow(SEEKING,     Welcome,        always,                  stay,                  SEEKING),
    Arrow(SEEKING,     Refuse,         Joiner.is_rejected,      Ending.give_up,        DONE),
    Arrow(SEEKING,     Refuse,         always,                  Joiner.stay_out,       SEEKING),
    Arrow(SEEKING,     Leave,          always,                  Joiner.withdraw,       DONE),

    Arrow(INSIDE,      None,           Failures.is_doomed,      Ending.stop,           DONE),

    Arrow(CATCHING_UP, StatePiece,     always,                  StateTransfer.take,    CATCHING_UP),
    Arrow(CATCHING_UP, None,           StateTransfer.is_done,   StateTransfer.adopt,   MEMBER),
    Arrow(CATCHING_UP, Leave,          always,                  Ending.abandon,        DONE),

    Arrow(MEMBER,      Multicast,      always,                  SendQueue.multicast,   MEMBER),
    Arrow(MEMBER,      Leave,          always,                  Leaving.start,         LEAVING),

    Arrow(LEAVING,     None,           Leaving.is_handed_over,  Ending.depart,         DONE),
    Arrow(LEAVING,     Timer.LEAVE,    Leaving.others_progress, Leaving.wait_on,       LEAVING),
    Arrow(LEAVING,     Timer.LEAVE,    always,                  Ending.go_unanswered,  DONE),
    Arrow(LEAVING,     Leave,          always,                  stay,                  LEAVING),

    Arrow(INSIDE,      Data,           always,                  Ordering.take,         None),
    Arrow(INSIDE,      Beat,           always,                  Repair.answer,         None),
    Arrow(INSIDE,      Timer.BEAT,     always,                  Heartbeats.beat,       None),
    Arrow(INSIDE,      Timer.ASK,      always,                  Repair.ask_again,      None),
    Arrow(INSIDE,      Timer.PROBE,    always,                  Heartbeats.probe,      None),
    Arrow(INSIDE,      Unreachable,    always,                  Failures.doubt,        None),
    Arrow(INSIDE,      Timer.ANNOUNCE, always,                  Merging.announce,      None),
    Arrow(INSIDE,      Seek,           always,                  Sponsor.consider,      None),
    Arrow(INSIDE,      Announce,       always,                  Merging.weigh,         None),
    Arrow(CURRENT,     StateRequest,   always,                  StateTransfer.give,    None),
    Arrow(CURRENT,     Captured,       always,                  StateTransfer.keep,    None),
    Arrow(INSIDE,      Congested,      always,                  Delivery.hold_back,    None),

    # What is late or not meant for us changes nothing.
    Arrow(CATCHING_UP, StateRequest,   always,                  stay,                  None),
    Arrow(CATCHING_UP, Captured,       always,                  stay,                  None),
    Arrow(CURRENT,     StatePiece,     always,                  stay,                  None),
    Arrow(INSIDE,      Welcome,        always,                  stay,                  None),
    Arrow(INSIDE,      Refuse,         always,                  stay,                  None),
    Arrow(INSIDE,      Timer.SEEK,     always,                  stay,                  None),
    Arrow(INSIDE,      Timer.FOUND,    always,                  stay,                  None),
    Arrow(STAYING,     Timer.LEAVE,    always,                  stay,                  None),
    Arrow(INSIDE,      Join,           always,                  stay,                  None),
    Arrow(INSIDE,      Restart,        always,                  stay,                  None),
    Arrow((CATCHING_UP, LEAVING), Multicast, always, impossible, None),
    *(Arrow(SEEKING, on, always, stay, None) for on in (
        Data, Beat, StatePiece, StateRequest, Captured, Congested, Join, Restart, Unreachable,
        Timer.BEAT, Timer.ASK, Timer.ANNOUNCE, Timer.LEAVE, Timer.PROBE)),
    Arrow((OUTSIDE, SEEKING), Multicast, always, impossible, None),
    *(Arrow(OUTSIDE, on, always, stay, None) for on in (
        Seek, Announce, Welcome, Refuse, Data, Beat, StatePiece, StateRequest, Captured, Congested,
        Restart, Unreachable,
        Timer.SEEK, Timer.FOUND, Timer.BEAT, Timer.ASK, Timer.ANNOUNCE, Timer.LEAVE, Timer.PROBE)),
    Arrow(OUTSIDE,     Leave,          always,                  Ending.depart,         DONE),
    *(Arrow(DONE, on, always, stay, None) for on in (
        Join, Leave, Multicast, Restart, Congested, Captured, Unreachable,
        Seek, Announce, Welcome, Refuse, Data, Beat, StatePiece, StateRequest,
        Timer.SEEK, Timer.FOUND, Timer.BEAT, Timer.ASK, Timer.ANNOUNCE, Timer.LEAVE, Timer.PROBE)),
))
# fmt: on
