"""Seven namespaces, and minutes of everything that goes wrong at once: kills, half of them of
members without storage, pauses up to 30 s, one-way cuts, flapping links and full disks, under load,
while all is sealed and the key changes all the time, whoever is away.

`UNISONO_MINUTES` is the duration, `UNISONO_BURNERS` how many processes burn CPU beside it, and
`UNISONO_SEED` which faults. Judged by the laws, and: no place with two messages, no safe message
missing anywhere, no accepted one missing without a word. Exclusions that no fault explains are
counted.

`UNISONO_RUNS` counts them over so many short runs of three members instead, one fault each.

    UNISONO_MINUTES=10 pytest -n 0 -m soak -s tests/cli/test_ring_chaos.py
    UNISONO_RUNS=100 UNISONO_BURNERS=6 pytest -n 0 -m soak -s tests/cli/test_ring_chaos.py
"""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.forced_exclusions import exclusions, felt, is_forced
from tests.cli.namespaces import do
from tests.cli.ring_cluster import (
    NAMES,
    Cluster,
    Fault,
    assert_all_laws,
    assert_laws,
    assert_nothing_is_missing,
    assert_one_majority,
    cluster,
    read,
)
from tests.cli.test_ring_namespaces import SEED
from tests.harness import Cat
from tests.ring.soaking import soak
from unisono.net.key_files import save_keyring
from unisono.sealing.keys import KEY_BYTES, Keyring

pytestmark = [pytest.mark.root, pytest.mark.real, pytest.mark.slow]

MINUTES = float(os.environ.get("UNISONO_MINUTES", "1"))
BURNERS = int(os.environ.get("UNISONO_BURNERS", "0"))
RUNS = int(os.environ.get("UNISONO_RUNS", "0"))
RUN_S = 4.0
DURABLE = frozenset("abcd")
"""The others are killed without storage."""
DOWN_MAX = 3
"""So many of seven are down at once: a majority always remembers."""
KINDS = ("kill", "pause", "full", "cut", "one_way", "flap")
DOWN = KINDS[:3]
"""Kinds of those that are away."""
DISK = "256k"
KEYS_S = 4.0
"""So often the key changes by a step, at all members."""


