"""Whether several files of one incarnation agree."""

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
"""Node and incarnation."""


def contradicted(paths: Iterable[Path], names: Collection[Name]) -> set[Name]:
    """Those of these incarnations of which a file has another row for a step than the files before
    it, in the order of their names. A step without a row there was quarantined, and contradicts
    nothing. Only hashes of rows are kept, so a long trace will do."""
    first: dict[Name, dict[int, set[int]]] = {name: {} for name in names}
    last = dict.fromkeys(names, -1)
    found: set[Name] = set()
    nodes = pa.array(sorted({node for node, _ in names}), pa.string())
    for path in paths:
        ends = dict(last)
        for table in ParquetPart(path).tables():
            some = table.filter(pc.is_in(table.column("node"), nodes))
            for fields in zip(*(column.to_pylist() for column in some.columns), strict=True):
                row = Row._make(tuple(v) if isinstance(v, list) else v for v in fields)
                name = (row.node, row.incarnation)
                if name not in first or reason_against(row) is not None:
                    continue
                ends[name] = max(row.step, ends[name])
                known = first[name].get(row.step)
                if row.step > last[name]:
                    first[name].setdefault(row.step, set()).add(hash(row))
                elif known is not None and hash(row) not in known:
                    found.add(name)
        last = ends
    return found
