"""Protocol work of an incarnation: packets, repairs and possessions of the token, where traced."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from unisono.protocols import specs
from unisono.spark.laws.columns import KIND, Array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unisono.spark.laws.reader import RowGroup


@dataclass(slots=True)
class Work:
    """Protocol work of an incarnation, where it was traced."""

    traced: bool = False
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
        self.traced = True
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


def work_measures(parts: Sequence[Work], traced: bool) -> dict[str, Any]:
    """Null where no such row was traced."""
    if not traced:
        return {}
    names = ("packets_out", "octets_out", "retransmissions", "naks", "drops")
    apart = sorted(us for part in parts for us in part.rotations_us)
    return {
        **{name: sum(getattr(part, name) for part in parts) for name in names},
        "token_rotation_p50_us": apart[(len(apart) + 1) // 2 - 1] if apart else None,
        "token_rotation_max_us": apart[-1] if apart else None,
    }
