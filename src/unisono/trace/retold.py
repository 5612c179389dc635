"""A life that several files tell: whether they tell the same."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from unisono.trace.checks import reason_against
from unisono.trace.parquet import ParquetPart
from unisono.trace.record import Row

Name: TypeAlias = tuple[str, int]
"""Of a life: node and incarnation."""


def contradicted(paths: Iterable[Path], lives: Collection[Name]) -> set[Name]:
    """Those of the lives of which a file tells a step otherwise than the files before it, in the
    order of their names, do. What these have no row for was put aside there, and says nothing. Of
    a row is kept what it takes to know it again, so a long life will do."""
    first: dict[Name, dict[int, set[int]]] = {life: {} for life in lives}
    last = dict.fromkeys(lives, -1)
    found: set[Name] = set()
    nodes = pa.array(sorted({node for node, _ in lives}), pa.string())
    for path in paths:
        ends = dict(last)
        for table in ParquetPart(path).tables():
            some = table.filter(pc.is_in(table.column("node"), nodes))
            for fields in zip(*(column.to_pylist() for column in some.columns), strict=True):
                row = Row._make(tuple(v) if isinstance(v, list) else v for v in fields)
                life = (row.node, row.incarnation)
                if life not in first or reason_against(row) is not None:
                    continue
                ends[life] = max(row.step, ends[life])
                told = first[life].get(row.step)
                if row.step > last[life]:
                    first[life].setdefault(row.step, set()).add(hash(row))
                elif told is not None and hash(row) not in told:
                    found.add(life)
        last = ends
    return found
