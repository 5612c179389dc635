"""Five machines, nearly, that lose a packet of twenty: members of an RMP group are killed and cut
off while all levels and locks are in use, and what their traces tell keeps every law.

`UNISONO_SECONDS` says how long, and `UNISONO_SEED` which faults.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.namespaces import address, inside
from tests.cli.ring_cluster import Cluster, Fault, cluster, read
from tests.cli.running import unisono
from tests.harness import Module
from tests.rmp.member import LEVELS, REST
from tests.waiting import LIMIT_S
from unisono.laws import judge
from unisono.protocols.rmp import SPEC
from unisono.trace.history import ALIVE, History

pytestmark = [pytest.mark.root, pytest.mark.real, pytest.mark.slow]

NAMES = ("a", "b", "c", "d", "e")
LOSS_PERCENT = 5
SEED = int(os.environ.get("UNISONO_SEED") or 1)
SECONDS = float(os.environ.get("UNISONO_SECONDS") or 120)
IS_SOAKED = (os.environ.get("UNISONO_PROTOCOL") or "rmp") == "rmp"
KINDS = ("kill", "cut", "one_way")
DOWN_MAX = 2
"""So many of five are dead at once: the others are a majority."""


class Process(Module):
    """One member."""

    @property
    def messages(self) -> list[tuple[str, int, str]]:
        return [(each["sender"], each["number"], each["text"]) for each in self.of("message")]

    @property
    def view(self) -> list[str]:
        views = self.of("view")
        return sorted(views[-1]["members"]) if views else []


class Group(Cluster):
    """The members that live."""

    def start(self, name: str) -> None:
        orders = {
            "group": "far",
            "name": name,
            "interface": address(self.names.index(name) + 1),
            "join_s": LIMIT_S,
            "rejoin": True,
            "insecure": True,
            "trace": str(self._folder / "trace"),
        }
        process = Process(name, "tests.rmp.member", orders, inside(self._spaces[name]))
        self.cats[name] = self._undo.enter_context(process)  # type: ignore[assignment]

    def rest(self) -> None:
        for process in self.cats.values():
            process.write(REST)
        super().rest()


def drawn(seed: int, seconds: float) -> list[Fault]:
    dice = random.Random(f"rmp/{seed}")
    found: list[Fault] = []
    at_s = 1.0
    while at_s < seconds - 2:
        kind, until_s = dice.choice(KINDS), min(at_s + dice.uniform(0.3, 6.0), seconds)
        down = {n for f in found if f.kind == "kill" and f.until_s + 3 > at_s for n in f.names}
        count = {"kill": 1, "one_way": 2}.get(kind) or dice.randint(1, 2)
        names = tuple(dice.sample([name for name in NAMES if name not in down], count))
        if kind != "kill" or len(down) < DOWN_MAX:
            found.append(Fault(at_s, until_s, kind, names))
        at_s += dice.uniform(0.5, 5.0)
    return found


def check(seed: int, seconds: float, folder: Path) -> int:
    """Play it, judge it; how many locks of the dead were released."""
    with cluster(NAMES, folder, kind=Group, loss_percent=LOSS_PERCENT) as group:
        group.play(drawn(seed, seconds), seconds)
        refused = {name: process.of("refused")[:3] for name, process in group.cats.items()}
    verified = unisono("verify", str(folder / "trace"), "--json")
    assert verified.returncode == 0, verified.stdout
    history = read(folder / "trace", NAMES)
    verdict = judge(history, SPEC.laws)
    assert not verdict.violations, verdict.violations[:10]
    assert {verdict.laws[law] for law in SPEC.laws} == {"kept"}
    report: dict[str, Any] = {
        "seconds": seconds,
        "faults": len(group.happened),
        "lives": len(history.lives),
        "alive": sum(life.end == ALIVE for life in history.lives.values()),
        "locks": locks(history),
        "by_level": by_level(history),
        "stable": sum(row.kind == "stable" for life in history.lives.values() for row in life.rows),
    }
    print(json.dumps(report))
    assert report["alive"] == len(NAMES), refused
    assert all(report["by_level"].values()) and len(report["by_level"]) == len(LEVELS)
    assert report["locks"]["granted"] > seconds / 4
    return report["locks"]["of_the_dead"]


def locks(history: History) -> Mapping[str, int]:
    """Grants; releases, and of these the ones in the view that says its holder failed or left."""
    views = {row.view: row for life in history.lives.values() for row in life.views}
    changes: list[Sequence[str]] = [row.changes or () for row in views.values()]
    gone = [{who for each in of if each.split()[0] in GONE for who in each.split()[1:]}
            for of in changes]  # fmt: skip
    freed = [(each.split()[2], who) for of, who in zip(changes, gone, strict=True)
             for each in of if each.startswith("lock_released")]  # fmt: skip
    return {
        "granted": sum(each.startswith("lock_granted") for of in changes for each in of),
        "released": len(freed),
        "of_the_dead": sum(holder in who for holder, who in freed),
    }


GONE = ("failed", "left")


def by_level(history: History) -> dict[str, int]:
    found: dict[str, int] = {}
    for life in history.lives.values():
        for row in life.deliveries:
            found[str(row.service)] = found.get(str(row.service), 0) + 1
    return found


def test_kills_and_cuts_are_drawn_and_leave_a_majority() -> None:
    for seed in range(30):
        faults = drawn(seed, 120)
        assert {fault.kind for fault in faults} == set(KINDS)
        for fault in faults:
            at_s = fault.at_s
            down: set[Any] = set()
            for other in faults:
                if other.kind == "kill" and other.at_s <= at_s < other.until_s:
                    down.update(other.names)
            assert len(down) <= DOWN_MAX


def test_a_group_outlives_seconds_of_kills_and_cuts(tmp_path: Path) -> None:
    check(SEED, 15, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.skipif(not IS_SOAKED, reason="another protocol is soaked")
def test_a_group_outlives_two_minutes_of_kills_and_cuts(tmp_path: Path) -> None:
    assert check(SEED, SECONDS, tmp_path), "one was killed that held a lock"
