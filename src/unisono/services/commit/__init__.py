"""Commit without a centre, as a function of the group's order: no clock, no socket, no task."""

from __future__ import annotations

from unisono.services.commit.participant import Participant
from unisono.services.commit.replica import Prepare, Replica
from unisono.services.commit.table import (
    Aborted,
    Action,
    Begun,
    Committed,
    Decided,
    Last,
    Limits,
    Outcome,
    Table,
)
from unisono.services.commit.words import Ask, BadWord, Vote, read, written

__all__ = [
    "Aborted",
    "Action",
    "Ask",
    "BadWord",
    "Begun",
    "Committed",
    "Decided",
    "Last",
    "Limits",
    "Outcome",
    "Participant",
    "Prepare",
    "Replica",
    "Table",
    "Vote",
    "read",
    "written",
]
