"""Five namespaces that lose packets: members of a web are killed, a master too, and the survivors
hold the same."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.cli.namespaces import address, dropped, inside, machines
from tests.mtp.process import Process
from tests.mtp.soaking import soak
from tests.waiting import LIMIT_S, until

pytestmark = [pytest.mark.root, pytest.mark.real, pytest.mark.slow]

NAMES = ("a", "b", "c", "d", "e")
MASTERS = 3
LOSS_PERCENT = 5
MESSAGES = 8_000
SOAK_MESSAGES = int(os.environ.get("UNISONO_MESSAGES", "200000"))


class Web:
    """The five, and those of them that live."""

    def __init__(self, spaces: Mapping[str, str], batch: int, stack: contextlib.ExitStack) -> None:
        self._spaces, self._batch, self._stack = spaces, batch, stack
        self.lives: dict[str, Process] = {}
        self.all: list[Process] = []

    def start(self, name: str) -> Process:
        place = NAMES.index(name) + 1
        orders = {
            "join": {
                "group": "far",
                "name": name,
                "interface": address(place),
                "masters": MASTERS,
                "master": place if place <= MASTERS else 0,
                "rejoin": True,
                # A burst is lost as a whole, so that some send their packets one by one.
                "offload": place % 2 == 0,
                "join_s": 30,
            },
            "talks": True,
            "large_every": 1000,
            "batch": self._batch,
            "pause_s": 0.02,
            "every": 1000,
            "seed": len(self.all),
        }
        process = self._stack.enter_context(Process(orders, inside(self._spaces[name])))
        self.lives[name] = process
        self.all.append(process)
        return process

    def kill(self, name: str) -> None:
        self.lives.pop(name).kill()

    def see(self, names: Sequence[str]) -> bool:
        return all(each.view == sorted(names) for each in self.lives.values())

    def counts(self) -> dict[str, int]:
        return {name: each.count for name, each in self.lives.items()}

    def words(self) -> str:
        return str({name: (each.view, each.objects[-2:]) for name, each in self.lives.items()})

    def reach(self, count: int) -> None:
        for part in range(1, 11):
            least = count * part // 10
            done = lambda least=least: min(self.counts().values()) >= least  # noqa: E731
            until(done, f"{least} messages", self.words)

    def founder(self) -> str:
        """The master that leads, while none has taken over."""
        told = {name: str(each.of("view")[0]) for name, each in self.lives.items()}
        (name,) = [name for name, first in told.items() if "founded the web" in first]
        return name

    def settled(self) -> dict[str, Any]:
        """Until all have delivered the same and nothing more arrives: what they delivered."""
        end, before = time.monotonic() + LIMIT_S, None
        while True:
            now = {name: each.ask() for name, each in self.lives.items()}
            same = {(each["count"], each["digest"]) for each in now.values()}
            if len(same) == 1 and same == before:
                return now
            assert time.monotonic() < end, now
            before = same
            time.sleep(0.3)


def assert_the_same(processes: Sequence[Process]) -> int:
    """Each digest that two report for the same count is the same; how many were compared."""
    seen: dict[int, str] = {}
    compared = 0
    for process in processes:
        for count, digest in process.digests.items():
            compared += count in seen
            assert seen.setdefault(count, digest) == digest, f"{process.name} at {count}"
    return compared


def play(messages: int, batch: int) -> dict[str, Any]:
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        spaces = stack.enter_context(machines(NAMES, LOSS_PERCENT))
        web = Web(spaces, batch, stack)
        for name in NAMES:
            web.start(name)
        until(lambda: web.see(NAMES), "one view", web.words)

        web.reach(messages // 10)
        web.kill("e")
        until(lambda: web.see("abcd"), "the view without e", web.words)
        back = web.start("e")
        until(lambda: web.see(NAMES), "e in the view again", web.words)
        (restored,) = back.of("restored")
        assert restored["count"] >= messages // 10, "it was given what the others have"

        web.reach(messages // 2)
        leader = web.founder()
        web.kill(leader)
        rest = [name for name in NAMES if name != leader]
        until(lambda: web.see(rest), "a master after the master", web.words)
        web.reach(messages * 6 // 10)
        again = web.start(leader)
        until(lambda: web.see(NAMES), "the master back in the view", web.words)

        web.reach(messages)
        for each in web.lives.values():
            each.write("silence")
        now = web.settled()
        compared = assert_the_same(web.all)
        assert compared >= 2 * messages // 1000, "digests were compared"
        assert min(back.digests) > restored["count"], "from its place on"
        assert again.of("restored"), "the master, too, was given the state"
        assert not any(each.of("rejoined") for each in web.all), web.words()
        told = {name: each["counters"] for name, each in now.items()}
        assert all(dropped(spaces[name]) > 0 for name in NAMES), "nothing was lost"
        assert sum(counters.get("take_over", 0) for counters in told.values()) >= 1
        return {
            "seconds": round(time.monotonic() - began, 1),
            "messages": now["b"]["count"],
            "compared": compared,
            "rss_max_mib": {name: each["rss_max"] >> 20 for name, each in now.items()},
            **{
                what: {name: counters.get(what, 0) for name, counters in told.items()}
                for what in ("nak", "repair", "take_over", "deny", "token_returned")
            },
        }


def test_survivors_of_loss_kills_and_a_take_over_hold_the_same() -> None:
    print(play(MESSAGES, 10))


@soak
def test_they_do_so_through_many_messages() -> None:
    print(play(SOAK_MESSAGES, 100))
