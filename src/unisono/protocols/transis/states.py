"""The states and timers of a member."""

from __future__ import annotations

from enum import auto
from typing import Final

from unisono.fsa import Named


class MemberState(Named):
    OUTSIDE = auto()
    """Before `Join`."""
    SUGGEST = auto()
    """The first stage: suggests a membership set, until all in it suggest the same."""
    AGREE = auto()
    """The second stage: all of the set exchange what they hold, until all hold the same."""
    REGULAR = auto()
    """In a configuration."""
    DONE = auto()


class Timer(Named):
    ALIVE = auto()
    """Nothing was sent for a while: say that I am alive, and what I hold [TRA-4]."""
    SEND = auto()
    """The delay of flow control is over [TRA-11]."""
    NAK = auto()
    """What is missing is still missing."""
    LOOK = auto()
    """Look for silent members."""
    MEMBERSHIP = auto()
    """Repeat the suggestion, or what was agreed; see who does not answer."""


# As constants: looking one up in its class takes ten times as long, and each step uses these.
ALIVE: Final = Timer.ALIVE
NAK: Final = Timer.NAK

OUTSIDE, SUGGEST, AGREE, REGULAR, DONE = MemberState
INSIDE: Final = (SUGGEST, AGREE, REGULAR)
CHANGING: Final = (SUGGEST, AGREE)
