"""Seven namespaces: members of a ring are killed, stopped and cut off under load, and their
traces keep every law."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.ring_cluster import (
    NAMES,
    Fault,
    assert_all_laws,
    assert_nothing_is_missing,
    assert_one_majority,
    cluster,
    read,
)
from tests.ring.soaking import soak

pytestmark = [pytest.mark.root, pytest.mark.real, pytest.mark.slow]

SEED = int(os.environ.get("UNISONO_SEED", "1"))
KINDS = ("kill", "pause", "cut")


def drawn(seed: int, names: Sequence[str], count: int, seconds: float) -> list[Fault]:
    """Each kind at least once; faults of one member at one time are of different kinds."""
    dice = random.Random(f"ring/{seed}/{len(names)}/{count}")
    kinds = [KINDS[each % len(KINDS)] for each in range(count)]
    dice.shuffle(kinds)
    slot_s = seconds / count
    found: list[Fault] = []
    for at, kind in enumerate(kinds):
        at_s = (at + dice.random() * 0.5) * slot_s
        for_s = dice.uniform(0.1, 1.2) * slot_s
        busy = {name for each in found if each.until_s > at_s for name in each.names}
        free = [name for name in names if name not in busy] or list(names)
        most = len(free) - 1 if kind == "cut" else 1
        struck = tuple(sorted(dice.sample(free, dice.randint(1, max(most, 1)))))
        found.append(Fault(at_s, min(at_s + for_s, seconds), kind, struck))
    return found


def check(names: Sequence[str], count: int, seconds: float, folder: Path) -> None:
    with cluster(names, folder) as ring:
        ring.play(drawn(SEED, names, count, seconds), seconds)
    history = read(folder / "trace", names)
    assert_all_laws(folder, history)
    messages = assert_nothing_is_missing(history, names)
    views = assert_one_majority(history, len(names))
    lives = history.lives.values()
    rows = sum(len(life.deliveries) for life in lives)
    print(f"{len(lives)} lives, {views} views, {messages} messages, {rows} deliveries")
    assert messages > seconds, "there was a load"
    assert len(lives) > len(names), "a member came back"


def test_a_ring_of_three_outlives_faults(tmp_path: Path) -> None:
    check(NAMES[:3], 4, 16, tmp_path)


@soak
@pytest.mark.timeout(0)
def test_a_ring_of_seven_outlives_two_minutes_of_faults(tmp_path: Path) -> None:
    check(NAMES, 10, 120, tmp_path)
