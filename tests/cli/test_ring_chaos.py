"""Seven namespaces, and minutes of everything that goes wrong at once: kills, half of them of
members without storage, pauses up to 30 s, one-way cuts and flapping links, under load.

`UNISONO_MINUTES` is the duration, `UNISONO_BURNERS` how many processes burn CPU beside it, and
`UNISONO_SEED` which faults. Judged by the laws, and: no place with two messages, no safe message
missing anywhere. Exclusions that no fault explains are counted.

`UNISONO_RUNS` counts them over so many short runs of three members instead, one fault each.

    UNISONO_MINUTES=10 pytest -n 0 -m soak -s tests/cli/test_ring_chaos.py
    UNISONO_RUNS=100 UNISONO_BURNERS=6 pytest -n 0 -m soak -s tests/cli/test_ring_chaos.py
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from tests.cli.ring_cluster import (
    NAMES,
    Cluster,
    Fault,
    assert_all_laws,
    assert_laws,
    assert_nothing_is_missing,
    assert_one_majority,
    cluster,
    exclusions,
    is_forced,
    read,
)
from tests.cli.test_ring_namespaces import SEED
from tests.ring.soaking import soak

pytestmark = [pytest.mark.root, pytest.mark.real, pytest.mark.slow]

MINUTES = float(os.environ.get("UNISONO_MINUTES", "1"))
BURNERS = int(os.environ.get("UNISONO_BURNERS", "0"))
RUNS = int(os.environ.get("UNISONO_RUNS", "0"))
RUN_S = 4.0
DURABLE = frozenset("abcd")
"""The others are killed without storage."""
DOWN_MAX = 3
"""So many of seven are down at once: a majority always remembers."""
KINDS = ("kill", "pause", "cut", "one_way", "flap")


class Forgetful(Cluster):
    """Some have no storage."""

    def options(self, name: str) -> dict[str, object]:
        found = super().options(name)
        if name not in DURABLE:
            del found["stable"]
        return found


def drawn(seed: int, seconds: float) -> list[Fault]:
    """All kinds, in row and overlapping, and never more than a minority down."""
    dice = random.Random(f"chaos/{seed}")
    found: list[Fault] = []
    at_s = 1.0
    while at_s < seconds - 2:
        kind = dice.choice(KINDS)
        lasts_s = dice.uniform(0.3, 30.0 if kind == "pause" else 8.0)
        down = {n for f in found if f.until_s + 3 > at_s and f.kind in KINDS[:2] for n in f.names}
        free = [name for name in NAMES if name not in down]
        if kind in ("kill", "pause"):
            if len(down) < DOWN_MAX:
                names = (dice.choice(free),)
                found.append(Fault(at_s, min(at_s + lasts_s, seconds), kind, names))
        else:
            count = 2 if kind == "one_way" else dice.randint(1, 3)
            names = tuple(dice.sample(NAMES, count))
            found.append(Fault(at_s, min(at_s + lasts_s, seconds), kind, names))
        at_s += dice.uniform(0.5, 6.0)
    return found


def short(seed: int, run: int) -> list[Fault]:
    """One fault of one member, in every fourth run none."""
    dice = random.Random(f"short/{seed}/{run}")
    kind = (*KINDS[:3], "")[run % 4]
    fault = Fault(1.0, 1.0 + dice.uniform(0.2, 2.0), kind, (dice.choice(NAMES[:3]),))
    return [fault] if kind else []


def counted(excluded: int, unforced: int) -> dict[str, int]:
    forced = excluded - unforced
    return {"exclusions": excluded, "forced": forced, "unforced": unforced, "burners": BURNERS}


def check(seed: int, seconds: float, folder: Path) -> None:
    with cluster(NAMES, folder, BURNERS, Forgetful) as ring:
        ring.play(drawn(seed, seconds), seconds)
    history = read(folder / "trace", NAMES)
    messages = assert_nothing_is_missing(history, NAMES)
    assert_all_laws(folder, history)
    views = assert_one_majority(history, len(NAMES))
    found = exclusions(history, ring.began_s, ring.happened)
    unforced = [each for each in found if not is_forced(each, ring.happened, NAMES)]
    report = {
        "seconds": seconds,
        "faults": len(ring.happened),
        "lives": len(history.lives),
        "views": views,
        "messages": messages,
        **counted(len(found), len(unforced)),
    }
    print(json.dumps(report), unforced)
    assert messages > seconds, "there was a load"
    assert not unforced or BURNERS, unforced


def count(runs: int, folder: Path) -> None:
    """Print a line a run, and the sum; any broken law ends it."""
    excluded = unforced = 0
    for run in range(runs):
        here = folder / str(run)
        here.mkdir()
        with cluster(NAMES[:3], here, BURNERS) as ring:
            ring.play(short(SEED, run), RUN_S)
        history = read(here / "trace", NAMES[:3])
        assert_laws(history)
        assert_nothing_is_missing(history, NAMES[:3])
        found = exclusions(history, ring.began_s, ring.happened)
        odd = [each for each in found if not is_forced(each, ring.happened, NAMES[:3])]
        excluded, unforced = excluded + len(found), unforced + len(odd)
        print(f"run {run}: {len(found)} excluded, unforced: {odd}", flush=True)
    print(json.dumps({"runs": runs, **counted(excluded, unforced)}))
    assert not unforced or BURNERS, unforced


def test_faults_of_all_kinds_are_drawn_and_leave_a_majority() -> None:
    for seed in range(30):
        faults = drawn(seed, 600)
        assert {fault.kind for fault in faults} == set(KINDS)
        for fault in faults:
            down = {
                name
                for other in faults
                if other.kind in ("kill", "pause") and other.at_s <= fault.at_s < other.until_s
                for name in other.names
            }
            assert len(down) <= DOWN_MAX


@soak
@pytest.mark.timeout(0)
@pytest.mark.skipif(bool(RUNS), reason="short runs are counted")
def test_a_ring_of_seven_outlives_minutes_of_chaos(tmp_path: Path) -> None:
    check(SEED, MINUTES * 60, tmp_path)


@soak
@pytest.mark.timeout(0)
@pytest.mark.skipif(not RUNS, reason="UNISONO_RUNS is the number of runs")
def test_slow_machines_exclude_no_member_unforced(tmp_path: Path) -> None:
    count(RUNS, tmp_path)
