"""[TRA-11] How large the network window may be."""

from __future__ import annotations

import pytest

from unisono.protocols.transis.congestion import (
    BURST_PACKETS_MIN,
    FIRST_BYTES,
    LEAST_BYTES,
    SECOND_BYTES,
    STEP_BYTES,
    NetworkWindow,
)
from unisono.protocols.transis.graph import CausalGraph, Vertex

MOST = 1 << 20


def acknowledge(window: NetworkWindow) -> int:
    """All have a whole window; by how much it grew."""
    before = window.nbytes
    window.acknowledged(before, 0)
    return window.nbytes - before


def after_a_loss() -> tuple[NetworkWindow, CausalGraph]:
    window, graph = NetworkWindow(MOST), CausalGraph(2, 0)
    window.lost(graph)
    return window, graph


@pytest.mark.rule("TRA-11")
def test_it_doubles_until_something_is_lost_and_then_grows_step_by_step() -> None:
    window = NetworkWindow(MOST)
    assert window.nbytes == FIRST_BYTES == acknowledge(window)
    window.lost(CausalGraph(2, 0))
    assert window.nbytes == SECOND_BYTES
    assert acknowledge(window) == STEP_BYTES
    for _ in range(MOST):
        if not acknowledge(window):
            break
    assert window.nbytes == MOST


@pytest.mark.rule("TRA-11")
def test_it_halves_once_for_all_losses_of_a_window() -> None:
    window, graph = after_a_loss()
    for index in range(3):
        graph.append(f"a{index}")
    window.lost(graph)
    assert window.nbytes == SECOND_BYTES // 2
    window.lost(graph)
    assert window.nbytes == SECOND_BYTES // 2, "those were under way"
    graph.add(Vertex(1, 1, (3, 0)))
    window.lost(graph)
    assert window.nbytes == max(LEAST_BYTES, SECOND_BYTES // 4)
    for _ in range(9):
        window.new_configuration()
        window.lost(graph)
    assert window.nbytes == LEAST_BYTES


def test_a_window_that_is_not_used_does_not_grow() -> None:
    window, _ = after_a_loss()
    window.acknowledged(1000, 0)
    assert window.nbytes == SECOND_BYTES
    window.acknowledged(1000, SECOND_BYTES)
    assert window.nbytes > SECOND_BYTES


def test_a_burst_is_a_share_of_it() -> None:
    window, _ = after_a_loss()
    assert window.burst_packets(1400) == SECOND_BYTES // 4 // 1400
    assert window.burst_packets(1 << 20) == BURST_PACKETS_MIN
