"""The four machines' states: three each, as in the paper."""

from __future__ import annotations

from enum import Enum, auto


class State(Enum):
    __hash__ = object.__hash__  # An enumeration's own goes by its name, and is ten times as slow.


class Send(State):
    INIT = auto()
    """No ring, or it is being reformed."""
    NORMAL = auto()
    """All expected turns came; if the token is here, speak."""
    WAITACK = auto()
    """Spoken; the next turn is expected."""


class Receive(State):
    INIT = auto()
    NORMAL = auto()
    RESEND = auto()
    """A gap shows; what is missing was asked for."""


class Coordinator(State):
    INIT = auto()
    W_RSP = auto()
    """Invited; waits for responses."""
    W_REF = auto()
    """Sent the new ring; waits for acknowledgments."""


class Reformation(State):
    INIT = auto()
    """Waits for an invitation."""
    W_TR = auto()
    """Answered one; waits for the new token ring."""
    W_RSU = auto()
    """Has the new ring; waits for the word to resume."""
