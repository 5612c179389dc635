"""Protocol work of an incarnation: packets, repairs and possessions of the token, where traced."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from unisono.protocols import specs
from unisono.spark.links import COLUMNS, Presence, links_of
from unisono.trace.columns import KIND, WORK_CODE_MIN, Array, Codes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from unisono.trace.row_groups import RowGroup

PACKETS: Final = [KIND["packet_out"], KIND["packet_in"]]
COUNTED: Final = {KIND[name]: name for name in ("nak", "repair", "drop")}
"""Rows of these kinds have a count and a reason."""
HistoryName = tuple[str, str]


class WorkCounts(dict[tuple[tuple[str, str], int], "Work"]):
    """By history and incarnation; a reader of rows."""

    def add(self, table: pa.Table, group: RowGroup, code: int, rows: Array | None) -> None:
        if not (group.kind >= WORK_CODE_MIN).any():
            return
        for history, mask in group.by_history(rows):
            wanted = group.kind >= WORK_CODE_MIN
            mine = np.flatnonzero(wanted if mask is None else mask & wanted)
            if len(mine):
                self.setdefault((history, code), Work()).add(table, group, mine, history[0])

    def links(self, history: HistoryName, codes: Codes) -> Iterator[dict[str, Any]]:
        """The links of a group; none where packets were not traced."""
        tables: list[pa.Table] = []
        present = []
        for (mine, code), work in self.items():
            if mine == history and work.packets:
                node = codes.incarnations.names[code][0]
                packets = pa.concat_tables(work.packets)
                names = pa.repeat(pa.scalar(node), packets.num_rows)
                tables.append(packets.add_column(0, "node", names))
                t_us = packets.column("t_us").to_numpy()
                present.append(Presence(node, int(t_us.min()), int(t_us.max())))
        if tables:
            yield from links_of(pa.concat_tables(tables).combine_chunks(), present)

    def causes(self, history: HistoryName, codes: Codes) -> Iterator[dict[str, Any]]:
        """Why a node asked for, sent again or dropped what, and how often."""
        counts: Counter[tuple[str, str, str]] = Counter()
        for (mine, code), work in self.items():
            if mine == history:
                node = codes.incarnations.names[code][0]
                for (kind, reason), count in work.causes.items():
                    counts[node, kind, reason] += count
        for (node, kind, reason), count in sorted(counts.items()):
            yield {"node": node, "kind": kind, "reason": reason, "count": count}


@dataclass(slots=True)
class Work:
    """Protocol work of an incarnation, where it was traced."""

    packets_out: int = 0
    octets_out: int = 0
    causes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By kind and reason."""
    turns_us: list[int] = field(default_factory=list)
    """When it had the token."""
    packets: list[pa.Table] = field(default_factory=list)

    def add(self, table: pa.Table, group: RowGroup, rows: Array, protocol: str) -> None:
        kind, columns = group.kind[rows], group.columns
        sent = kind == KIND["packet_out"]
        self.packets_out += int(sent.sum())
        self.octets_out += int(columns.ints("size", 0)[rows][sent].sum(dtype=np.int64))
        if len(packets := rows[np.isin(kind, PACKETS)]):
            mine = table.take(packets).select(COLUMNS.names[1:])
            self.packets.append(mine.cast(pa.schema(list(COLUMNS)[1:])))
        index, details = columns.strings("detail")
        number = columns.ints("number", 0)
        for at in rows[np.isin(kind, list(COUNTED))].tolist():
            reason = details[index[at]] if index[at] >= 0 else None
            self.causes[COUNTED[int(group.kind[at])], reason or ""] += int(number[at])
        spec = specs().get(protocol)
        arrows = rows[kind == KIND["arrow"]]
        if spec is not None and spec.token_arrow and len(arrows):
            is_turn = [re.search(spec.token_arrow, each or "") is not None for each in details]
            turns = arrows[np.array([*is_turn, False])[index[arrows]]]
            self.turns_us += group.events.t_us[turns].tolist()

    def count(self, kind: str) -> int:
        return sum(count for (mine, _), count in self.causes.items() if mine == kind)


def work_measures(parts: Sequence[Work]) -> dict[str, Any]:
    apart = sorted(b - a for part in parts for a, b in pairwise(part.turns_us))
    return {
        "packets_out": sum(part.packets_out for part in parts),
        "octets_out": sum(part.octets_out for part in parts),
        "retransmissions": sum(part.count("repair") for part in parts),
        "naks": sum(part.count("nak") for part in parts),
        "drops": sum(part.count("drop") for part in parts),
        "token_rotation_p50_us": apart[(len(apart) + 1) // 2 - 1] if apart else None,
        "token_rotation_max_us": apart[-1] if apart else None,
    }
