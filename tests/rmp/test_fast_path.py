"""The fast path of a site without the token equals its slow twin, which concludes every step."""

from __future__ import annotations

import pytest

from unisono.protocols.rmp.core import Rmp
from unisono.sim.plan import Plan
from unisono.sim.run import run as simulate


@pytest.mark.parametrize(("nodes", "seed"), [(3, 1), (5, 2), (9, 3)])
def test_a_run_with_the_fast_path_is_the_run_without(
    nodes: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(protocol="rmp", nodes=nodes, seed=seed, faults="chaos", messages=60)
    taken: list[bool] = []
    fast = Rmp._only_delivers

    def noted(core: Rmp) -> bool:
        taken.append(fast(core))
        return taken[-1]

    monkeypatch.setattr(Rmp, "_only_delivers", noted)
    quick = simulate(plan)
    monkeypatch.setattr(Rmp, "_only_delivers", lambda core: False)
    assert simulate(plan) == quick
    assert any(taken)
