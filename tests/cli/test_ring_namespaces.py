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
    Exclusion,
    Fault,
    assert_all_laws,
    assert_nothing_is_missing,
    assert_one_majority,
    cluster,
    is_forced,
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


# -- which exclusions are forced -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "forced", "unforced"),
    [
        (Fault(10, 12, "pause", ("b",)), "b", "acdefg"),
        (Fault(10, 12, "kill", ("b",)), "b", "acdefg"),
        (Fault(10, 12, "cut", ("a", "b")), "ab", "cdefg"),
        (Fault(10, 12, "cut", ("a", "b", "c", "d")), "efg", "abcd"),
        (Fault(10, 12, "flap", ("g",)), "g", "abcdef"),
        (Fault(10, 12, "one_way", ("a", "b")), "ab", "cdefg"),
    ],
)
def test_an_exclusion_is_forced_by_a_fault_of_that_member_alone(
    fault: Fault, forced: str, unforced: str
) -> None:
    for name in NAMES:
        assert is_forced(Exclusion(name, 11.0), [fault], NAMES) == (name in forced)
        assert not is_forced(Exclusion(name, 9.0), [fault], NAMES), "it was before"
        assert not is_forced(Exclusion(name, 30.0), [fault], NAMES), "it was long after"
    assert set(forced) | set(unforced) == set(NAMES)


def test_the_exclusion_of_a_blocked_remainder_is_forced() -> None:
    cuts = [Fault(10, 12, "cut", ("a", "b", "c")), Fault(10, 12, "pause", ("g",))]
    assert all(is_forced(Exclusion(name, 11.0), cuts, NAMES) for name in NAMES)
