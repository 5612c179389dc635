"""[TRA-19] Process groups over one set of daemons that are a Transis group."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
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


@contextlib.asynccontextmanager
async def transis_daemons(place: Path) -> AsyncIterator[contextlib.AsyncExitStack]:
    port = free_port()
    async with contextlib.AsyncExitStack() as stack:
        entered = [stack.enter_async_context(made(place, at, port)) for at in range(SITES)]
        found = await asyncio.gather(*entered)
        await eventually(lambda: all(len(each.ring.members) == SITES for each in found))
        yield stack


@pytest.mark.real
@pytest.mark.rule("TRA-19")
async def test_who_is_in_no_group_sends_to_several_and_each_message_has_one_place(
    place: Path,
) -> None:
    async with transis_daemons(place) as stack:
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


@pytest.mark.real
@pytest.mark.rule("TRA-19")
async def test_a_closed_group_refuses_an_outsider_and_goes_on(place: Path) -> None:
    async with (
        transis_daemons(place),
        joining(place, "a", group="shut", closed=True) as a,
        joining(place, "b", group="shut", at=1, closed=True) as b,
        joining(place, "c", group="open", at=1) as c,
        unisono.connect(f"unix:{place}/d2", name="out") as out,
    ):
        with pytest.raises(unisono.ClosedGroup, match="shut; join to send there") as refused:
            await out.send(("open", "shut"), b"1").ordered
        assert refused.value.groups == ("shut",)
        with pytest.raises(unisono.ClosedGroup):
            await c.multicast(b"2", to=("open", "shut")).delivered
        with pytest.raises(unisono.Stopped, match="closed=true and this member has closed=false"):
            await joining(place, "d", group="shut")
        place_of = await out.send("open", b"3").ordered
        await b.multicast(b"4", to=("open", "shut"))
        (three, four), (also,), (same,) = [
            await messages(c, 2),
            await messages(a, 1),
            await messages(b, 1),
        ]
        assert (three.payload, three.seq, four.payload) == (b"3", place_of, b"4")
        assert four.seq == also.seq == same.seq, "those that were refused are in no group"
