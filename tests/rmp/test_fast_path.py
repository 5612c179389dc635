"""The fast path of a site without the token equals its slow twin, which concludes every step."""

from __future__ import annotations

import pytest

from tests.rmp.stage import DELAY_US, Stage
from unisono.core import Deliver, Effect, Expired, Multicast, Received, Send, Stabilize
from unisono.model import Burst, Resilient, Service, ServiceLevel
from unisono.protocols.rmp.core import Rmp
from unisono.protocols.rmp.labels import label
from unisono.protocols.rmp.state import Timer
from unisono.sim.plan import Plan
from unisono.sim.run import run as simulate


@pytest.mark.parametrize(("nodes", "seed"), [(3, 1), (5, 2), (9, 3)])
def test_a_run_with_the_fast_path_is_the_run_without(
    nodes: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(protocol="rmp", nodes=nodes, seed=seed, faults="chaos", messages=60)
    taken: list[bool] = []
    fast = Rmp._only_delivers

    def noted(core: Rmp, *service: ServiceLevel) -> bool:
        taken.append(fast(core, *service))
        return taken[-1]

    monkeypatch.setattr(Rmp, "_only_delivers", noted)
    quick = simulate(plan)
    monkeypatch.setattr(Rmp, "_only_delivers", lambda core, *service: False)
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


@pytest.mark.parametrize("sender", ["a", "b"])
def test_a_token_site_first_delivers_what_needs_no_order(sender: str) -> None:
    """Its own, and another's: the ACK is made in the next step. What needs it has it at once."""
    for level, acks in ((Service.FIFO, 0), (Service.AGREED, 1)):
        stage = Stage("a", "b", "c")
        holder = stage.cores["a"]
        while holder._token_machine.state.name != "TOKEN_SITE":
            stage.run(1_000)
        found = stage.cores[sender].step(stage.now_us, Multicast([b"lone"], level))
        if sender == "b":
            (sent,) = [effect.packets for effect in found if isinstance(effect, Send)]
            source = stage.cores["b"].me.address
            found = holder.step(stage.now_us, Received(source, [bytes(sent[0])]))
        assert any(isinstance(effect, Deliver) for effect in found)
        assert labels(found).count("ack") == acks
        found = holder.step(stage.now_us, Expired(Timer.TOKEN))
        assert labels(found).count("ack") == 1 - acks


def labels(effects: list[Effect]) -> list[str]:
    sent = [packet for e in effects if isinstance(e, Send) for packet in e.packets]
    return [label(bytes(packet)).split()[0] for packet in sent]


@pytest.mark.parametrize("level", [Service.UNRELIABLE, Service.RELIABLE])
def test_packets_that_are_read_together_bring_what_they_bring_one_by_one(level: Service) -> None:
    stage = Stage("a", "b", "c")
    texts = [b"%04d" % number for number in range(3000)]
    found = stage.cores["a"].step(stage.now_us, Multicast(texts, level))
    (burst,) = [e.packets for e in found if isinstance(e, Send) and isinstance(e.packets, Burst)]
    source = stage.cores["a"].me.address
    packets = [bytes(packet) for packet in burst]
    assert len(packets) > 5
    for held_up in (packets, packets[3:] + packets[:3], packets[::-1]):
        stage = Stage("a", "b", "c")
        joined = Burst(memoryview(b"".join(held_up)), burst.size)
        if all(len(packet) == burst.size for packet in held_up[:-1]):
            stage.step("b", Received(source, joined))
            stage.step("c", Received(source, list(held_up)))
            assert stage.delivered("b") == stage.delivered("c") != []


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
