"""The states of the four machines: three each, as in the paper."""

from __future__ import annotations

from enum import auto

from unisono.fsa import Named


class SendState(Named):
    INIT = auto()
    """No ring, or it is being reformed."""
    NORMAL = auto()
    """All expected turns have arrived; a holder sends."""
    WAITACK = auto()
    """The turn is sent; the next one is expected."""


class ReceiveState(Named):
    INIT = auto()
    NORMAL = auto()
    RESEND = auto()
    """A turn is missing, and is requested."""


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
    """Has promised; waits for the new token ring."""
    W_RSU = auto()
    """Has accepted the new ring; waits for RESUME."""
