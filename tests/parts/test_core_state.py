"""A core as bytes goes on as the core itself, and hostile bytes raise only `BadPacket`."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from unisono.core import Event
from unisono.errors import BadPacket
from unisono.parts.core_state import CoreReader, CoreWriter
from unisono.protocols.transis.cluster_member import KNOWN, MODULES
from unisono.sim import Outcome, Plan, run
from unisono.sim.process import SimProcess
from unisono.trace.tap import Tap

PLAN = Plan(protocol="transis", nodes=4, seed=4, messages=60, options={"sites": 4})


def run_with_copies(monkeypatch: pytest.MonkeyPatch, every: int) -> tuple[Outcome, list[bytes]]:
    """Now and then a core is replaced by what its bytes are read as."""
    feed, states, count = SimProcess.feed, list[bytes](), 0

    def copying(self: SimProcess, event: Event) -> None:
        nonlocal count
        count += 1
        if count % every == 0 and not self.over and isinstance(self.tap, Tap):
            states.append(CoreWriter(KNOWN).write(self.tap.core))
            self.tap.core = CoreReader(KNOWN, MODULES).read(states[-1])
        feed(self, event)

    with monkeypatch.context() as patch:
        patch.setattr(SimProcess, "feed", copying)
        return run(PLAN), states


def test_a_core_that_was_written_and_read_does_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, states = run_with_copies(monkeypatch, every=40)
    as_ever = run(PLAN)
    assert len(states) > 20
    assert outcome.history is not None
    assert as_ever.history is not None
    assert outcome.history.rows == as_ever.history.rows


def test_a_damaged_state_raises_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    _, states = run_with_copies(monkeypatch, every=400)
    roll = Random(1)
    for _ in range(100):
        damaged = bytearray(roll.choice(states))
        for _ in range(roll.randint(1, 4)):
            damaged[roll.randrange(len(damaged))] = roll.choice(b'0a",[]{:}')
        try:
            CoreReader(KNOWN, MODULES).read(bytes(damaged))
        except BadPacket:
            continue


@pytest.mark.parametrize(
    "node",
    [
        ["object", "subprocess:Popen", {}],
        ["named", "os:system"],
        ["named", "unisono.parts.core_state:json.loads"],
        ["named", "unisono.parts.core_state:sys.modules"],
        ["method", ["list", []], "append"],
        ["object", "unisono.parts.codec:PacketCodec", {"__class__": 1}],
        ["method", ["object", "unisono.parts.codec:PacketCodec", {}], "__init__"],
        ["record", "unisono.parts.codec:PacketCodec", []],
        ["read", []],
        ["_value", 1],
        ["again", 7],
        [],
        {"object": 1},
    ],
)
def test_a_state_makes_nothing_but_parts_of_a_core(node: Any) -> None:
    with pytest.raises(BadPacket):
        CoreReader(KNOWN, MODULES).read(json.dumps(node).encode())
