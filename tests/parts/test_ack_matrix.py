"""The acknowledgment matrix equals its slow twin."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from unisono.parts.ack_matrix import AckMatrix

SIZE = 3
MEMBER = st.integers(0, SIZE - 1)
INDEX = st.integers(0, 6)
ACKS = st.lists(INDEX, min_size=SIZE, max_size=SIZE)


@given(st.lists(st.one_of(st.tuples(MEMBER, ACKS), st.tuples(MEMBER, MEMBER, INDEX)), max_size=40))
def test_the_floor_is_the_least_that_any_member_holds(steps: list[tuple[object, ...]]) -> None:
    matrix, rows = AckMatrix(SIZE), [[0] * SIZE for _ in range(SIZE)]
    for member, *what in steps:
        assert isinstance(member, int)
        match what:
            case [list() as acks]:
                matrix.raise_row(member, acks)
                rows[member] = list(map(max, rows[member], acks))
            case [int() as sender, int() as index]:
                matrix.raise_one(member, sender, index)
                rows[member][sender] = max(rows[member][sender], index)
        assert [list(matrix.row(each)) for each in range(SIZE)] == rows
        assert matrix.floor == list(map(min, zip(*rows, strict=True)))
        assert matrix.total == sum(matrix.floor)
        assert matrix.floor_of((0, 2)) == tuple(map(min, zip(rows[0], rows[2], strict=True)))
