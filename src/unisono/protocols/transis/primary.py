"""[TRA-18] Which component may operate: at most one, by a static majority or by dynamic voting.

With dynamic voting the next primary component has a majority of the last one, so it follows the
processes that are left. Forming one is not atomic: a member may be cut off when some have formed it
and others have not. So all members first record that they attempt it. A component then needs a
majority of the last one formed that any of its members knows, and of each later one that one of
them has attempted.

Static:  the majority of all processes.
Dynamic: Yeger Lotem, Keidar, Dolev, *Dynamic Voting for Consistent Primary Components*, PODC 1997.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from unisono.errors import BadPacket
from unisono.fields import U64
from unisono.layout import decode, encode
from unisono.model import Buffer
from unisono.spec import ProcessRole

NUMBER_MAX: Final = 1 << 62
"""Of a primary component."""
ATTEMPTS_MAX: Final = 12
"""Attempts that a member remembers without knowing whether they succeeded; with so many it takes
part in no further one. They are over as soon as a primary component forms with it."""


class PrimarySession(NamedTuple):
    """A primary component: its number, higher than that of those before it, and its processes."""

    number: U64
    names: tuple[str, ...]


class PrimaryMemory(NamedTuple):
    """What a process has to remember, also through a crash."""

    highest: U64 = 0
    """The highest number that it has seen."""
    formed: PrimarySession | None = None
    """The last component that it knows to have formed."""
    attempts: tuple[PrimarySession, ...] = ()
    """Later ones that it has attempted, and that may have formed."""


class PrimaryReport(NamedTuple):
    """What each member tells in a new configuration; and again when it has recorded the attempt."""

    is_attempt: bool
    memory: PrimaryMemory


class Remember(NamedTuple):
    """Persist this, before anything else is done."""

    memory: PrimaryMemory


class Tell(NamedTuple):
    """Multicast this in the configuration, in its agreed order."""

    report: PrimaryReport


class FormPrimary(NamedTuple):
    """The configuration is the primary component from here on."""

    session: PrimarySession


Step: TypeAlias = Remember | Tell | FormPrimary


def has_majority(names: Collection[str], previous: Sequence[str]) -> bool:
    """Whether these are more than half of the previous ones, or half of them with the first."""
    common = len(set(previous).intersection(names))
    return 2 * common > len(previous) or (2 * common == len(previous) and min(previous) in names)


def may_operate(part: Sequence[ProcessRole], forgetful: bool) -> bool:
    """Whether these, cut off for good, must be able to send."""
    count = max((role.options.get("sites", 0) for role in part), default=0)
    if any(role.options.get("dynamic", 0) for role in part):
        # A few of them may be a majority of the last primary component, and most may be none.
        return sum(role.inside and role.durable for role in part) >= count and not forgetful
    return not count or 2 * sum(role.inside for role in part) > count


class PrimaryVoting:
    """One process's part in dynamic voting. A configuration's reports come in one order to all that
    stay together in it."""

    def __init__(self, name: str, process_count: int) -> None:
        self._name = name
        self._process_count = process_count
        """All processes that there are: the first primary component has a majority of them."""
        self.memory = PrimaryMemory()
        self._names: tuple[str, ...] = ()
        self._told: dict[str, PrimaryMemory] = {}
        self._attempt: PrimarySession | None = None
        self._attempted: set[str] = set()

    def restore(self, records: Iterable[bytes]) -> None:
        """The records of earlier incarnations, oldest first; the last whole one counts."""
        for record in records:
            try:
                self.memory = decode(PrimaryMemory, record)
            except BadPacket:
                continue

    def begin(self, names: Iterable[str]) -> list[Step]:
        """A configuration begins."""
        self._names = tuple(sorted(set(names)))
        self._told, self._attempt, self._attempted = {}, None, set()
        return [Tell(PrimaryReport(False, self.memory))]

    def take(self, name: str, report: PrimaryReport) -> list[Step]:
        """A member of the configuration, perhaps this one, told this."""
        if name not in self._names:
            return []
        if not report.is_attempt:
            if self._attempt is not None:
                return []
            self._told[name] = report.memory
            return self._vote() if len(self._told) == len(self._names) else []
        if self._attempt is None or report.memory.highest != self._attempt.number:
            return []
        self._attempted.add(name)
        return self._form() if len(self._attempted) == len(self._names) else []

    def _vote(self) -> list[Step]:
        memories = list(self._told.values())
        known = [memory.formed for memory in memories if memory.formed is not None]
        formed = max(known, key=lambda session: session.number, default=None)
        attempts = self._open_attempts(formed)
        if formed is None:
            may = 2 * len(self._names) > self._process_count
        else:
            may = has_majority(self._names, formed.names)
        if not may or not all(has_majority(self._names, each.names) for each in attempts):
            return []
        if len(attempts) >= ATTEMPTS_MAX:
            return []
        number = max(memory.highest for memory in memories) + 1
        remembered = [*attempts, *([formed] if formed is not None else [])]
        names = {*self._names, *(name for session in remembered for name in session.names)}
        if number > NUMBER_MAX or len(names) > self._process_count:
            return []
        self._attempt = PrimarySession(number, self._names)
        self.memory = PrimaryMemory(number, formed, (*attempts, self._attempt))
        return [Remember(self.memory), Tell(PrimaryReport(True, self.memory))]

    def _open_attempts(self, formed: PrimarySession | None) -> list[PrimarySession]:
        """Those of the members that may have succeeded after this one formed. One fails if a member
        of it is here and never attempted it: it never will."""
        last = formed.number if formed is not None else 0
        found: dict[tuple[str, ...], PrimarySession] = {}
        for memory in self._told.values():
            for each in memory.attempts:
                if each.number <= last:
                    continue
                if any(
                    name in each.names and told.highest < each.number
                    for name, told in self._told.items()
                ):
                    continue
                found[each.names] = max(each, found.get(each.names, each))
        return sorted(found.values())

    def _form(self) -> list[Step]:
        assert self._attempt is not None
        self.memory = PrimaryMemory(self._attempt.number, self._attempt)
        # In this order: what a record calls formed has been told to an application.
        return [FormPrimary(self._attempt), Remember(self.memory)]


def read_report(content: Buffer) -> PrimaryReport:
    """Another member's; or `BadPacket`."""
    return decode(PrimaryReport, content)


def write_memory(memory: PrimaryMemory) -> bytes:
    return encode(memory)


def write_report(report: PrimaryReport) -> bytes:
    return encode(report)
