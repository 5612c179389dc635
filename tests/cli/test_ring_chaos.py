"""Seven machines, nearly, and minutes of everything that goes wrong at once: kills, half of them of
members without storage, pauses up to 30 s, one-way cuts and flapping links, under load.

`UNISONO_MINUTES` says how long, `UNISONO_BURNERS` how many processes burn CPU beside it, and
`UNISONO_SEED` which faults. Judged by the laws, and: no place with two messages, no safe message
missing anywhere. Exclusions that no fault explains are counted.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.namespaces import address, do, inside, machines
from tests.cli.test_ring_namespaces import (
    CUT,
    NAMES,
    SEED,
    TICK_S,
    Troop,
    assert_all_laws,
    assert_nothing_is_missing,
    assert_one_majority,
    read,
)
from tests.ring.soaking import soak
from tests.waiting import until

pytestmark = [pytest.mark.root, pytest.mark.real, pytest.mark.slow]

MINUTES = float(os.environ.get("UNISONO_MINUTES", "1"))
BURNERS = int(os.environ.get("UNISONO_BURNERS", "0"))
DURABLE = frozenset("abcd")
"""The others are killed without storage."""
DOWN_MAX = 3
"""So many of seven are down at once: a majority always remembers."""
KINDS = ("kill", "pause", "cut", "one_way", "flap")
FLAP_S = 0.4
AFTER_S = 20.0
"""An exclusion so long after a fault that touched the member may still be its work."""


class Fault(NamedTuple):
    """What befalls whom, from when to when."""

    at_s: float
    until_s: float
    kind: str
    names: tuple[str, ...]
    """Who is struck; of a one-way cut, who does not hear whom."""

    def blocks(self, hearer: str, speaker: str, at_s: float) -> bool:
        """Whether one does not hear the other then."""
        if not self.at_s <= at_s < self.until_s:
            return False
        if self.kind == "one_way":
            return (hearer, speaker) == self.names
        apart = (hearer in self.names) != (speaker in self.names)
        flapped = self.kind == "flap" and int((at_s - self.at_s) / FLAP_S) % 2 == 0
        return apart and (flapped or self.kind == "cut")


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


class Chaos(Troop):
    """The members, and what befalls them: each with storage of its own, or none."""

    def __init__(
        self, names: Sequence[str], spaces: Mapping[str, str], folder: Path, undo: Any
    ) -> None:
        super().__init__(names, spaces, folder, undo)
        self.deaf: dict[str, frozenset[str]] = {}
        self._returned: dict[int, int] = {}
        self.returns: list[tuple[str, float]] = []
        """Who came back, and when."""

    def options(self, name: str) -> dict[str, object]:
        found = super().options(name)
        if name not in DURABLE:
            del found["stable"]
        return found

    def strike(self, fault: Fault) -> None:
        self.happened.append(f"{fault.at_s:.1f}-{fault.until_s:.1f} {fault.kind} {fault.names}")
        for name in fault.names:
            if fault.kind == "kill" and name in self.cats:
                cat = self.cats.pop(name)
                cat.process.kill()
                cat.process.wait(10)
                self.stopped.discard(name)
            elif fault.kind == "pause" and name in self.cats:
                self.cats[name].process.send_signal(signal.SIGSTOP)
                self.stopped.add(name)

    def heal(self, fault: Fault) -> None:
        for name in fault.names:
            if fault.kind == "kill" and name not in self.cats:
                self.start(name)
            elif fault.kind == "pause" and name in self.stopped:
                self.stopped.discard(name)
                self.cats[name].process.send_signal(signal.SIGCONT)

    def block(self, faults: list[Fault], at_s: float) -> None:
        """Set each one's ears as the faults of this moment want them."""
        for name in self.names:
            deaf_to = frozenset(
                other
                for other in self.names
                if other != name and any(fault.blocks(name, other, at_s) for fault in faults)
            )
            if deaf_to != self.deaf.get(name, frozenset()):
                self.deaf[name] = deaf_to
                others = ", ".join(sorted(address(self.names.index(o) + 1) for o in deaf_to))
                rules = CUT.format(others=others)
                if not others:
                    rules = "table inet cut\ndelete table inet cut\n"
                do(*inside(self._spaces[name]), "nft", "-f", "-", rules=rules)

    def note_returns(self, at_s: float) -> None:
        """Who came back, and when."""
        for name, cat in self.cats.items():
            cat.poll()
            count = sum(each["kind"] == "rejoined" for each in cat.objects)
            before = self._returned.get(id(cat), 0)
            self._returned[id(cat)] = count
            self.returns += [(name, at_s)] * (count - before)


@contextlib.contextmanager
def burning(count: int) -> Iterator[None]:
    burners = [subprocess.Popen([sys.executable, "-c", "while 1: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for each in burners:
            each.kill()
            each.wait(10)


def touched(faults: list[Fault], name: str, at_s: float) -> bool:
    """A fault explains that this member was left out then: of its own, or one of which it was on
    the smaller or the larger side."""
    return any(
        fault.at_s <= at_s <= fault.until_s + AFTER_S
        and (name in fault.names or fault.kind in ("cut", "flap"))
        for fault in faults
    )


def play(seed: int, seconds: float, folder: Path) -> tuple[Chaos, list[Fault]]:
    faults = drawn(seed, seconds)
    with contextlib.ExitStack() as undo:
        spaces = undo.enter_context(machines(NAMES, loss_percent=0))
        ring = Chaos(NAMES, spaces, folder, undo)
        for name in NAMES:
            ring.start(name)
        undo.enter_context(burning(BURNERS))
        until(ring.together, "one view", ring.words)
        began = time.monotonic()
        strikes = sorted(faults, reverse=True)
        heals = sorted(faults, key=lambda fault: -fault.until_s)
        while (now_s := time.monotonic() - began) < seconds or heals:
            while strikes and strikes[-1].at_s <= now_s:
                ring.strike(strikes.pop())
            while heals and heals[-1].until_s <= now_s:
                ring.heal(heals.pop())
            ring.block(faults, now_s)
            ring.say()
            ring.note_returns(now_s)
            time.sleep(TICK_S)
        ring.block([], now_s)
        print(*ring.happened, sep="\n")
        until(ring.together, "one view of all, after all has healed", ring.words)
        last = {f"{name} is here" for name in NAMES}
        for text in last:
            ring.cats[text[0]].say(text)
        until(lambda: ring.all_heard(last), "the last words of all, by all", ring.words)
        ring.rest()
        ring.note_returns(time.monotonic() - began)
    return ring, faults


def check(seed: int, seconds: float, folder: Path) -> None:
    ring, faults = play(seed, seconds, folder)
    history = read(folder / "trace", NAMES)
    messages = assert_nothing_is_missing(history, NAMES)
    assert_all_laws(folder, history)
    views = assert_one_majority(history, len(NAMES))
    unforced = [each for each in ring.returns if not touched(faults, *each)]
    report = {
        "seconds": seconds,
        "faults": len(faults),
        "lives": len(history.lives),
        "views": views,
        "messages": messages,
        "returns": len(ring.returns),
        "unforced": len(unforced),
        "burners": BURNERS,
    }
    print(json.dumps(report))
    assert messages > seconds, "there was a load"
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
def test_a_ring_of_seven_outlives_minutes_of_chaos(tmp_path: Path) -> None:
    check(SEED, MINUTES * 60, tmp_path)
