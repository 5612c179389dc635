"""Sends and deliveries of one incarnation as numpy columns, with integer codes for names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from unisono.trace.checks import LEVELS
from unisono.trace.record import MESSAGE_KINDS, PROBE, WORK_KINDS, Row

Array: TypeAlias = npt.NDArray[Any]
Value = TypeVar("Value")

KIND: Final = {name: code for code, name in enumerate(MESSAGE_KINDS + WORK_KINDS)}
SEND, DELIVER = KIND["send"], KIND["deliver"]
CONTROL_KINDS: Final = frozenset(MESSAGE_KINDS) - {"send", "deliver"}
"""Rows that an incarnation has few of: views, receipts, ends. They are kept as rows."""

RELIABLE, FIFO, CAUSAL = LEVELS["reliable"], LEVELS["fifo"], LEVELS["causal"]
AGREED, SAFE = LEVELS["agreed"], LEVELS["safe"]
FLOORS: Final = range(FIFO, SAFE + 1)
"""Levels with an order."""

NUMBER_MAX: Final = 2**63 - 1
NUMBER_MIN: Final = -(2**63)


class CodeTable(dict[Value, int]):
    """Consecutive codes, assigned as values are looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[Value] = []

    def __missing__(self, value: Value) -> int:
        code = self[value] = len(self.names)
        self.names.append(value)
        return code


@dataclass
class Codes:
    incarnations: CodeTable[tuple[str, int]] = field(default_factory=CodeTable)
    services: CodeTable[str] = field(default_factory=CodeTable)
    views: CodeTable[str] = field(default_factory=CodeTable)

    def __len__(self) -> int:
        """The number of incarnations."""
        return len(self.incarnations)

    def key(self, code: int) -> str:
        """`name#incarnation`."""
        name, incarnation = self.incarnations.names[code]
        return f"{name}#{incarnation}"

    @property
    def keys(self) -> list[str]:
        return [self.key(code) for code in range(len(self))]

    def message(self, source: Any, number: Any) -> str:
        """`name#incarnation:number`."""
        return f"{self.key(int(source))}:{int(number)}"

    def source(self, key: str) -> int:
        """The code of `name#incarnation`, -1 for an unknown one."""
        name, _, incarnation = key.rpartition("#")
        return self.incarnations.get((name, int(incarnation)), -1)


@dataclass(slots=True)
class EventColumns:
    """Sends and deliveries in order, as columns of one length."""

    pos: Array
    """The step that the row is judged by."""
    send: Array
    """True for a send, false for a delivery."""
    source: Array
    number: Array
    service: Array
    level: Array
    size: Array
    digest: Array
    seq: Array
    has_seq: Array
    t_us: Array
    probe: Array
    view: Array

    def __len__(self) -> int:
        return len(self.pos)

    def columns(self) -> tuple[Array, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def take(self, rows: Any) -> EventColumns:
        """The rows of a mask, a slice or an index."""
        return EventColumns(*(column[rows] for column in self.columns()))

    def row(
        self, at: int, incarnation: tuple[str, int], codes: Codes, history: tuple[str, str]
    ) -> Row:
        """One row, as the in-process laws read it."""
        sender, sender_incarnation = codes.incarnations.names[int(self.source[at])]
        return Row(
            *history,
            *incarnation,
            step=int(self.pos[at]),
            t_us=int(self.t_us[at]),
            kind="send" if self.send[at] else "deliver",
            view=codes.views.names[int(self.view[at])],
            sender=sender,
            sender_incarnation=sender_incarnation,
            number=int(self.number[at]),
            seq=int(self.seq[at]) if self.has_seq[at] else None,
            service=codes.services.names[int(self.service[at])],
            size=int(self.size[at]),
            digest=int(self.digest[at]),
            detail=PROBE if self.probe[at] else None,
        )


_TYPES: Final = (
    *(np.int64, np.bool_, np.int32, np.int64, np.int16, np.int8),
    *(np.int32, np.int64, np.int64, np.bool_, np.int64, np.bool_, np.int32),
)


def concatenated(parts: list[EventColumns]) -> EventColumns:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return EventColumns(*(np.empty(0, kind) for kind in _TYPES))
    columns = zip(*(part.columns() for part in parts), strict=True)
    return EventColumns(*(np.concatenate(column) for column in columns))


class ChunkStats(NamedTuple):
    """What a chunk of rows holds, by source."""

    sources: Array
    low: Array
    """The smallest number sent or delivered."""
    high: Array
    first: Array
    """The first number delivered, 0 for none."""
    last: Array
    delivered: Array
    """By floor, the largest number delivered with that level or above, 0 for none."""
    own: int
    """The largest number sent with level causal or above."""
    seq: int
    """The largest sequence number delivered, `NUMBER_MIN` for none."""


def stats_of(events: EventColumns) -> ChunkStats:
    order = np.argsort(events.source, kind="stable")
    source, number = events.source[order], events.number[order]
    delivered, level = ~events.send[order], events.level[order]
    starts = np.flatnonzero(np.diff(source, prepend=source[0] - 1))
    first, last = np.zeros((2, len(starts)), np.int64)
    delivered_source, delivered_number = source[delivered], number[delivered]
    if len(delivered_source):
        begins = np.flatnonzero(np.diff(delivered_source, prepend=delivered_source[0] - 1))
        at = np.searchsorted(source[starts], delivered_source[begins])
        first[at] = delivered_number[begins]
        last[at] = delivered_number[np.append(begins[1:], len(delivered_source)) - 1]
    return ChunkStats(
        source[starts],
        np.minimum.reduceat(number, starts),
        np.maximum.reduceat(number, starts),
        first,
        last,
        _largest_by_floor(np.where(delivered, number, 0), level, starts),
        int(events.number[events.send & (events.level >= CAUSAL)].max(initial=0)),
        max_seq(events, ~events.send),
    )


def _largest_by_floor(number: Array, level: Array, starts: Array) -> Array:
    weakest = int(level.min())
    found: list[Array] = []
    for floor in FLOORS:
        if found and floor <= weakest:
            found.append(found[-1])
        else:
            found.append(np.maximum.reduceat(np.where(level >= floor, number, 0), starts))
    return np.array(found)


def max_seq(events: EventColumns, rows: Array) -> int:
    """The largest sequence number of the rows of a mask, `NUMBER_MIN` for none."""
    return int(events.seq[rows & events.has_seq].max(initial=NUMBER_MIN))


class SeqRegression(NamedTuple):
    """An ordered delivery whose sequence number is not above the one before."""

    source: int
    number: int
    seq: int
    last: int


def seq_regressions(
    events: EventColumns, ordered: Array, last: int | None
) -> tuple[int | None, list[SeqRegression]]:
    """The ordered deliveries whose sequence number is not above the one before, which for the first
    of them is `last`; and the last sequence number."""
    rows = ordered[events.has_seq[ordered]]
    if not len(rows):
        return last, []
    seq = events.seq[rows]
    before = np.append(seq[:1] if last is None else last, seq[:-1])
    regressed = np.flatnonzero(seq <= before)
    if last is None:
        regressed = regressed[regressed > 0]
    columns = (events.source[rows], events.number[rows], seq, before)
    found = [SeqRegression(*(int(column[at]) for column in columns)) for at in regressed.tolist()]
    return int(seq[-1]), found
