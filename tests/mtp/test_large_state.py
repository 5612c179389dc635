"""A joiner gets a large state while the web works, and catches up."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from typing import Any

import pytest

from tests.mtp.process import Process
from tests.mtp.soaking import soak
from tests.net.recorder import free_port
from tests.waiting import until
from unisono.protocols.mtp.ordering import SPOOL_BYTES_MAX

pytestmark = [pytest.mark.real, pytest.mark.slow]

MIB = 1 << 20
STATE_BYTES = 20 * MIB
SOAK_STATE_BYTES = int(os.environ.get("UNISONO_STATE_MIB", "300")) * MIB
EMPTY_BYTES = 60 * MIB
"""What a member without state has at most."""


def hand_over(state_bytes: int) -> dict[str, Any]:
    port = free_port()
    with contextlib.ExitStack() as stack:

        def start(name: str, **orders: Any) -> Process:
            joins = {"group": "large", "name": name, "port": port, "master": int(name == "a")}
            pace = {"batch": 20, "pause_s": 0.02, "every": 100}
            given = {"join": {**joins, "join_s": 120}, **pace, **orders}
            return stack.enter_context(Process(given))

        a = start("a", ballast_bytes=state_bytes, talks=True)
        until(lambda: a.view == ["a"], "a web")
        b = start("b", talks=True)
        until(lambda: a.view == b.view == ["a", "b"], "two members")
        until(lambda: a.count > 500, "some talk")
        began = time.monotonic()
        joiner = start("c")
        until(lambda: joiner.of("joined"), "the joiner to be in")
        until(lambda: joiner.of("restored"), "its state")
        heard = a.count
        until(lambda: joiner.count >= heard, "the joiner to have caught up")
        took_s = time.monotonic() - began
        (restored,) = joiner.of("restored")
        assert restored["octets"] >= state_bytes
        pauses = during(a, joiner.of("joined")[0])
        for each in (a, b):
            each.write("silence")
        until(lambda: len({each.ask()["digest"] for each in (a, b, joiner)}) == 1, "agreement")
        assert joiner.digests.items() <= a.digests.items(), "from its place on, the same"
        assert a.view == b.view == joiner.view == ["a", "b", "c"]
        return {
            "took_s": round(took_s, 2),
            "state_s": joiner.of("joined")[0]["took_s"],
            "said_meanwhile": heard - restored["count"],
            "longest_pause_s": max(pauses, default=0.0),
            "rss_max": {each.name: each.ask()["rss_max"] for each in (a, b, joiner)},
        }


def during(member: Process, joined: dict[str, Any]) -> list[float]:
    """The times between digests during a join."""
    times = [each["at_s"] for each in member.of("digest")]
    began = joined["at_s"] - joined["took_s"]
    pairs = itertools.pairwise(times)
    return [round(end - start, 3) for start, end in pairs if began < end <= joined["at_s"]]


def check(told: dict[str, Any], state_bytes: int) -> None:
    print(told)
    for name, octets in told["rss_max"].items():
        copies = 2 if name == "a" else 1  # The master has its own, and what it snapped for others.
        assert octets < copies * state_bytes + EMPTY_BYTES + SPOOL_BYTES_MAX, name
    assert told["said_meanwhile"] > 100, "the web continued"


def test_the_web_continues_while_a_joiner_gets_its_state() -> None:
    check(hand_over(STATE_BYTES), STATE_BYTES)


@soak
def test_the_web_continues_while_hundreds_of_megabytes_are_transferred() -> None:
    check(hand_over(SOAK_STATE_BYTES), SOAK_STATE_BYTES)
