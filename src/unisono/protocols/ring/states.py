"""The four machines' states: three each, as in the paper."""

from __future__ import annotations

from enum import auto

from unisono.fsa import Named


class SendState(Named):
    INIT = auto()
    """No ring, or it is being reformed."""
    NORMAL = auto()
    """All expected turns came; if the token is here, speak."""
    WAITACK = auto()
    """Spoken; the next turn is expected."""


class ReceiveState(Named):
    INIT = auto()
    NORMAL = auto()
    RESEND = auto()
    """A gap shows; what is missing was asked for."""


class CoordinatorState(Named):
    INIT = auto()
    W_RSP = auto()
    """Invited; waits for responses."""
    W_REF = auto()
    """Sent the new ring; waits for acknowledgments."""


class ReformationState(Named):
    INIT = auto()
    """Waits for an invitation."""
    W_TR = auto()
    """Answered one; waits for the new token ring."""
    W_RSU = auto()
    """Has the new ring; waits for the word to resume."""
