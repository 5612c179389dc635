"""The tables of a run, written by the task that reads it: bronze and silver from checked rows.

There is one reader. As `trace.scan` reads a row group, the rows that may be judged are written to
`bronze/events`, `silver/sends`, `silver/views` and `silver/packets`; `silver/deliveries` needs the
sends of all members and is written when they are judged. Nothing is exchanged between tasks.

The column `life` is `name#incarnation`; `source` is the incarnation that sent a message, which
(source, number) identifies. A history is one run of one protocol and group; laws do not span two.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unisono.spark.schemas import DELIVERIES, EVENTS, PACKETS, SENDS, VIEW_ROWS
from unisono.trace.checks import VIEWS
from unisono.trace.columns import DELIVER, KIND, SEND, WORK_CODE_MIN, Array, Codes
from unisono.trace.parquet import SCHEMA

if TYPE_CHECKING:
    from unisono.laws.columnar.history import HistoryColumns
    from unisono.spark.partitioned import RunWriter
    from unisono.trace.row_groups import RowGroup

VIEW_CODES: Final = [KIND[name] for name in VIEWS]


@dataclass
class _OpenTurn:
    """What an incarnation knows since its last send."""

    own: int | None = None
    """The number of its last message."""
    sources: Array = field(default_factory=lambda: np.empty(0, np.int64))
    numbers: Array = field(default_factory=lambda: np.empty(0, np.int64))
    views: int = 0


class RowTables:
    """Writes the rows of a run while they are read."""

    def __init__(self, writer: RunWriter, codes: Codes) -> None:
        self._writer = writer
        self._codes = codes
        self._counts: dict[int, int] = {}
        """By incarnation, the rows written."""
        self._turns: dict[tuple[tuple[str, str], int], _OpenTurn] = {}

    def add(self, table: pa.Table, group: RowGroup, code: int, rows: Array | None) -> None:
        """The rows of a mask (None: all) of one incarnation."""
        index = np.arange(len(group.kind)) if rows is None else np.flatnonzero(rows)
        first = self._counts.get(code, 0)
        self._counts[code] = first + len(index)
        steps = np.zeros(len(group.kind), np.int64)
        steps[index] = first + np.arange(len(index))
        mine = table.set_column(SCHEMA.get_field_index("step"), "step", pa.array(steps))
        self._writer.write("bronze/events", EVENTS, mine if rows is None else mine.take(index))
        for history, some in group.by_history(rows):
            turn = self._turns.setdefault((history, code), _OpenTurn())
            index = np.arange(len(group.kind)) if some is None else np.flatnonzero(some)
            self._add_silver(mine, group, code, index, turn)

    def _add_silver(
        self, table: pa.Table, group: RowGroup, code: int, index: Array, turn: _OpenTurn
    ) -> None:
        kind, life = group.kind[index], self._codes.key(code)
        if len(views := index[np.isin(kind, VIEW_CODES)]):
            rows = _with_life(table.take(views), life)
            places = turn.views + 1 + np.arange(len(views), dtype=np.int32)
            turn.views += len(views)
            transitional = group.kind[views] == KIND["transitional"]
            rows = rows.append_column("place", pa.array(places))
            rows = rows.append_column("transitional", pa.array(transitional))
            self._writer.write("silver/views", VIEW_ROWS, rows)
        if len(work := index[kind >= WORK_CODE_MIN]):
            rows = _with_life(table.take(work), life)
            self._writer.write("silver/packets", PACKETS, rows)
        self._add_sends(table, group, code, index[(kind == SEND) | (kind == DELIVER)], turn)

    def _add_sends(
        self, table: pa.Table, group: RowGroup, code: int, index: Array, turn: _OpenTurn
    ) -> None:
        """With `message`, the message's name, and `parents`, its direct causal predecessors: the
        sender's previous message, and of each other source the one with the highest number that
        the sender delivered since then. With fifo delivery their closure is the causal past."""
        is_send = group.kind[index] == SEND
        source, number = group.events.source[index], group.events.number[index]
        turns = np.cumsum(is_send) - is_send
        others = ~is_send & (source != code)
        sends = index[is_send]
        own = np.append(turn.own or 0, number[is_send])
        owned = np.arange(len(own)) if turn.own is not None else np.arange(1, len(own))
        # The previous message, what was open before these rows, and what was delivered in them.
        turns = np.concatenate([owned, np.zeros(len(turn.sources), np.int64), turns[others]])
        source = np.concatenate([np.full(len(owned), code), turn.sources, source[others]])
        number = np.concatenate([own[owned], turn.numbers, number[others]])
        rank, keys = self._ranks()
        order = np.argsort(turns * len(keys) + rank[source], kind="stable")
        turns, source, number = turns[order], source[order], number[order]
        starts = np.flatnonzero(np.diff(turns * len(keys) + rank[source], prepend=-1))
        number = np.maximum.reduceat(number, starts) if len(starts) else number
        turns, source = turns[starts], source[starts]
        is_open = turns == len(sends)
        turn.own = int(own[-1]) if len(sends) or turn.own is not None else None
        turn.sources, turn.numbers = (each[is_open & (source != code)] for each in (source, number))
        if not len(sends):
            return
        offsets = np.searchsorted(turns, np.arange(len(sends) + 1)).astype(np.int32)
        named = _named(keys, source[~is_open], number[~is_open])
        life = self._codes.key(code)
        rows = _with_life(table.take(sends), life)
        rows = rows.append_column("level", pa.array(group.events.level[sends].astype(np.int32)))
        rows = rows.append_column("probe", pa.array(group.events.probe[sends]))
        message = _named(keys, np.full(len(sends), code), group.events.number[sends])
        rows = rows.append_column("message", message)
        rows = rows.append_column("parents", pa.ListArray.from_arrays(pa.array(offsets), named))
        self._writer.write("silver/sends", SENDS, rows)

    def _ranks(self) -> tuple[Array, list[str]]:
        """By source the place of its messages' names in their order; and the sources' names."""
        keys = self._codes.keys
        rank = np.empty(len(keys), np.int64)
        rank[sorted(range(len(keys)), key=lambda at: f"{keys[at]}:")] = np.arange(len(keys))
        return rank, keys


def _named(keys: list[str], source: Array, number: Array) -> pa.Array:
    """The names of messages, `name#incarnation:number`."""
    senders = pa.array(keys, pa.string()).take(pa.array(source))
    return pc.binary_join_element_wise(senders, pa.array(number).cast(pa.string()), ":")


def _with_life(rows: pa.Table, life: str) -> pa.Table:
    return rows.append_column("life", _constant(life, rows.num_rows))


def _constant(value: str, count: int) -> pa.Array:
    return _coded(np.zeros(count, np.int32), [value])


def _coded(index: Array, names: list[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(
        pa.array(index.astype(np.int32)), pa.array(names, pa.string())
    )


# -- deliveries ------------------------------------------------------------------------------------


def write_deliveries(writer: RunWriter, data: HistoryColumns) -> None:
    """With the message's first send. `view_step` is the step of the incarnation's last view before;
    `as_sent`, whether a send has its size and digest, is null when no send is known."""
    first = np.full(data.count, -1, np.int64)
    sent_us, digest, size = np.zeros((3, data.count), np.int64)
    again: dict[int, set[tuple[int, int]]] = {}
    for member in data.members:
        events, rows = member.events, member.sends[::-1]
        slots = member.slot[rows]
        first[slots] = events.pos[rows]
        sent_us[slots], digest[slots] = events.t_us[rows], events.digest[rows]
        size[slots] = events.size[rows]
        for row in rows[first[slots] != events.pos[rows]].tolist():
            form = int(events.size[row]), int(events.digest[row])
            again.setdefault(int(member.slot[row]), set()).add(form)
    history = data.history
    for member in data.members:
        events, rows = member.events, member.deliveries
        if not len(rows):
            continue
        slots = member.slot[rows]
        unsent = first[slots] < 0
        same = (size[slots] == events.size[rows]) & (digest[slots] == events.digest[rows])
        for at in np.flatnonzero(~same & np.isin(slots, list(again))).tolist():
            form = int(events.size[rows[at]]), int(events.digest[rows[at]])
            same[at] = form in again[int(slots[at])]
        views, epoch = member.view_epochs
        steps = np.array([*(row.step for row in views), 0], np.int64)
        t_us = events.t_us[rows]
        columns: dict[str, Any] = {
            "protocol": _constant(history.protocol, len(rows)),
            "group": _constant(history.group, len(rows)),
            "life": _constant(member.key, len(rows)),
            "node": _constant(member.rows.name[0], len(rows)),
            "step": events.pos[rows],
            "t_us": t_us,
            "view": _coded(events.view[rows], data.codes.views.names),
            "view_step": pa.array(steps[epoch], mask=epoch < 0),
            "source": _coded(events.source[rows], data.codes.keys),
            "number": events.number[rows],
            "seq": pa.array(events.seq[rows], mask=~events.has_seq[rows]),
            "service": _coded(events.service[rows], data.codes.services.names),
            "level": events.level[rows].astype(np.int32),
            "size": events.size[rows],
            "digest": events.digest[rows],
            "sent_us": pa.array(sent_us[slots], mask=unsent),
            "latency_us": pa.array(t_us - sent_us[slots], mask=unsent),
            "as_sent": pa.array(same, mask=unsent),
        }
        writer.write("silver/deliveries", DELIVERIES, pa.table(columns))
