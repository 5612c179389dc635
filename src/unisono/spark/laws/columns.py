"""What a life said, as numpy columns: lives and services are small numbers, rows are places."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from unisono.trace.checks import LEVELS, level_of
from unisono.trace.record import MESSAGE_KINDS, PROBE, WORK_KINDS, Row

Array: TypeAlias = npt.NDArray[Any]

KIND_NAMES: Final = MESSAGE_KINDS + WORK_KINDS
KIND: Final = {name: code for code, name in enumerate(KIND_NAMES)}
SEND, DELIVER, STABLE = KIND["send"], KIND["deliver"], KIND["stable"]
FEW: Final = tuple(name for name in MESSAGE_KINDS if name not in ("send", "deliver"))
"""Kinds of rows of which a life has few: they are kept as they are."""

FIFO, CAUSAL = LEVELS["fifo"], LEVELS["causal"]

NUMBER_MAX: Final = 2**63 - 1
NUMBER_MIN: Final = -(2**63)


@dataclass
class Codes:
    """The small numbers that stand for lives, views and services, given as they are met."""

    lives: dict[tuple[str, int], int] = field(default_factory=dict)
    services: dict[str, int] = field(default_factory=dict)
    views: dict[str, int] = field(default_factory=dict)
    installed: list[str] = field(default_factory=list)
    names: list[tuple[str, int]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)

    def life(self, name: str, incarnation: int) -> int:
        code = self.lives.setdefault((name, incarnation), len(self.names))
        if code == len(self.names):
            self.names.append((name, incarnation))
        return code

    def service(self, name: str) -> int:
        code = self.services.setdefault(name, len(self.said))
        if code == len(self.said):
            self.said.append(name)
            self.levels.append(level_of(name))
        return code

    def view(self, name: str) -> int:
        code = self.views.setdefault(name, len(self.installed))
        if code == len(self.installed):
            self.installed.append(name)
        return code

    def key(self, code: int) -> str:
        """`name#incarnation` of a life."""
        name, incarnation = self.names[code]
        return f"{name}#{incarnation}"


@dataclass(slots=True)
class EventColumns:
    """Sends and deliveries of one life, in its order, as columns of one length."""

    pos: Array
    """The step that the row is judged by."""
    send: Array
    """True of a send, false of a delivery."""
    source: Array
    number: Array
    service: Array
    level: Array
    size: Array
    digest: Array
    seq: Array
    placed: Array
    """Whether it has a place in the total order, which is then `seq`."""
    t_us: Array
    probe: Array
    view: Array

    def __len__(self) -> int:
        return len(self.pos)

    def columns(self) -> tuple[Array, ...]:
        return (
            *(self.pos, self.send, self.source, self.number, self.service, self.level),
            *(self.size, self.digest, self.seq, self.placed, self.t_us, self.probe),
            self.view,
        )

    def take(self, which: Any) -> EventColumns:
        """The rows of a mask, a slice or of places."""
        return EventColumns(*(column[which] for column in self.columns()))

    def row(self, at: int, life: tuple[str, int], codes: Codes, history: tuple[str, str]) -> Row:
        """One of them as the plain laws read it."""
        sender, incarnation = codes.names[int(self.source[at])]
        return Row(
            protocol=history[0],
            group=history[1],
            node=life[0],
            incarnation=life[1],
            step=int(self.pos[at]),
            t_us=int(self.t_us[at]),
            kind="send" if self.send[at] else "deliver",
            view=codes.installed[int(self.view[at])],
            sender=sender,
            sender_incarnation=incarnation,
            number=int(self.number[at]),
            seq=int(self.seq[at]) if self.placed[at] else None,
            service=codes.said[int(self.service[at])],
            size=int(self.size[at]),
            digest=int(self.digest[at]),
            detail=PROBE if self.probe[at] else None,
        )


_TYPES: Final = (
    *(np.int64, np.bool_, np.int32, np.int64, np.int16, np.int8),
    *(np.int32, np.int64, np.int64, np.bool_, np.int64, np.bool_, np.int32),
)


def nothing_said() -> EventColumns:
    return EventColumns(*(np.empty(0, kind) for kind in _TYPES))


def joined(parts: list[EventColumns]) -> EventColumns:
    """One after the other."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return nothing_said()
    columns = zip(*(part.columns() for part in parts), strict=True)
    return EventColumns(*(np.concatenate(column) for column in columns))


def numbers_of(said: EventColumns) -> tuple[Any, ...]:
    """By source: the smallest and largest number, the first and last delivered, and the largest
    delivered, as any, as fifo and as causal. The largest number sent as causal, and the largest
    place."""
    order = np.argsort(said.source, kind="stable")
    source, number = said.source[order], said.number[order]
    heard = ~said.send[order]
    level = said.level[order]
    starts = np.flatnonzero(np.diff(source, prepend=source[0] - 1))
    any_level = np.where(heard, number, 0)
    fifo = np.where(heard & (level >= FIFO), number, 0)
    causal = np.where(heard & (level >= CAUSAL), number, 0)
    sent = said.number[said.send & (said.level >= CAUSAL)]
    places = said.seq[~said.send & said.placed]
    first = np.zeros(len(starts), np.int64)
    last = first.copy()
    theirs, heard_number = source[heard], number[heard]
    if len(theirs):
        begins = np.flatnonzero(np.diff(theirs, prepend=theirs[0] - 1))
        at = np.searchsorted(source[starts], theirs[begins])
        first[at] = heard_number[begins]
        last[at] = heard_number[np.append(begins[1:], len(theirs)) - 1]
    return (
        source[starts],
        np.minimum.reduceat(number, starts),
        np.maximum.reduceat(number, starts),
        first,
        last,
        np.maximum.reduceat(any_level, starts),
        np.maximum.reduceat(fifo, starts),
        np.maximum.reduceat(causal, starts),
        int(sent.max()) if len(sent) else 0,
        int(places.max()) if len(places) else NUMBER_MIN,
    )
