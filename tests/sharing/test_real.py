"""Shared objects among real processes that are stopped and killed."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.namespaces import address, inside
from tests.cli.ring_cluster import Cluster, Fault, cluster
from tests.cli.running import unisono
from tests.harness import Module
from tests.net.recorder import free_port
from tests.sharing.member import HOLD, REST
from tests.waiting import LIMIT_S, until
from unisono.laws import OPERATION_LAWS

pytestmark = [pytest.mark.real]

NAMES = ("a", "b", "c", "d", "e")
DOWN_MAX = 2
SEED = int(os.environ.get("UNISONO_SEED") or 1)
PROTOCOL = os.environ.get("UNISONO_PROTOCOL") or "ring"
SECONDS = float(os.environ.get("UNISONO_SECONDS") or 120)


class Process(Module):
    @property
    def messages(self) -> list[tuple[str, int, str]]:
        return [(each["sender"], each["number"], each["text"]) for each in self.of("message")]

    @property
    def view(self) -> list[str]:
        views = self.of("view")
        return sorted(views[-1]["members"]) if views else []


def process(name: str, folder: Path, works: bool, before: Any = (), **orders: Any) -> Process:
    everything = {
        "group": "shop",
        "name": name,
        "works": works,
        "join_s": LIMIT_S,
        "insecure": True,
        "resource": str(folder / "resource"),
        "trace": str(folder / "trace"),
        **orders,
    }
    return Process(name, "tests.sharing.member", everything, before)


def verified(folder: Path) -> dict[str, str]:
    """The laws, all kept, of the one run."""
    found = unisono("verify", str(folder / "trace"), "--json")
    assert found.returncode == 0, found.stdout
    ((_, run),) = json.loads(found.stdout)["runs"].items()
    laws: dict[str, str] = run["laws"]
    assert {laws[law] for law in OPERATION_LAWS} == {"kept"}
    return laws


def test_one_that_stands_still_with_a_lock_does_no_harm(tmp_path: Path) -> None:
    port = free_port()
    with (
        process("ann", tmp_path, False, port=port, lease_s=0.4) as ann,
        process("bob", tmp_path, False, port=port, lease_s=0.4) as bob,
        process("cid", tmp_path, False, port=port, lease_s=0.4) as cid,
    ):
        until(lambda: ann.view == bob.view == cid.view == ["ann", "bob", "cid"])
        ann.write(HOLD)
        before = ann.expect("holds")["token"]
        ann.signal(signal.SIGSTOP)
        bob.write(HOLD)
        assert bob.expect("holds")["token"] > before
        ann.signal(signal.SIGCONT)
        assert ann.expect("lost")
        assert not bob.of("lost")
        assert not bob.of("refused")
        assert {each["token"] for each in ann.of("refused")} <= {before}
    tokens = list(map(int, (tmp_path / "resource").read_text().split()))
    assert tokens == sorted(tokens), "the resource saw them rise"
    verified(tmp_path)


class Shop(Cluster):
    """Members that work until they are told to rest."""

    def start(self, name: str) -> None:
        where = address(self.names.index(name) + 1)
        orders = {"interface": where, "rejoin": True, "lease_s": 2.0, "protocol": PROTOCOL}
        if PROTOCOL == "ring":  # More than half of five, whoever has come back.
            orders |= {"sites": len(NAMES), "stable": str(self._folder / f"{name}.stable")}
        made = process(name, self._folder, True, inside(self._spaces[name]), **orders)
        self.cats[name] = self._undo.enter_context(made)  # type: ignore[assignment]

    def rest(self) -> None:
        for each in self.cats.values():
            each.write(REST)
        for each in self.cats.values():
            each.signal(signal.SIGSTOP)


def drawn(seed: int, seconds: float) -> list[Fault]:
    dice = random.Random(f"sharing/{seed}")
    found: list[Fault] = []
    at_s = 1.0
    while at_s < seconds - 2:
        kind, until_s = dice.choice(("kill", "pause")), min(at_s + dice.uniform(0.3, 6), seconds)
        down = {n for f in found if f.until_s + 3 > at_s for n in f.names}
        if len(down) < DOWN_MAX:
            name = dice.choice([name for name in NAMES if name not in down])
            found.append(Fault(at_s, until_s, kind, (name,)))
        at_s += dice.uniform(0.5, 4.0)
    return found


@pytest.mark.root
@pytest.mark.soak
@pytest.mark.timeout(0)
def test_shared_objects_outlive_two_minutes_of_kills(tmp_path: Path) -> None:
    with cluster(NAMES, tmp_path, kind=Shop, loss_percent=1) as shop:
        faults = drawn(SEED, SECONDS)
        shop.play(faults, SECONDS)
        refused = sum(len(each.of("refused")) for each in shop.cats.values())
    laws = verified(tmp_path)
    tokens = list(map(int, (tmp_path / "resource").read_text().split()))
    print(json.dumps({"faults": len(faults), "held": len(tokens), "refused": refused, **laws}))
    assert tokens == sorted(tokens)
    assert len(tokens) > SECONDS / 4
