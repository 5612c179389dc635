"""Seeds that once failed."""

from __future__ import annotations

import pytest

from unisono.sim import Plan
from unisono.sim.run import run


@pytest.mark.parametrize(
    ("nodes", "seed", "faults"),
    [
        # What waits for a slow reader is held, though its sender is gone from the configuration.
        (4, 125, "mild"),
        # Two members of one configuration reminded each other without end that it is installed.
        (6, 0, "loss"),
        # A newcomer that gave up waiting for the state comes along from nowhere.
        (6, 11, "mild"),
        # A process that hears a later incarnation of its name stops.
        (4, 22, "chaos"),
        # The token rested while somebody had something to send.
        (6, 65, "chaos"),
        # The holder of the token sent one class of messages at a time.
        (5, 71, "chaos"),
        # A process known by its key alone was waited for without end; and a member that had gone on
        # elsewhere, and was still heard, was not missed.
        (3, 1054, "chaos"),
        # Components that merge owe nothing of before: those of the lost, and of one that left.
        (5, 7, "mild"),
        (6, 12, "mild"),
        (4, 1, "chaos"),
        (7, 5, "chaos"),
    ],
)
def test_a_seed_that_once_failed_keeps_every_law(nodes: int, seed: int, faults: str) -> None:
    outcome = run(Plan(protocol="transis", nodes=nodes, seed=seed, faults=faults, messages=120))
    assert not outcome.violations
