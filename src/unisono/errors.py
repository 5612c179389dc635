"""The exceptions of Unisono."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


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


class WrongKey(Refused):
    """Members of the group are there whose packets this one cannot read, or that cannot read its
    own: the keys differ."""


class Undelivered(Stopped):
    """The member stopped before its message came back: whether the others deliver it is not known
    here. `Rejoined.lost` has its content."""


class NotResilient(UnisonoError):
    """The message is delivered, but will not be as resilient as its service requires: too few of
    the members that can hold it are left. Some may hold it all the same."""


class ClosedGroup(UnisonoError):
    """A message was sent to `groups` that accept messages of their members only, and its sender is
    none: they do not deliver it."""

    def __init__(self, groups: Sequence[str]) -> None:
        names = ", ".join(groups)
        super().__init__(f"closed to those who are not members: {names}; join to send there")
        self.groups = tuple(groups)


class Forgotten(UnisonoError):
    """The requested history is no longer retained by any member."""


class TooLarge(Misuse):
    """A message over the group's limit, which the message names."""


class NotHeld(Misuse):
    """A lock is released that this process does not hold."""


class LockLost(UnisonoError):
    """This process no longer holds the lock: another member may."""

    def __init__(self, number: int | str, reason: str) -> None:
        super().__init__(
            f"lock {number} is lost: {reason}; stop what it protects, acquire it again"
        )
        self.number = number
        self.reason = reason


class Denied(UnisonoError):
    """The group did not grant a request; the message says why."""


class Diverged(Misuse):
    """Replicas that applied the same updates have different states: the message names the method,
    and this replica takes no further part."""


class StorageFailed(UnisonoError):
    """A record could not be written; the message says why, and what to do."""


def check_option_names(
    protocol: str, names: Iterable[str], known: Iterable[str], others: Iterable[str] = ()
) -> None:
    """`Misuse` names the first that is not an option of the protocol. `others` are names that the
    caller takes with every protocol."""
    known, others = tuple(known), tuple(others)
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known + others, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            more = f"; with every protocol: {', '.join(others)}" if others else ""
            own = ", ".join(known) or "none"
            raise Misuse(f"{protocol} has no option {name!r}{hint}; it has: {own}{more}")
