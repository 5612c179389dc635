"""Sends and deliveries of one incarnation as numpy columns, with integer codes for names."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from unisono.trace.checks import LEVELS
from unisono.trace.record import MESSAGE_KINDS, PROBE, WORK_KINDS, Row

Array: TypeAlias = npt.NDArray[Any]
Value = TypeVar("Value")

KIND: Final = {name: code for code, name in enumerate(MESSAGE_KINDS + WORK_KINDS)}
WORK_CODE_MIN: Final = len(MESSAGE_KINDS)
"""Protocol work has this code or a larger one."""
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
ROWS_IN_MEMORY_MAX: Final = 8_000_000
"""Larger columns are in files without a name, which the system writes out when memory is short."""


def concatenated(parts: Sequence[EventColumns]) -> EventColumns:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return EventColumns(*(np.empty(0, kind) for kind in _TYPES))
    count = sum(map(len, parts))
    columns = zip(*(part.columns() for part in parts), strict=True)
    return EventColumns(
        *(np.concatenate(column, out=_allocated(count, column[0].dtype)) for column in columns)
    )


def _allocated(count: int, kind: Any) -> Array:
    if count <= ROWS_IN_MEMORY_MAX:
        return np.empty(count, kind)
    with tempfile.TemporaryFile() as file:
        return np.asarray(np.memmap(file, kind, "w+", shape=count))


def is_dense(low: int, high: int, count: int) -> bool:
    """Whether a table of all numbers between these is small."""
    return high - low <= 8 * count + 1024


def distinct(*parts: Array) -> Array:
    """The numbers of all parts in order, each once; where they are dense, without sorting."""
    parts = tuple(part for part in parts if len(part))
    low = min((int(part.min()) for part in parts), default=0)
    high = max((int(part.max()) for part in parts), default=0)
    if not is_dense(low, high, sum(map(len, parts))):
        every = np.sort(np.concatenate(parts))
        found: Array = every[np.append(True, np.diff(every) != 0)]
        return found
    flags = np.zeros(high - low + 1, np.bool_)
    for part in parts:
        flags[part - low] = True
    return np.flatnonzero(flags) + low
