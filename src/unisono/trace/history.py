"""A history: the traces of all incarnations of one group in one run, arranged for the laws."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeVar

from unisono.trace.checks import LEVELS, level_of
from unisono.trace.record import LEFT, Row

T = TypeVar("T")

ALIVE: Final = "alive"
"""It has no `leave` or `crash` row, and nothing shows that it is gone."""
DEPARTED: Final = "left"
"""It left cleanly."""
STOPPED: Final = "stopped"
"""The protocol made it stop, with a reason."""
CRASHED: Final = "crashed"
"""It has a `crash` row."""
VANISHED: Final = "vanished"
"""It has no end of its own, but was given up by others, came back as another incarnation, or its
file is torn. It crashed, or was expelled and does not know."""

EXCLUDED: Final = "excluded"
"""The cause of a stop: others went on without it."""

CUT: Final = r"[^ ]+#[0-9]{1,19}:[0-9]{1,18}"
"""One entry of a cut; spaces and percent signs in its name are percent-encoded."""

_cut = re.compile(f"{CUT}(?: {CUT})*").fullmatch


class ViewCut(NamedTuple):
    """The cut of a view for one sender: its messages above `after`, up to `upto`, were sent before
    the two were together."""

    step: int
    """Of the view."""
    after: int
    """The largest number that was delivered before it, or an earlier cut's."""
    upto: int


@dataclass(frozen=True)
class IncarnationTrace:
    """The rows of one incarnation, each kind in the order of steps."""

    key: str
    """`name#incarnation`."""
    node: str
    incarnation: int
    sends: tuple[Row, ...]
    deliveries: tuple[Row, ...]
    views: tuple[Row, ...]
    end: str
    events: tuple[Row, ...]
    """Sends, deliveries and views together."""
    rows: tuple[Row, ...] = ()
    """All of them, in order."""

    @property
    def cause(self) -> str:
        """The cause of its stop, from its first `leave` row; empty without one."""
        return self._reasons[0] if self.end == STOPPED else ""

    @property
    def excluded_by(self) -> str:
        """The view of those that excluded it, as its first `leave` row has it; else empty."""
        return self._reason("view ") if self.end == STOPPED else ""

    @property
    def left_with(self) -> str:
        """The view with which the others went on and that it agreed to when it left cleanly, as its
        first `leave` row has it; else empty."""
        return self._reason("view ") if self.end == DEPARTED else ""

    @property
    def excluded_by_founding(self) -> str:
        """The view with which their group was founded, likewise."""
        return self._reason("founding ")

    def _reason(self, kind: str) -> str:
        return next(
            (each.removeprefix(kind) for each in self._reasons if each.startswith(kind)), ""
        )

    @property
    def _reasons(self) -> tuple[str, ...]:
        leave = next((row for row in self.rows if row.kind == "leave"), None)
        return (leave.changes if leave is not None else None) or ("",)

    @property
    def inside(self) -> bool:
        """It has installed a view. One that never did has no obligations."""
        return bool(self.views)

    @property
    def correct(self) -> bool:
        """Inside, and alive or cleanly left at the end."""
        return self.inside and self.end in (ALIVE, DEPARTED)

    @cached_property
    def messages(self) -> tuple[str, ...]:
        """The message of each delivery."""
        return tuple(map(message_of, self.deliveries))

    @cached_property
    def delivered(self) -> frozenset[str]:
        """The messages that it delivered."""
        return frozenset(self.messages)

    @cached_property
    def known(self) -> frozenset[str]:
        """Every incarnation that is in some view of this one."""
        return frozenset(self._met)

    @cached_property
    def final(self) -> frozenset[str]:
        """The members of its last view."""
        return frozenset(self.views[-1].members or ()) if self.views else frozenset()

    @cached_property
    def cuts(self) -> Mapping[str, tuple[ViewCut, ...]]:
        """By sender, the cuts of the views, in their order."""
        found: dict[str, tuple[ViewCut, ...]] = {}
        if not any(map(cut_of, (row.detail for row in self.views))):
            return found
        had: dict[str, int] = {}
        for row in self.events:
            if row.kind == "deliver":
                had[sender_of(row)] = max(number_of(row), had.get(sender_of(row), 0))
            elif row.kind == "view":
                for sender, upto in cut_of(row.detail).items():
                    after = had.get(sender, 0)
                    had[sender] = max(upto, after)
                    found[sender] = (*found.get(sender, ()), ViewCut(row.step, after, upto))
        return found

    def base(self, sender: str, step: int = -1) -> int | None:
        """Where its obligations towards a sender begin, at this step of its own: it owes the
        numbers above. At the first view that has the sender, or names it in its cut, that is what
        the cut has, or 0; later it is what a later cut has. None when it owes nothing: no view
        knows the sender."""
        cuts = self.cuts.get(sender)
        if cuts is None:
            return 0 if sender in self.known else None
        met = self._met.get(sender, sys.maxsize) < cuts[0].step
        base = 0 if met else cuts[0].upto
        return max([base, *(cut.upto for cut in cuts if cut.step <= step)])

    @cached_property
    def _met(self) -> Mapping[str, int]:
        """By member, the step of the first view that has it."""
        return {member: row.step for row in reversed(self.views) for member in row.members or ()}

    def is_outside_order(self, delivery: Row) -> bool:
        """Whether it was delivered without a place by a life whose views have places, and needs
        none, being below agreed: such a message is neither before a view nor after it."""
        if delivery.seq is not None or level_of(delivery.service) >= LEVELS["agreed"]:
            return False
        return bool(self.views) and self.views[0].seq is not None

    def owes(self, sender: str, number: int) -> bool:
        """Whether it should have this message, if others have it: a view of it knows the sender,
        and no cut excuses it."""
        cuts = self.cuts.get(sender)
        if cuts is None:
            return sender in self.known
        return not any(cut.after < number <= cut.upto for cut in cuts)


