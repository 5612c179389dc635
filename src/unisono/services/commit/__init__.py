"""Commit without a centre, as a function of the group's order: no clock, no socket, no task."""

from __future__ import annotations

from unisono.services.commit.participant import Participant
from unisono.services.commit.replica import Duty, Prepare, Replica, Say
from unisono.services.commit.table import (
    Aborted,
    Action,
    Asked,
    Begun,
    Committed,
    Decided,
    Last,
    Limits,
    Outcome,
    Table,
)
from unisono.services.commit.words import Ask, BadWord, Notice, Vote, read, written

__all__ = [
    "Aborted",
    "Action",
    "Ask",
    "Asked",
    "BadWord",
    "Begun",
    "Committed",
    "Decided",
    "Duty",
    "Last",
    "Limits",
    "Notice",
    "Outcome",
    "Participant",
    "Prepare",
    "Replica",
    "Say",
    "Table",
    "Vote",
    "read",
    "written",
]
