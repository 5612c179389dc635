"""Each (name, incarnation) gets one code."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unisono.trace.columns import Codes
from unisono.trace.row_groups import incarnation_codes

NAMES = ("a", "b", "", None)
incarnations = st.sampled_from((-1, 0, 1, 2, 3, 1 << 31, (1 << 32) + 1, 1 << 62, (1 << 63) - 1))


@given(st.lists(st.tuples(st.integers(-1, 3), incarnations), max_size=30))
def test_each_incarnation_has_one_code_however_large_its_number(
    rows: list[tuple[int, int]],
) -> None:
    codes = Codes()
    index = np.array([at for at, _ in rows], np.int32)
    numbers = np.array([number for _, number in rows], np.int64)
    found = incarnation_codes(index, NAMES, numbers, codes)
    for (at, number), code in zip(rows, found.tolist(), strict=True):
        name = NAMES[at] if at >= 0 else None
        if name and number >= 0:
            assert codes.incarnations.names[code] == (name, number)
        else:
            assert code == -1


def test_many_names_with_different_incarnations() -> None:
    codes, count = Codes(), 1100
    index = np.arange(count, dtype=np.int32)
    numbers = index.astype(np.int64) << 40
    found = incarnation_codes(index, [f"n{n}" for n in range(count)], numbers, codes)
    assert [codes.incarnations.names[code] for code in found] == [
        (f"n{n}", n << 40) for n in range(count)
    ]
