"""Many clients in many groups on three daemons, some of them killed under load: for the others
nothing is lost and nothing is out of order."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.stage import RING, daemon_process
from tests.harness import Child, Module
from tests.net.recorder import free_port
from tests.waiting import LIMIT_S, until

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.xdist_group("clients")]

DAEMONS = 3

# Clients are killed here, not daemons: none may be excluded because the machine is busy.
PATIENT = () if RING == "mtp" else ("--option", "tries=250")


@dataclass(frozen=True)
class Size:
    clients: int
    groups: int
    killed: int
    processes: int
    """Of those that are not killed."""
    seconds: float
    batch: int
    pause_s: float
    nbytes: int = 100
    kills_daemon: bool = False
    """The last daemon dies in the middle, and its clients with it."""


SMALL = Size(clients=40, groups=10, killed=4, processes=3, seconds=4, batch=5, pause_s=0.25)
ORPHANS = replace(SMALL, clients=36, groups=9, killed=2, kills_daemon=True)
FULL = Size(
    clients=200,
    groups=50,
    killed=20,
    processes=6,
    seconds=float(os.environ.get("UNISONO_SECONDS", "40")),
    batch=10,
    pause_s=0.5,
)


def cast_of(size: Size, place: Path, dice: random.Random) -> tuple[list[Any], list[list[Any]]]:
    """Those that will be killed, and the others by process. Each is in a group; every third
    sends to another group too."""
    everyone = []
    for at in range(size.clients):
        own, other = f"g{at % size.groups}", f"g{(at + 1) % size.groups}"
        everyone.append(
            {
                "name": f"c{at}",
                "group": own,
                "to": [own, other] if at % 3 == 0 else [own],
                "daemon": f"unix:{place}/d{dice.randrange(DAEMONS)}",
            }
        )
    killed = dice.sample(everyone, size.killed)
    others = [each for each in everyone if each not in killed]
    return killed, [others[at :: size.processes] for at in range(size.processes)]


def play(size: Size, seed: int) -> dict[str, Any]:
    dice = random.Random(seed)
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="uni")))
        port = free_port()
        daemons = [
            stack.enter_context(daemon_process(place, at, port, *PATIENT)) for at in range(DAEMONS)
        ]
        until(lambda: all(len(each.expect("ring")["daemons"]) == 3 for each in daemons))
        killed, others = cast_of(size, place, dice)

        def many(clients: Sequence[Any]) -> Child:
            orders: dict[str, Any] = {
                "batch": size.batch,
                "pause_s": size.pause_s,
                "nbytes": size.nbytes,
            }
            orders["clients"] = clients
            return stack.enter_context(Module("clients", "tests.daemon.many_clients", orders))

        victims = [many([each]) for each in killed]
        bystanders = [many(each) for each in others]
        for each in (*victims, *bystanders):
            each.expect("joined")
        for each in (*victims, *bystanders):
            each.write("talk")
        end = time.monotonic() + size.seconds
        pause_s = size.seconds / (size.killed + 1)
        for at, victim in enumerate(victims):
            time.sleep(pause_s * dice.uniform(0.5, 1.0))
            victim.kill()
            if size.kills_daemon and at == len(victims) // 2:
                daemons.pop().kill()
        time.sleep(max(0.0, end - time.monotonic()))
        for each in bystanders:
            each.write("silence")
        for each in bystanders:
            each.expect("silent")
        settle(bystanders)
        took_s = time.monotonic() - began
        reports = []
        for at, each in enumerate(bystanders):
            each.write(f"report {place}/report{at}")
            each.expect("reported")
            reports += json.loads((place / f"report{at}").read_text())
        for each in daemons:
            each.signal(signal.SIGTERM)
        counters = [each.expect("ended")["counters"] for each in daemons]
    assert not sum(each.get("shed", 0) for each in counters)
    dead = {each["name"] for each in killed}
    if size.kills_daemon:
        orphans = [each for each in reports if each["ended"]]
        assert orphans and all("is gone" in each["ended"] for each in orphans)
        dead |= {each["name"] for each in orphans}
        reports = [each for each in reports if not each["ended"]]
        check_beginnings(orphans, reports)
    told = check(reports, dead)
    assert len(reports) + len(dead) == size.clients
    return {**told, "seconds": round(took_s, 1)}


def check_beginnings(orphans: Sequence[Any], reports: Sequence[Any]) -> None:
    """Those that lost their daemon delivered what the others did, up to a place."""
    logs = {each["group"]: each["log"] for each in reports}
    for each in orphans:
        if each["group"] in logs:
            assert each["log"] == logs[each["group"]][: len(each["log"])], each["name"]


def settle(bystanders: Sequence[Child]) -> None:
    """Until nothing more comes to anybody."""
    end, before, still = time.monotonic() + LIMIT_S, None, 0
    while still < 4:
        counts = []
        for each in bystanders:
            asked = len(each.of("count"))
            each.write("count")
            until(lambda each=each, asked=asked: len(each.of("count")) > asked, "a count")
            counts.append(each.of("count")[-1])
        still = still + 1 if counts == before else 0
        before = counts
        assert time.monotonic() < end, counts
        time.sleep(0.25)


def check(reports: Sequence[Any], killed: set[str]) -> dict[str, Any]:
    assert not [each["name"] for each in reports if each["ended"] or each["wrong"]], reports
    by_place: dict[int, tuple[str, int]] = {}
    heard_of_killed: dict[str, set[int]] = {}
    messages = 0
    for group in {each["group"] for each in reports}:
        inside = [each for each in reports if each["group"] == group]
        log = [tuple(entry) for entry in inside[0]["log"]]
        messages += len(log)
        for each in inside[1:]:
            assert [tuple(entry) for entry in each["log"]] == log, f"{each['name']} in {group}"
        places = [seq for seq, _, _ in log]
        assert places == sorted(set(places)), "in order, and once"
        for seq, sender, number in log:
            assert by_place.setdefault(seq, (sender, number)) == (sender, number)
        numbers: dict[str, list[int]] = {}
        for _, sender, number in log:
            numbers.setdefault(sender, []).append(number)
        for sender, found in numbers.items():
            assert found == list(range(1, len(found) + 1)), f"{sender} in {group}: a hole"
            if sender.split("#")[0] in killed:
                heard_of_killed.setdefault(sender, set()).add(len(found))
        for each in reports:
            if group in each["to"] and each["said"]:
                assert len(numbers.get(each["me"], ())) == each["said"], f"{each['name']} lost"
        # The last views are the same, and no killed client is in any of them.
        (last,) = {json.dumps(each["views"][-1]) for each in inside}
        assert not killed & set(json.loads(last)[1])
    assert all(len(counts) == 1 for counts in heard_of_killed.values()), "in all groups, or in none"
    return {
        "messages": len(by_place),
        "deliveries": sum(len(each["log"]) for each in reports),
        "of_killed": sum(max(counts) for counts in heard_of_killed.values()),
    }


def test_killed_clients_take_nothing_with_them() -> None:
    print(play(SMALL, 1))


def test_a_killed_daemon_takes_only_its_own_clients_with_it() -> None:
    print(play(ORPHANS, 3))


@pytest.mark.soak
def test_twenty_of_two_hundred_clients_killed_under_load_take_nothing_with_them() -> None:
    print(play(FULL, 2))
