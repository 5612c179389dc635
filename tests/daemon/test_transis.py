"""[TRA-19] Process groups over one set of daemons that are a Transis group."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

import unisono
from tests.daemon.stage import joining, messages
from tests.net.recorder import free_port
from tests.waiting import LIMIT_S, eventually
from unisono.daemon import Daemon

SITES = 3


def made(place: Path, at: int, port: int) -> Daemon:
    return Daemon(
        f"unix:{place}/d{at}",
        "ring",
        protocol="transis",
        name=f"d{at}",
        port=port,
        join_s=LIMIT_S,
        sites=SITES,
        one_history=1,
    )


@pytest.mark.real
@pytest.mark.rule("TRA-19")
async def test_who_is_in_no_group_sends_to_several_and_each_message_has_one_place(
    place: Path,
) -> None:
    port = free_port()
    async with contextlib.AsyncExitStack() as stack:
        entered = [stack.enter_async_context(made(place, at, port)) for at in range(SITES)]
        found = await asyncio.gather(*entered)
        await eventually(lambda: all(len(each.ring.members) == SITES for each in found))
        groups = [
            await stack.enter_async_context(joining(place, f"{group}{at}", group=group, at=at))
            for group in ("red", "blue")
            for at in range(SITES)
        ]
        senders = [
            await stack.enter_async_context(unisono.connect(f"unix:{place}/d{at}", name=f"out{at}"))
            for at in range(SITES)
        ]

        async def send(at: int) -> None:
            for number in range(20):
                to = ("red", "blue") if number % 2 else (("red", "blue")[at % 2],)
                await senders[at].send(to, b"%d.%d" % (at, number))

        await asyncio.gather(*map(send, range(SITES)))
        counts = {"red": 30 + 10 * 2, "blue": 30 + 10}
        read = [
            [(message.seq, message.payload) for message in await messages(group, counts[name])]
            for name, group in zip(["red"] * SITES + ["blue"] * SITES, groups, strict=True)
        ]
        assert read[0] == read[1] == read[2] and read[3] == read[4] == read[5]
        both = [each for each in read[0] if each in set(read[3])]
        assert both == [each for each in read[3] if each in set(read[0])]
        assert len(both) == 30, "with one number, in one order"
