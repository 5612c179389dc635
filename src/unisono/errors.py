"""The exceptions of Unisono."""

from __future__ import annotations


class UnisonoError(Exception):
    """Base of all exceptions that Unisono raises."""


class Misuse(UnisonoError, ValueError):
    """The caller's mistake. The message is one line: what is wrong, and what to write instead."""


class BadPacket(UnisonoError, ValueError):
    """Bytes that are not a valid packet; `reason` names the counter of the drop."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class BadTrace(UnisonoError, ValueError):
    """A file or directory that is not a complete trace."""


class Stopped(UnisonoError):
    """The member is no longer in the group, for this `reason`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Refused(Stopped):
    """The group does not admit this member: its options do not fit, its name is taken, or the group
    is full."""


class Undelivered(Stopped):
    """The member stopped before its message came back: whether the others deliver it is not known
    here. `Rejoined.lost` has its content."""


class Forgotten(UnisonoError):
    """The requested history is no longer retained by any member."""


class TooLarge(Misuse):
    """A message over the group's limit, which the message names."""


class StorageFailed(UnisonoError):
    """A record could not be written; the message says why, and what to do."""
