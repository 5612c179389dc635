"""Whether several files of one incarnation agree."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

import numpy as np

from unisono.trace.columns import Codes
from unisono.trace.row_groups import DictionaryPart, read_group


def contradicted(paths: Iterable[Path], among: Collection[int], codes: Codes) -> set[int]:
    """Those of these incarnations of which a file has another row for a step than the files before
    it, in the order of their names. A step without a row there was quarantined, and contradicts
    nothing. Only hashes of rows are kept, so a long trace will do."""
    first: dict[int, dict[int, set[int]]] = {code: {} for code in among}
    last = dict.fromkeys(among, -1)
    found: set[int] = set()
    for path in paths:
        ends = dict(last)
        for table in DictionaryPart(path).tables():
            group = read_group(table, codes)
            wanted = np.isin(group.incarnation, list(among))
            at = np.flatnonzero(wanted if group.bad is None else wanted & ~group.bad)
            rows = zip(*(column.to_pylist() for column in table.take(at).columns), strict=True)
            steps = zip(group.incarnation[at].tolist(), group.step[at].tolist(), strict=True)
            for (code, step), row in zip(steps, rows, strict=True):
                ends[code] = max(step, ends[code])
                digest, known = hash(str(row)), first[code].get(step)
                if step > last[code]:
                    first[code].setdefault(step, set()).add(digest)
                elif known is not None and digest not in known:
                    found.add(code)
        last = ends
    return found