@dataclass(frozen=True)
class History:
    """One run of one group."""

    run: str
    protocol: str
    group: str
    rows: tuple[Row, ...]
    torn: frozenset[str] = frozenset()
    """Incarnations whose file is torn: their last rows are unknown."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """By incarnation, which rows of it could not be read."""

    @cached_property
    def lives(self) -> dict[str, IncarnationTrace]:
        """By key, in the order of keys."""
        return _lives_of(self.rows, self.torn)

    @cached_property
    def _derived(self) -> dict[Callable[[History], Any], Any]:
        return {}

    def derived(self, compute: Callable[[History], T]) -> T:
        """What a pure function makes of this history, computed once for all laws."""
        if compute not in self._derived:
            self._derived[compute] = compute(self)
        found: T = self._derived[compute]
        return found


def histories_of(
    run: str,
    rows: Iterable[Row],
    torn: frozenset[str] = frozenset(),
    unread: Mapping[str, str] | None = None,
) -> list[History]:
    """The histories of one run: one a protocol and group, in that order."""
    parts: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        parts.setdefault((row.protocol, row.group), []).append(row)
    return [
        History(run, protocol, group, tuple(part), torn, unread or {})
        for (protocol, group), part in sorted(parts.items())
    ]


def life_of(row: Row) -> str:
    """The incarnation that wrote the row."""
    return f"{row.node}#{row.incarnation}"


def sender_of(row: Row) -> str:
    """The incarnation that sent the row's message."""
    return f"{row.sender}#{row.sender_incarnation}"


def number_of(row: Row) -> int:
    assert row.number is not None, "a row about a message has its number"
    return row.number


def message_of(row: Row) -> str:
    """The identity of the row's message: `name#incarnation:number`."""
    return f"{row.sender}#{row.sender_incarnation}:{row.number}"


def cut_of(detail: str | None) -> dict[str, int]:
    """The cut that a view's detail holds; empty when it is a sentence, or nothing."""
    if detail is None or not _cut(detail):
        return {}
    pairs = (entry.rpartition(":") for entry in detail.split(" "))
    return {life.replace("%20", " ").replace("%25", "%"): int(number) for life, _, number in pairs}


def _lives_of(rows: Iterable[Row], torn: frozenset[str]) -> dict[str, IncarnationTrace]:
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(life_of(row), []).append(row)
    plain = {}
    for key in sorted(parts):
        mine = sorted(parts[key], key=lambda row: row.step)
        plain[key] = _life_of(key, mine)
    return {
        key: replace(life, end=VANISHED)
        if life.end == ALIVE and (key in torn or _is_gone(life, plain.values()))
        else life
        for key, life in plain.items()
    }


def _life_of(key: str, rows: list[Row]) -> IncarnationTrace:
    events = tuple(row for row in rows if row.kind in ("send", "deliver", "view"))
    views = tuple(row for row in events if row.kind == "view")
    return IncarnationTrace(
        key=key,
        node=rows[0].node,
        incarnation=rows[0].incarnation,
        sends=tuple(row for row in events if row.kind == "send"),
        deliveries=tuple(row for row in events if row.kind == "deliver"),
        views=views,
        end=_end_of(rows),
        events=events,
        rows=tuple(rows),
    )


def _end_of(rows: list[Row]) -> str:
    """By the first `leave` or `crash` row."""
    for row in rows:
        if row.kind == "crash":
            return CRASHED
        if row.kind == "leave":
            return DEPARTED if row.detail == LEFT else STOPPED
    return ALIVE


def _is_gone(life: IncarnationTrace, others: Iterable[IncarnationTrace]) -> bool:
    """Whether an incarnation without an end row has ended all the same.

    It has when its node has a later incarnation; or when another, alive or cleanly left, has it in
    a view but not in its last one, while it did not do the same to that other: two sides of a
    partition that excluded each other are both alive.
    """
    for other in others:
        if other.node == life.node and other.incarnation > life.incarnation:
            return True
        gave_up = life.key in other.known and life.key not in other.final
        given_up = other.key in life.known and other.key not in life.final
        if gave_up and not given_up and other.end in (ALIVE, DEPARTED):
            return True
    return False
