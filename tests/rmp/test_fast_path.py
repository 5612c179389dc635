"""The fast path of a site without the token equals its slow twin, which concludes every step."""

from __future__ import annotations

import pytest

from tests.rmp.stage import DELAY_US, Stage
from unisono.core import Stabilize
from unisono.model import Resilient, Service
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


@pytest.mark.parametrize("level", [Service.UNRELIABLE, Service.RELIABLE, Service.FIFO])
def test_a_lone_message_that_needs_no_order_waits_for_nothing(level: Service) -> None:
    """One packet, sent in the step of the call and delivered in the step in which it arrives."""
    stage = Stage("a", "b", "c")
    for sender in "abc":  # Whoever of them has the token.
        stage.run(137_000)
        began_us, before = stage.now_us, {name: len(stage.payloads(name)) for name in "abc"}
        stage.multicast(sender, b"lone", service=level)
        assert len(stage.payloads(sender)) == before[sender] + 1
        stage.run(DELAY_US)
        assert all(len(stage.payloads(name)) == before[name] + 1 for name in "abc")
        sent = [what for at, who, what in stage.packets if who == sender and at == began_us]
        assert [what.split()[0] for what in sent if not what.startswith("ack")] == [
            "best-effort" if level == Service.UNRELIABLE else "data"
        ]


@pytest.mark.parametrize("names", ["abc", "abcdefgh"])
def test_a_lone_resilient_message_is_stable_after_one_rotation(names: str) -> None:
    """Nobody lets the token rest: each site proves at once what it holds, and only once."""
    stage = Stage(*names)
    stage.run(137_000)
    began_us = stage.now_us
    stage.multicast("b", b"lone", service=Resilient(Resilient.ALL))
    stage.run((len(names) + 1) * DELAY_US)
    assert len(stage.only("b", Stabilize)) == 1
    stage.run(50_000)
    acks = [who for at, who, what in stage.packets if at >= began_us and what.startswith("ack")]
    assert len(acks) < 2 * len(names)
