"""A replayable group on real sockets: the same offsets for all, rows once, recalls of the past."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import unisono
from tests import waiting
from tests.daemon.stage import daemons
from unisono.group import Group
from unisono.replay_history import RecallChoice

pytestmark = pytest.mark.real


def joining(port: int, name: str, **options: Any) -> unisono.Joining:
    where = {"multicast": "239.192.77.9", "port": port, "join_s": waiting.LIMIT_S}
    return unisono.join("orders", name=name, replayable=True, **{**where, **options})


class Reader:
    """Reads a group in the background, as an application does."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.items: list[Any] = []
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for item in self.group:
            self.items.append(item)

    @property
    def placed(self) -> list[tuple[int | None, bytes]]:
        return [(m.seq, m.payload) for m in self.items if isinstance(m, unisono.Message)]

    async def upto(self, place: int) -> list[tuple[int | None, bytes]]:
        while not self.placed or (self.placed[-1][0] or 0) < place:
            await asyncio.sleep(0.01)
        return self.placed


@asynccontextmanager
async def reading(*groups: Group) -> AsyncIterator[list[Reader]]:
    readers = [Reader(group) for group in groups]
    try:
        yield readers
    finally:
        for reader in readers:
            reader.task.cancel()


def numbered(*payloads: bytes, start: int = 1) -> list[tuple[int, bytes]]:
    return list(enumerate(payloads, start))


async def test_members_and_joiners_count_alike_and_receive_rows_once(port: int) -> None:
    async with joining(port, "a") as a, joining(port, "b") as b, reading(a, b) as (ra, rb):
        await a.multicast_many([b"x", b"\xf5y"])
        await a.multicast_rows("q", 0, 1, 0, [b"r0", b"r1"])
        await ra.upto(4)
        async with joining(port, "c") as c, reading(c) as (rc,):
            # A task is retried elsewhere, and sends all again.
            await b.multicast_rows("q", 0, 1, 0, [b"r0", b"r1", b"r2"])
            await ra.upto(5)
            await c.multicast(b"z")
            whole = numbered(b"x", b"\xf5y", b"r0", b"r1", b"r2", b"z")
            assert await ra.upto(6) == await rb.upto(6) == whole
            assert await rc.upto(6) == whole[4:]
            assert a.incarnation == b.incarnation == c.incarnation and len(a.incarnation) == 32
            assert b.counters()["replay.repeated"] == 2
            rows = [m for m in ra.items if isinstance(m, unisono.Message) and m.payload[:1] == b"r"]
            assert {m.service for m in rows} == {unisono.SAFE}
            past = [message async for part in c.recall(1, 4) for message in part]
            assert [(m.seq, m.payload) for m in past] == whole[:4]
            assert [m.sender for m in past] == [a.me] * 4
            with pytest.raises(unisono.Forgotten, match="offsets 50 to 60"):
                await anext(c.recall(50, 60))
            with pytest.raises(unisono.Misuse, match="begin at 1 or above"):
                await anext(c.recall(0, 6))


async def test_a_long_history_is_recalled_in_parts_as_far_as_it_is_kept(port: int) -> None:
    kept = {"retain_bytes": 200 * 1064}
    async with joining(port, "a", **kept) as a, reading(a) as (ra,):
        await a.multicast_many([n.to_bytes(4, "big") + bytes(996) for n in range(1, 501)])
        await ra.upto(500)
        async with joining(port, "b", **kept) as b, reading(b):
            parts = [part async for part in b.recall(1, 500)]
            assert len(parts) > 1
            past = [message for part in parts for message in part]
            assert [m.seq for m in past] == list(range(301, 501))
            assert all(int.from_bytes(m.payload[:4], "big") == m.seq for m in past)


async def test_a_requester_that_is_gone_is_sent_no_more(port: int) -> None:
    async with joining(port, "a") as a, joining(port, "b") as b, reading(a, b) as (ra, _):
        await a.multicast_many([bytes(30_000) for _ in range(200)])
        await ra.upto(200)
        assert b._replay is not None
        recalls = b._replay.recalls
        said: list[bytes] = []

        async def send(payloads: Sequence[bytes], service: Any) -> int:
            said.extend(payloads)
            await asyncio.sleep(0)
            return 0

        recalls._send = send
        gone = a.me._replace(name="gone")
        for who in (gone, a.me):
            recalls.deliver(RecallChoice(1, who, str(b.me), 1, 200))
        # A new recall replaces the former.
        recalls.deliver(RecallChoice(2, a.me, str(b.me), 199, 200))
        while recalls._answers:
            await asyncio.sleep(0.01)
        assert 1 <= len(said) <= 3


