"""Atomic commit without a coordinator, as a pure function of the total order."""

from __future__ import annotations

from unisono.services.commit.messages import (
    BadCommitMessage,
    CommitRequest,
    Notice,
    Vote,
    encoded,
    read,
)
from unisono.services.commit.participant import Participant
from unisono.services.commit.replica import Duty, Prepare, Replica, SendMessage
from unisono.services.commit.table import (
    Aborted,
    Action,
    ActionLimits,
    Begun,
    Committed,
    Decided,
    Last,
    Outcome,
    Requested,
    Table,
)

__all__ = [
    "Aborted",
    "Action",
    "ActionLimits",
    "BadCommitMessage",
    "Begun",
    "CommitRequest",
    "Committed",
    "Decided",
    "Duty",
    "Last",
    "Notice",
    "Outcome",
    "Participant",
    "Prepare",
    "Replica",
    "Requested",
    "SendMessage",
    "Table",
    "Vote",
    "encoded",
    "read",
]
