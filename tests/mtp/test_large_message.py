"""The largest message that a group takes is delivered; one byte more is refused."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest

from tests.mtp.process import Process
from tests.mtp.soaking import soak
from tests.net.recorder import free_port
from tests.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.slow]

MIB = 1 << 20
NAMES = ("a", "b", "c")


def say(sender: str, octets: int, masters: int, **join: int) -> dict[str, Any]:
    port = free_port()
    with contextlib.ExitStack() as stack:
        web = {}
        for rank, name in enumerate(NAMES, 1):
            given = {"group": "large", "name": name, "port": port, "masters": masters, **join}
            given["master"] = rank if rank <= masters else 0
            web[name] = stack.enter_context(Process({"join": given, "every": 1}))
        until(lambda: all(each.view == [*NAMES] for each in web.values()), "one view")
        began = time.monotonic()
        web[sender].write(f"say {octets}")
        until(lambda: all(each.count == 1 for each in web.values()), "the message")
        took_s = round(time.monotonic() - began, 2)
        assert len({each.digests[1] for each in web.values()}) == 1
        grown = {
            name: each.ask()["rss_max"] - each.of("joined")[0]["rss"] for name, each in web.items()
        }
        web[sender].write(f"say {octets + 1}")
        until(lambda: web[sender].of("refused"), "a refusal")
        (refused,) = web[sender].of("refused")
        assert all(each.view == [*NAMES] for each in web.values()), "no member was lost over it"
        return {"took_s": took_s, "grown": grown, "refused": refused["why"]}


def check(told: dict[str, Any], octets: int) -> None:
    print(told)
    assert f"message_bytes_max={octets}" in told["refused"]
    assert f"{octets + 1} bytes" in told["refused"]
    assert max(told["grown"].values()) < octets * 3 // 2 + 12 * MIB, "it is never there twice"


@pytest.mark.parametrize(("sender", "masters"), [("a", 1), ("b", 1), ("b", 3)])
def test_the_largest_message_is_delivered_and_one_byte_more_is_refused(
    sender: str, masters: int
) -> None:
    check(say(sender, 8 * MIB, masters, message_bytes_max=8 * MIB), 8 * MIB)


@soak
@pytest.mark.parametrize("masters", [1, 3])
def test_the_largest_message_by_default_goes_through(masters: int) -> None:
    check(say("b", 64 * MIB, masters), 64 * MIB)