class Shelf:
    """An archive that has all from the beginning."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    first = 1

    @property
    def last(self) -> int:
        return len(self.kept)

    @property
    def kept(self) -> list[unisono.Message]:
        return [item for item in self.items if isinstance(item, unisono.Message)]

    def messages(self, first: int, last: int) -> list[unisono.Message]:
        return self.kept[first - 1 : last]


async def test_an_archive_reaches_back_further(port: int) -> None:
    async with joining(port, "a", retain_bytes=200) as a, reading(a) as (ra,):
        a.archive = Shelf(ra.items)
        await a.multicast_many([b"%d" % n for n in range(1, 101)])
        await ra.upto(100)
        async with joining(port, "b") as b, reading(b):
            past = [m async for part in b.recall(1, 100) for m in part]
            assert [(m.seq, m.payload) for m in past] == ra.placed


async def test_the_application_s_own_state_is_handed_over_beside_it(port: int) -> None:
    states: list[bytes] = []

    def keeping(name: str, own: bytes) -> unisono.Joining:
        return joining(port, name, snapshot=lambda: own, restore=states.append)

    async with keeping("a", b"of a") as a, reading(a) as (ra,):
        await a.multicast(b"x")
        await ra.upto(1)
        async with keeping("b", b"of b") as b, reading(b) as (rb,):
            await b.multicast(b"y")
            assert await rb.upto(2) == [(2, b"y")]
            assert states == [b"of a"]


async def test_clients_of_a_daemon_count_alike(place: Path) -> None:
    async with daemons(place):
        through = {"daemon": f"{place}/d0", "replayable": True, "join_s": waiting.LIMIT_S}
        async with (
            unisono.join("orders", name="a", **through) as a,
            reading(a) as (ra,),
        ):
            await a.multicast(b"x")
            await a.multicast_rows("q", 0, 0, 0, [b"r0"])
            await ra.upto(2)
            async with unisono.join("orders", name="b", **through) as b, reading(b) as (rb,):
                await b.multicast_rows("q", 0, 0, 0, [b"r0", b"r1"])
                assert await rb.upto(3) == [(3, b"r1")]
                assert await ra.upto(3) == numbered(b"x", b"r0", b"r1")
                assert a.incarnation == b.incarnation
                past = [m async for part in b.recall(1, 2) for m in part]
                assert [(m.seq, m.payload) for m in past] == numbered(b"x", b"r0")


async def test_a_recall_keeps_within_the_limit_of_a_message(port: int) -> None:
    limit: dict[str, Any] = {"message_bytes_max": 2000}
    sizes = [*range(500), *(1000, 2000) * 25]
    async with (
        joining(port, "a", **limit) as a,
        joining(port, "b", **limit) as b,
        reading(a, b) as (ra, rb),
    ):
        await a.multicast_many(list(map(bytes, sizes)))
        await ra.upto(len(sizes))
        await rb.upto(len(sizes))
        past = [m async for part in b.recall(1, len(sizes)) for m in part]
        assert [len(m.payload) for m in past] == sizes
        items = (*ra.items, *rb.items)
        assert not [item for item in items if isinstance(item, unisono.Rejoined)]


async def test_a_client_s_rows_and_recalls_keep_within_the_daemon_s_limit(place: Path) -> None:
    async with daemons(place, message_bytes_max=3000):
        through: Any = {"daemon": f"{place}/d0", "replayable": True, "join_s": waiting.LIMIT_S}
        async with (
            unisono.join("orders", name="a", rejoin=False, **through) as a,
            unisono.join("orders", name="b", rejoin=False, **through) as b,
            reading(a, b) as (ra, rb),
        ):
            with pytest.raises(unisono.TooLarge, match="message_bytes_max=1976"):
                await a.multicast_rows("q", 0, 0, 0, [bytes(1977)])
            await a.multicast_rows("q", 0, 0, 0, [bytes(1976)] * 50)
            await ra.upto(50)
            await rb.upto(50)
            past = [m async for part in b.recall(1, 50) for m in part]
            assert len(past) == 50 and a.stopped is None and b.stopped is None


async def test_what_a_fed_group_cannot_be(port: int) -> None:
    with pytest.raises(
        unisono.Misuse, match="rmcast with service=causal has not: use ring, rmp or mtp"
    ):
        unisono.join("orders", protocol="rmcast", replayable=True)
    with pytest.raises(unisono.Misuse, match="one total order for all, which transis with"):
        unisono.join("orders", protocol="transis", replayable=True)
    with pytest.raises(unisono.Misuse, match="shed"):
        unisono.join("orders", replayable=True, slow="shed")

    async with joining(port, "a") as a:
        with pytest.raises(unisono.Misuse, match=r"does not|has not"):
            await a.multicast(b"x", service="causal")
    async with unisono.join("plain", multicast="239.192.77.9", port=port, join_s=30) as plain:
        for asks in (
            lambda: plain.incarnation,
            lambda: plain.recall(1, 2),
            lambda: plain.archive,
        ):
            with pytest.raises(unisono.Misuse, match="replayable=True"):
                asks()
        with pytest.raises(unisono.Misuse, match="replayable=True"):
            await plain.multicast_rows("q", 0, 0, 0, [b"x"])
