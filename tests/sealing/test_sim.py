"""Every protocol keeps its laws with sealed packets, under the same faults."""

from __future__ import annotations

import pytest

from tests.sealing import stage as stage  # Skips without the package.
from unisono import protocols
from unisono.sim import Plan, run


@pytest.mark.parametrize("protocol", sorted(protocols.specs()))
@pytest.mark.parametrize("faults", ["loss", "chaos"])
def test_the_laws_hold_with_sealed_packets(protocol: str, faults: str) -> None:
    outcome = run(Plan(protocol=protocol, seed=5, nodes=4, messages=80, faults=faults, sealed=True))
    assert not outcome.broken, outcome.violations
    assert outcome.counts["seal.met"] >= 12, "each met each"


def test_a_sealed_run_is_the_same_run_again() -> None:
    first, again = (run(Plan(protocol="ring", seed=9, messages=40, sealed=True)) for _ in range(2))
    assert (first.steps, first.counts) == (again.steps, again.counts)
