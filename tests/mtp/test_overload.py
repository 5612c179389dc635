"""Producers that are faster than the slowest reader: memory is bounded, none is expelled, and the
reader sets the pace."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

import pytest

from tests.mtp.process import Process
from tests.mtp.soaking import soak
from tests.net.recorder import free_port
from tests.waiting import until
from unisono.config import Config
from unisono.protocols.mtp.batch import BATCH_BYTES_MAX, BATCH_COUNT_MAX
from unisono.protocols.mtp.ordering import DELIVER_COUNT_MAX
from unisono.protocols.mtp.parameters import Parameters

pytestmark = [pytest.mark.real, pytest.mark.slow]

NAMES = ("a", "b", "c")
SECONDS, SOAK_SECONDS = 3.0, float(os.environ.get("UNISONO_SECONDS", "60"))
BYTES_MAX = 1024
QUEUE_COUNT_MAX = 1000
OBJECT_BYTES = 400
"""What a message costs in Python beside its payload, with room for what an allocator wastes."""

CONFIG, PARAMETERS = Config(), Parameters.of({})
HELD_BYTES = PARAMETERS.buffers * CONFIG.packet_bytes_max + PARAMETERS.tokens * BATCH_BYTES_MAX
"""[MTP 4] What a consumer is made to hold: t x window x retention packets, and what was gathered
for its token while a producer waited for it."""
WAITING_COUNT_MAX = QUEUE_COUNT_MAX + DELIVER_COUNT_MAX + BATCH_COUNT_MAX
"""What waits for the reader: that it is too much is known once a step has brought it."""
BOUND_BYTES = (
    CONFIG.window_bytes_max
    + HELD_BYTES
    + WAITING_COUNT_MAX * (BYTES_MAX + OBJECT_BYTES)
    + CONFIG.send_queue_bytes_max
)


def sampled(web: dict[str, Process]) -> dict[str, dict[str, Any]]:
    return {name: each.ask() for name, each in web.items()}


def waiting(now: dict[str, Any]) -> int:
    return int(now["counters"].get("stream.waiting", 0))


def lag(sample: dict[str, dict[str, Any]]) -> int:
    """How far the slow reader is behind."""
    return int(sample["a"]["count"] - sample["c"]["count"])


def sampled_once_steady(web: dict[str, Process], pause_s: float) -> dict[str, dict[str, Any]]:
    """A sample once the buffers are full, however long that takes on a busy machine."""
    samples = [sampled(web)]

    def is_steady() -> bool:
        time.sleep(pause_s)
        samples.append(sampled(web))
        return lag(samples[-1]) < lag(samples[-2]) + BATCH_COUNT_MAX

    until(is_steady, "a lag that no longer grows")
    return samples[-1]


def overload(seconds: float, blocks: bool) -> dict[str, Any]:
    port = free_port()
    with contextlib.ExitStack() as stack:
        web: dict[str, Process] = {}
        for name in NAMES:
            orders = {
                "join": {
                    "group": "over",
                    "name": name,
                    "port": port,
                    "master": int(name == "a"),
                    "queue_count_max": QUEUE_COUNT_MAX,
                },
                "talks": name != "c",
                "octets_max": BYTES_MAX,
                "batch": 200,
                "nap_s": 0.001 if name == "c" else 0,
                "blocks": blocks,
            }
            web[name] = stack.enter_context(Process(orders))
        until(lambda: all(each.view == [*NAMES] for each in web.values()), "one view")
        until(lambda: waiting(web["c"].ask()) >= QUEUE_COUNT_MAX, "a full queue")
        middle = sampled_once_steady(web, seconds / 2)
        time.sleep(seconds / 2)
        end = sampled(web)
        assert all(each.view == [*NAMES] for each in web.values()), "no member is expelled"
        assert not any(each.of("stopped") for each in web.values())
        grown = {name: end[name]["rss_max"] - web[name].of("joined")[0]["rss"] for name in NAMES}
        read = end["c"]["count"] - middle["c"]["count"]
        return {
            "grown_mib": {name: round(octets / 2**20, 1) for name, octets in grown.items()},
            "bound_mib": round(BOUND_BYTES / 2**20, 1),
            "read": read,
            "lags": [lag(middle), lag(end)],
            "waiting": waiting(end["c"]),
        }


def check(told: dict[str, Any]) -> None:
    print(told)
    assert max(told["grown_mib"].values()) < told["bound_mib"]
    assert told["waiting"] < WAITING_COUNT_MAX
    assert told["read"] > 0, "the reader reads on"
    earlier, later = told["lags"]
    least_bytes = BYTES_MAX // 4
    assert later < WAITING_COUNT_MAX + HELD_BYTES // least_bytes, "it is never far behind"
    assert later < earlier + 2 * BATCH_COUNT_MAX, "and does not fall behind any further"


@pytest.mark.parametrize("blocks", [False, True], ids=["the reader waits", "its loop waits too"])
def test_the_slowest_reader_sets_the_pace(blocks: bool) -> None:
    check(overload(SECONDS, blocks))


@soak
def test_it_does_so_for_long() -> None:
    check(overload(SOAK_SECONDS, blocks=False))
