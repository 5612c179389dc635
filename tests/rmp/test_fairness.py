"""[RMP-18] Senders at full speed get equal shares."""

from __future__ import annotations

from tests.bench.wires import Wire
from unisono.core import Multicast
from unisono.model import Service

SECONDS = 10
BATCH = [bytes(1000)] * 64


def jain(shares: list[int]) -> float:
    """Jain's fairness index: 1 if all are equal, 1/n if one has everything."""
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


def test_three_senders_at_full_speed_share_equally() -> None:
    wire = Wire("rmp", 3)
    # A packet takes long here, so that ten seconds are few steps.
    wire.step_us = 10_000
    end_us = wire.now_us + SECONDS * 1_000_000
    event = Multicast(BATCH, Service.AGREED)
    while wire.now_us < end_us:
        for index, core in enumerate(wire.cores):
            if core.send_credit() > 2 * sum(map(len, BATCH)):
                wire.step(index, event)
        wire.pump()
    shares = list(wire.cores[0].held().values())
    assert len(shares) == 3 and min(shares) > 1000
    assert jain(shares) >= 0.95


def test_an_unfair_share_would_be_seen() -> None:
    assert jain([5, 5, 5]) == 1
    assert jain([10, 1, 1]) < 0.5
