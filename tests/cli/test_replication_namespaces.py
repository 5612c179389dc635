"""Five machines, nearly, each with a database of its own: replicas are killed, one or all at once,
cut off, and run out of disk, while all sell. In the end all orders and files are the same.

`UNISONO_MINUTES` says how long, `UNISONO_SEED` which faults, and `UNISONO_PROTOCOL` on what.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
from collections import Counter
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.cli.namespaces import address, do, inside
from tests.cli.ring_cluster import Cluster, Fault, cluster
from tests.harness import Module
from tests.waiting import until
from unisono.services.replica_file import ReplicaFile

pytestmark = [pytest.mark.root, pytest.mark.real, pytest.mark.slow]

NAMES = ("a", "b", "c", "d", "e")
LOSS_PERCENT = 1
DISK_MB = 64
SEED = int(os.environ.get("UNISONO_SEED") or 1)
MINUTES = float(os.environ.get("UNISONO_MINUTES") or 10)
PROTOCOL = os.environ.get("UNISONO_PROTOCOL") or "transis"
IS_SOAKED = PROTOCOL in ("transis", "ring")
KINDS = ("kill", "kill", "kill_all", "cut", "cut", "full")


class Replicas(Cluster):
    """The replicas, and what they told in all their lives."""

    past: list[dict[str, Any]]

    def start(self, name: str) -> None:
        if not hasattr(self, "past"):
            self.past, self._texts = [], count(1)
            self.sent: list[str] = []
        home = self._folder / name
        if not home.exists():
            home.mkdir()
            do("mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "none", str(home))
            self._undo.callback(do, "umount", "--lazy", str(home))
        orders = {
            "path": str(home / "sales.db"),
            "group": "sales",
            "name": name,
            "members": NAMES,
            "protocol": PROTOCOL,
            "interface": address(self.names.index(name) + 1),
            "insecure": True,
        }
        if PROTOCOL == "ring":
            orders["sites"] = len(NAMES)
        process = Module(
            name, "tests.replication.database_member", orders, inside(self._spaces[name])
        )
        self.cats[name] = self._undo.enter_context(process)  # type: ignore[assignment]

    def _end_of(self, name: str) -> None:
        process = self.cats.pop(name)
        process.kill()
        self.past += process.objects

    # -- faults ------------------------------------------------------------------------------------

    def _begin(self, fault: Fault) -> None:
        for name in fault.names:
            if fault.kind == "full":
                with (self._folder / name / "filler").open("wb", buffering=0) as filler:
                    try:
                        while filler.write(bytes(1 << 16)):
                            pass
                    except OSError:
                        pass
            elif fault.kind.startswith("kill") and name in self.cats:
                self._end_of(name)

    def _end(self, fault: Fault) -> None:
        for name in fault.names:
            if fault.kind == "full":
                (self._folder / name / "filler").unlink(missing_ok=True)
            if fault.kind != "cut" and (name not in self.cats or not self.cats[name].is_alive):
                self._restart(name)

    def _restart(self, name: str) -> None:
        if name in self.cats:
            self._end_of(name)
        self.start(name)

    # -- load --------------------------------------------------------------------------------------

    def say(self) -> None:
        for name, process in self.cats.items():
            if process.is_alive:
                self.sell(name)

    def sell(self, name: str) -> str:
        text = f"{name} {next(self._texts)}"
        self.sent.append(text)
        self.cats[name].write(text)
        return text

    def told(self, kind: str) -> list[dict[str, Any]]:
        living = [each for process in self.cats.values() for each in process.objects]
        return [each for each in (*self.past, *living) if each["kind"] == kind]

    def together(self) -> bool:
        for name, process in list(self.cats.items()):
            if not process.is_alive:  # Its disk was full, and has room again.
                self._restart(name)
        views = [process.of("primary")[-1:] for process in self.cats.values()]
        return all(view and sorted(view[0]["members"]) == sorted(NAMES) for view in views)

    def words(self) -> str:
        ends = {name: (p.code, p.objects[-2:], p.errors[-300:]) for name, p in self.cats.items()}
        return f"{ends} after {self.happened[-5:]}"

    def all_heard(self, texts: set[str]) -> bool:
        return texts <= {each["text"] for each in self.told("green")}

    def rest(self) -> None:
        """Until all have applied all that any has."""
        until(lambda: len({self.position(name) for name in NAMES}) == 1, "one position", self.words)
        for name in NAMES:
            self._end_of(name)

    def position(self, name: str) -> int:
        uri = f"file:{self._folder / name / 'sales.db'}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as file:
            (number,) = file.execute("SELECT count(*) FROM sales").fetchone()
        return int(number)


def drawn(seed: int, seconds: float) -> list[Fault]:
    """Never two at a time at one replica."""
    dice = random.Random(f"replication/{seed}")
    found: list[Fault] = []
    free_s = dict.fromkeys(NAMES, 1.0)
    at_s = 2.0
    while at_s < seconds - 4:
        kind = dice.choice(KINDS)
        if kind == "kill_all":
            at_s = max(at_s, *free_s.values())
        some = [name for name in NAMES if free_s[name] <= at_s]
        wanted = {"kill_all": 5, "full": 1}.get(kind) or dice.randint(1, 2)
        if len(some) >= wanted:
            names = tuple(sorted(dice.sample(some, wanted)))
            until_s = min(at_s + dice.uniform(0.3, 5.0), seconds)
            found.append(Fault(at_s, until_s, kind, names))
            free_s |= dict.fromkeys(names, until_s + 1)
        at_s += dice.uniform(0.5, 4.0)
    return found


def copied(path: Path) -> bytes:
    """The database, compacted: equal ones are equal bytes."""
    beside = path.with_suffix(".copy")
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        file.execute("VACUUM INTO ?", (str(beside),))
    return beside.read_bytes()


def order_in(path: Path, name: str) -> tuple[int, list[tuple[str, int, bytes]]]:
    """Where the log begins, and its green updates."""
    file = ReplicaFile(path, "sales", name, NAMES)
    try:
        updates = file.greens(file.base + 1, file.end)
        return file.base, [(each.submitter, each.number, each.content) for each in updates]
    finally:
        file.close()


def check(seed: int, seconds: float, folder: Path) -> dict[str, Any]:
    with cluster(NAMES, folder, kind=Replicas, loss_percent=LOSS_PERCENT) as group:
        assert isinstance(group, Replicas)
        group.play(drawn(seed, seconds), seconds)
        greens = {each["text"]: each["position"] for each in group.told("green")}
        logged = {each["text"] for each in group.told("red")}
        orders = {name: order_in(folder / name / "sales.db-replica", name) for name in NAMES}
        files = {name: copied(folder / name / "sales.db") for name in NAMES}
        with closing(sqlite3.connect(folder / "a" / "sales.db")) as file:
            rows = [text for (text,) in file.execute("SELECT text FROM sales")]
        faults = Counter(fault.kind for fault in group.happened)
        full = sum("free some space" in each["reason"] for each in group.told("stopped"))
    base = max(first for first, _ in orders.values())
    tails = {tuple(updates[base - first :]) for first, updates in orders.values()}
    assert len(tails) == 1, "the green orders differ"
    assert len(set(files.values())) == 1, "the databases differ"
    lasts = {f"{name} is here" for name in NAMES}
    assert len(rows) == len(set(rows)) and set(rows) <= lasts.union(group.sent)
    assert not greens.keys() - set(rows), "acknowledged as green, and lost"
    assert not logged - set(rows), "acknowledged as logged, and lost"
    placed = {json.loads(content)["do"][0][1][0][0]: base + at
              for at, (_, _, content) in enumerate(next(iter(tails)), 1)
              if content.startswith(b'{"is"') and b"INSERT" in content}  # fmt: skip
    assert all(placed.get(text, position) == position for text, position in greens.items())
    report = {
        "seconds": seconds,
        "faults": dict(faults),
        "full": full,
        "green": len(greens),
        "rows": len(rows),
        "compared": len(next(iter(tails))),
        "bytes": len(files["a"]),
    }
    print(json.dumps(report))
    return report


def test_kills_cuts_and_full_disks_are_drawn() -> None:
    for seed in range(20):
        faults = drawn(seed, 120)
        assert {fault.kind for fault in faults} == set(KINDS)
        for fault in faults:
            for other in faults:
                if fault is not other and set(fault.names) & set(other.names):
                    assert fault.until_s < other.at_s or other.until_s < fault.at_s


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.skipif(not IS_SOAKED, reason="another protocol is soaked")
def test_five_replicas_are_the_same_after_minutes_of_faults(tmp_path: Path) -> None:
    report = check(SEED, 60 * MINUTES, tmp_path)
    assert report["green"] > 100 and report["faults"].get("kill_all")
