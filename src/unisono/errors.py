"""The errors of Unisono: whose mistake it was, and what to do about it."""

from __future__ import annotations


class UnisonoError(Exception):
    """The root of everything Unisono raises on purpose."""


class Misuse(UnisonoError, ValueError):
    """The caller's mistake. The text is one line that says what to write instead."""


class BadPacket(UnisonoError, ValueError):
    """Bytes that are not a packet of ours; `reason` is the name under which the drop is counted."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class BadTrace(UnisonoError, ValueError):
    """A file or directory that is not a trace, or not all of one."""


class Stopped(UnisonoError):
    """The member is no longer in the group; `reason` says why."""

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
    """What is asked for is past, and nobody keeps it any more."""


class TooLarge(Misuse):
    """A message over the group's limit; the text names the limit."""


class StorageFailed(UnisonoError):
    """A record could not be made safe; the text says why, and what to do."""
