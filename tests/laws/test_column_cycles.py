"""Messages on a cycle are found as by the transitive closure."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from unisono.laws.columnar.cycles import on_cycles

COUNT = 7


def by_closure(sequences: list[list[int]]) -> list[int]:
    """Messages that are before themselves, by the transitive closure."""
    before = np.zeros((COUNT, COUNT), bool)
    for each in sequences:
        for at, message in enumerate(each):
            before[message, each[at + 1 :]] = True
    for middle in range(COUNT):
        before |= np.outer(before[:, middle], before[middle])
    return np.flatnonzero(before.diagonal()).tolist()


@settings(max_examples=1000)
@given(st.lists(st.lists(st.integers(0, COUNT - 1), unique=True), max_size=4))
def test_cycles_are_found_as_by_closure(sequences: list[list[int]]) -> None:
    columns = [np.array(each, np.int64) for each in sequences]
    assert on_cycles(columns, COUNT).tolist() == by_closure(sequences)


@given(st.permutations(range(COUNT)), st.lists(st.sets(st.integers(0, COUNT - 1)), max_size=5))
def test_parts_of_one_order_have_no_cycle(order: list[int], parts: list[set[int]]) -> None:
    columns = [np.array([each for each in order if each in part], np.int64) for part in parts]
    assert on_cycles(columns, COUNT).tolist() == []


def test_three_sequences_that_agree_pairwise_may_have_a_cycle() -> None:
    columns = [np.array(each, np.int64) for each in ([0, 1], [1, 2], [2, 0], [3, 4, 5, 6])]
    assert on_cycles(columns, COUNT).tolist() == [0, 1, 2]
    columns = [np.array(each, np.int64) for each in ([0, 1, 2, 3], [3, 4], [4, 1])]
    assert on_cycles(columns, COUNT).tolist() == [1, 2, 3, 4]
