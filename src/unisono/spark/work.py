"""Protocol work of an incarnation: packets, repairs and possessions of the token, where traced."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from unisono.protocols import specs
from unisono.trace.columns import KIND, WORK_CODE_MIN, Array

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from unisono.trace.row_groups import RowGroup


class WorkCounts(dict[tuple[tuple[str, str], int], "Work"]):
    """By history and incarnation; a reader of rows."""

    def add(self, table: pa.Table, group: RowGroup, code: int, rows: Array | None) -> None:
        if not (group.kind >= WORK_CODE_MIN).any():
            return
        for history, mask in group.by_history(rows):
            wanted = group.kind >= WORK_CODE_MIN
            mine = np.flatnonzero(wanted if mask is None else mask & wanted)
            if len(mine):
                self.setdefault((history, code), Work()).add(group, mine, history[0])


@dataclass(slots=True)
class Work:
    """Protocol work of an incarnation, where it was traced."""

    packets_out: int = 0
    octets_out: int = 0
    retransmissions: int = 0
    naks: int = 0
    drops: int = 0
    token_us: int | None = None
    """When it last had the token."""
    rotations_us: list[int] = field(default_factory=list)
    """The times between its successive possessions of the token."""

    def add(self, group: RowGroup, rows: Array, protocol: str) -> None:
        kind, columns = group.kind[rows], group.columns
        number = columns.ints("number", 0)[rows]
        sent = kind == KIND["packet_out"]
        self.packets_out += int(sent.sum())
        self.octets_out += int(columns.ints("size", 0)[rows][sent].sum(dtype=np.int64))
        self.retransmissions += int(number[kind == KIND["repair"]].sum())
        self.naks += int(number[kind == KIND["nak"]].sum())
        self.drops += int(number[kind == KIND["drop"]].sum())
        spec = specs().get(protocol)
        arrows = rows[kind == KIND["arrow"]]
        if spec is None or not spec.token_arrow or not len(arrows):
            return
        index, details = columns.strings("detail")
        is_turn = [re.search(spec.token_arrow, each or "") is not None for each in details]
        turns = arrows[np.array([*is_turn, False])[index[arrows]]]
        for t_us in group.events.t_us[turns].tolist():
            if self.token_us is not None:
                self.rotations_us.append(t_us - self.token_us)
            self.token_us = t_us


def work_measures(parts: Sequence[Work]) -> dict[str, Any]:
    names = ("packets_out", "octets_out", "retransmissions", "naks", "drops")
    apart = sorted(us for part in parts for us in part.rotations_us)
    return {
        **{name: sum(getattr(part, name) for part in parts) for name in names},
        "token_rotation_p50_us": apart[(len(apart) + 1) // 2 - 1] if apart else None,
        "token_rotation_max_us": apart[-1] if apart else None,
    }