class Hardened(Cluster):
    """Some have no storage, the others a small disk; all have a keyring, and change it together,
    also where a member is paused or dead. Everything that was written and heard is remembered."""

    def __init__(
        self, names: Sequence[str], spaces: Mapping[str, str], folder: Path, undo: Any
    ) -> None:
        super().__init__(names, spaces, folder, undo)
        self._steps = 0
        self._keyring = Keyring((os.urandom(KEY_BYTES),))
        for name in names:
            save_keyring(folder / f"{name}.keys", self._keyring, new=True)
        for name in DURABLE.intersection(names):
            disk = folder / f"{name}.disk"
            disk.mkdir()
            do("mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(disk))
            undo.callback(do, "umount", "-l", str(disk))
        self._former: list[Cat] = []
        self.counts = Counter[str]()

    def options(self, name: str) -> dict[str, object]:
        found = super().options(name)
        if name in DURABLE:
            found["stable"] = str(self._folder / f"{name}.disk" / "stable")
        else:
            del found["stable"]
        return {**found, "key": str(self._folder / f"{name}.keys")}

    def _begin(self, fault: Fault) -> None:
        self.counts[fault.kind] += 1
        if fault.kind == "keys":
            self._change_keys()
        elif fault.kind == "full":
            for name in fault.names:
                fill(self._folder / f"{name}.disk" / "filler")
        elif fault.kind == "kill":
            self._former += [self.cats[name] for name in fault.names if name in self.cats]
        super()._begin(fault)

    def _end(self, fault: Fault) -> None:
        for name in fault.names if fault.kind == "full" else ():
            (self._folder / f"{name}.disk" / "filler").unlink()
            self._restart_if_ended(name)
        super()._end(fault)

    def say(self) -> None:
        for name in DURABLE.intersection(self.cats):
            self._restart_if_ended(name)
        super().say()

    def _restart_if_ended(self, name: str) -> None:
        """It stopped since it could not write what it has to remember."""
        cat = self.cats.get(name)
        if cat is not None and not cat.is_alive:
            assert "No space left on device" in cat.errors, cat.errors
            self.counts["ended by a full disk"] += 1
            self._former.append(self.cats.pop(name))
            self.stopped.discard(name)
            if not any((self._folder / f"{name}.disk").glob("filler")):
                self.start(name)

    def _change_keys(self) -> None:
        """Install, use, remove, and so on."""
        ring, step = self._keyring, self._steps % 3
        if step == 0:
            ring = ring.installed(os.urandom(KEY_BYTES))
        else:
            ring = ring.using(ring.keys[-1]) if step == 1 else ring.without(ring.keys[-1])
        self._keyring, self._steps = ring, self._steps + 1
        for name in self.names:
            save_keyring(self._folder / f"{name}.keys", ring)

    def assert_nothing_is_missing_without_a_word(self) -> tuple[int, int]:
        """What a process was given and nobody delivered, it has told as lost; how much was given,
        and how much is missing. Those that were killed, or could not write, told nothing."""
        lived = list(self.cats.values())
        heard = {text for cat in (*lived, *self._former) for _, _, text in cat.messages}
        missing = 0
        for cat in lived:
            told = sum(each["lost"] for each in cat.of("rejoined"))
            unheard = [text for text in self.given[cat] if text not in heard]
            missing += len(unheard)
            assert len(unheard) <= told, (unheard, told)
        return sum(map(len, self.given.values())), missing


def fill(file: Path) -> None:
    with contextlib.suppress(OSError), open(file, "wb", buffering=0) as filler:
        while True:
            filler.write(bytes(512))


def drawn(seed: int, seconds: float) -> list[Fault]:
    """All kinds, in row and overlapping, and never more than a minority down."""
    dice = random.Random(f"chaos/{seed}")
    found: list[Fault] = []
    at_s = 1.0
    while at_s < seconds - 2:
        kind = dice.choice(KINDS)
        lasts_s = dice.uniform(0.3, 30.0 if kind == "pause" else 8.0)
        down = {n for f in found if f.until_s + 3 > at_s and f.kind in DOWN for n in f.names}
        free = [n for n in NAMES if n not in down and (kind != "full" or n in DURABLE)]
        if kind in DOWN:
            if len(down) < DOWN_MAX and free:
                names = (dice.choice(free),)
                found.append(Fault(at_s, min(at_s + lasts_s, seconds), kind, names))
        else:
            count = 2 if kind == "one_way" else dice.randint(1, 3)
            names = tuple(dice.sample(NAMES, count))
            found.append(Fault(at_s, min(at_s + lasts_s, seconds), kind, names))
        at_s += dice.uniform(0.5, 6.0)
    steps = int((seconds - 2) / KEYS_S)
    found += (Fault(KEYS_S * n, KEYS_S * n, "keys", ()) for n in range(1, steps + 1))
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
    with cluster(NAMES, folder, BURNERS, Hardened) as ring:
        assert isinstance(ring, Hardened)
        ring.play(drawn(seed, seconds), seconds)
        given, missing = ring.assert_nothing_is_missing_without_a_word()
    history = read(folder / "trace", NAMES)
    messages = assert_nothing_is_missing(history, NAMES)
    assert_all_laws(folder, history)
    views = assert_one_majority(history, len(NAMES))
    found = exclusions(history, ring.began_s, ring.happened)
    faults = felt(history, ring.began_s, ring.happened)
    unforced = [each for each in found if not is_forced(each, faults, NAMES)]
    report = {
        "seconds": seconds,
        "faults": len(ring.happened),
        "lives": len(history.lives),
        "views": views,
        "messages": messages,
        "given": given,
        "missing, and told": missing,
        **ring.counts,
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
        assert {fault.kind for fault in faults} == {*KINDS, "keys"}
        for fault in faults:
            down = {
                name
                for other in faults
                if other.kind in DOWN and other.at_s <= fault.at_s < other.until_s
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
