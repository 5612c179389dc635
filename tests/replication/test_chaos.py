"""The laws of replication under chaos: cuts, crashes of one and of all at any write, exclusions,
checkpoints, members that come, go and are lost for ever."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable

import pytest

from tests.replication.world import ReplicaWorld
from unisono.services.replication.engine import ReplicaEngine

SEEDS = int(os.environ.get("UNISONO_REPLICATION_SEEDS") or 10_000)


def run(seed: int, engine: type[ReplicaEngine] = ReplicaEngine) -> tuple[list[str], Counter[str]]:
    """What is broken, and the arrows walked at the end of the run."""
    world = ReplicaWorld(
        seed,
        "abc" if seed % 2 else "abcde",
        "xy" if seed % 4 > 1 else "",
        engine,
    )
    world.loss = 0.5 if seed % 5 == 0 else 0.0
    for each in world.replicas.values():
        each.start()
    world.part([world.alive()])
    world.run(600, 0.02 if seed % 3 else 0.06)
    broken = [f"seed {seed}: {each.law} {each.detail}" for each in world.heal()]
    walked: Counter[str] = Counter()
    for each in world.replicas.values():
        if each.engine is not None:
            walked.update(each.engine.machine.walked)
    return broken, walked


def broken(seeds: Iterable[int], engine: type[ReplicaEngine] = ReplicaEngine) -> list[str]:
    return [each for seed in seeds for each in run(seed, engine)[0]]


# In 168 a member is taken out that the next primary component needs; in 170 and 5,000,238 states
# are exchanged again in one view, since the members have changed. In 2,900,612 and 2,900,744 one
# that is taken out stops before another has gone on without it; in 2,900,488 the members change
# between what is stable and its report; in 2,900,915 a newcomer alone knows what a lost member
# had ordered; in 8,000,535 the last primary component was one member, and that one is lost; in
# 8,003,475 only a lost member had told some positions; in 8,006,124 one that was taken out and
# added again, first meets one that has not heard of the second.
KNOWN = (
    *(168, 170, 5_000_238, 2_900_488, 2_900_612, 2_900_744, 2_900_915),
    *(8_000_535, 8_003_475, 8_006_124),
)


def test_the_laws_hold_over_some_seeds_of_chaos() -> None:
    assert not broken([*range(30), *KNOWN])


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_the_laws_hold_over_ten_thousand_seeds_of_chaos() -> None:
    assert not broken(range(SEEDS))
