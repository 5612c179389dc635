"""Commit without a centre, as a function of the group's order: no clock, no socket, no task."""

from __future__ import annotations

from unisono.services.commit.messages import (
    BadCommitMessage,
    CommitRequest,
    Notice,
    Vote,
    read,
    written,
)
from unisono.services.commit.participant import Participant
from unisono.services.commit.replica import Duty, Prepare, Replica, Say
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
    "Say",
    "Table",
    "Vote",
    "read",
    "written",
]
