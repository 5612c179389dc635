"""The states of a member, and its timers."""

from __future__ import annotations

from enum import auto
from typing import Final

from unisono.fsa import Named


class MemberState(Named):
    OUTSIDE = auto()
    """Not asked to join yet."""
    JOINING = auto()
    """Requests admission; a master replica also looks for the other replicas."""
    CATCHING_UP = auto()
    """Admitted, and waiting for the roster and the state: receives, and delivers nothing."""
    MEMBER = auto()
    LEAVING = auto()
    """Sends the rest of its queue and asks to be removed."""
    DONE = auto()


class Timer(Named):
    JOIN = auto()
    """Repeat the join request."""
    STATE = auto()
    """Repeat the request for the roster or the state."""
    HEARTBEAT = auto()
    """The window opens again; what is not settled is advertised, requested or sent again."""
    BEAT = auto()
    """The longest silence of a member: report, look for failures, set the pace."""
    LEAVE = auto()
    """The leave request was not answered."""
    MORE = auto()
    """Deliver what was too much for one step."""


OUTSIDE, JOINING, CATCHING_UP, MEMBER, LEAVING, DONE = MemberState
INSIDE: Final = (CATCHING_UP, MEMBER, LEAVING)
