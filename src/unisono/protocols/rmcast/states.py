"""The states and timers of a member."""

from __future__ import annotations

from enum import auto
from typing import Final

from unisono.fsa import Named


class MemberState(Named):
    OUTSIDE = auto()
    """Before `Join`."""
    SEEKING = auto()
    """Looking for the group."""
    CATCHING_UP = auto()
    """A member that waits for the group's state: it receives, and delivers nothing."""
    MEMBER = auto()
    LEAVING = auto()
    """Has multicast its farewell, and retains what others may still need."""
    DONE = auto()


class Timer(Named):
    SEEK = auto()
    """Request to join again."""
    FOUND = auto()
    """No member answered: found the group."""
    BEAT = auto()
    """Algorithm 2: look for silent members, and send heartbeats where due."""
    ASK = auto()
    """Request again what is missing."""
    ANNOUNCE = auto()
    """Announce this component of the group."""
    LEAVE = auto()
    """The farewell was not answered."""
    PROBE = auto()
    """Probe the members that are quiet."""


OUTSIDE, SEEKING, CATCHING_UP, MEMBER, LEAVING, DONE = MemberState
INSIDE: Final = (CATCHING_UP, MEMBER, LEAVING)
