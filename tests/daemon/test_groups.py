"""Groups through daemons: the same API, and what a daemon adds to it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import unisono
from tests.daemon.stage import (
    RING,
    daemon,
    daemons,
    heard,
    joining,
    messages,
    of_size,
    role,
    stopped,
)
from tests.net.recorder import free_port
from tests.waiting import eventually

pytestmark = pytest.mark.real


async def test_clients_of_two_daemons_receive_one_stream_and_leave_cleanly(place: Path) -> None:
    async with daemons(place, 2), joining(place, "a") as a, joining(place, "b", at=1) as b:
        assert isinstance(a, unisono.Group)
        view = await of_size(a, 2)
        assert view.id == b.view.id and [who.name for who in a.members] == ["a", "b"]
        assert view.joined == (b.me,) and a.protocol == RING and a.stopped is None
        for name, what in vars(unisono.Group).items():
            if isinstance(what, property) and name not in ("offset", "incarnation", "archive"):
                getattr(a, name)  # all that a member knows, a client knows
        assert a.blocked == ""
        assert await a.multicast(b"one") == 1
        assert await b.multicast_many([b"two", b"three"]) == 2
        assert a.multicast_nowait(b"four") == 2
        found = [await messages(each, 4) for each in (a, b)]
        assert found[0] == found[1]
        seqs = [message.seq for message in found[0]]
        assert seqs == list(range(seqs[0], seqs[0] + 4)), "each its place"
        gone = b.me
        await b.leave()
        assert (await of_size(a, 1)).left == (gone,)
        assert [item async for item in b] == [], "a clean end"
        assert b.stopped == "left the group"
        with pytest.raises(unisono.Stopped, match="left the group"):
            await b.multicast(b"five")
        counters = a.counters()
        assert counters["in.message"] == 4 and counters["out.message"] == 2


async def test_batches_and_large_messages_go_through(place: Path) -> None:
    async with daemons(place, 2), joining(place, "a") as a, joining(place, "b", at=1) as b:
        large = bytes(range(256)) * 20_000
        payloads = [b"", b"x", large, *[str(i).encode() for i in range(5000)]]
        saying = asyncio.create_task(a.multicast_many(payloads))
        found: list[bytes] = []
        async for batch in b.batches():
            found += [item.payload for item in batch if isinstance(item, unisono.Message)]
            if len(found) == len(payloads):
                break
        assert found == payloads
        assert await saying == len(payloads)
        calls = b.counters()["local.in.calls"]
        assert calls < 500, "many messages a read"


async def test_a_message_to_several_groups_has_one_place_in_one_order(place: Path) -> None:
    async with (
        daemons(place, 2),
        joining(place, "a", "red") as a,
        joining(place, "b", "blue", at=1) as b,
        joining(place, "c", "green", at=1) as c,
    ):
        for i in range(50):
            await a.multicast(f"a{i}".encode(), to=("red", "blue"))
            await b.multicast(f"b{i}".encode(), to=["blue", "red", "blue"])
        await a.multicast(b"end", to=("red", "blue", "green"))
        await b.multicast(b"end", to=("red", "blue", "green"))
        red, blue = [await messages(each, 102) for each in (a, b)]
        strip = lambda found: [message._replace(view="") for message in found]  # noqa: E731
        assert strip(red) == strip(blue), "the same places"
        assert len({message.seq for message in red}) == 102
        assert await heard(c, 2) == [b"end", b"end"], "and nothing else"


async def test_a_connection_without_a_group_may_send(place: Path) -> None:
    async with (
        daemons(place, 2),
        joining(place, "a", "red") as a,
        joining(place, "b", "x") as b,
    ):
        async with unisono.connect(f"unix:{place}/d1", name="out") as out:
            assert await out.send("red", b"1") == 1
            assert await out.send(("red", "x"), b"2") == 2
            assert await out.send_many(["red"], [b"3", b"4"], service="agreed") == 4
            assert await out.send("nobody", b"5") == 5
            last = await out.send("red", b"6").ordered
            me = out.me
        assert out.stopped == "the connection was closed"
        with pytest.raises(unisono.Stopped, match="closed"):
            await out.send("red", b"6")
        found = await messages(a, 5)
        assert [(m.sender, m.number, m.payload) for m in found] == [
            (me, number, str(number).encode()) for number in (1, 2, 3, 4, 6)
        ]
        assert last == found[-1].seq
        assert me.name == "out" and me not in a.members
        assert await heard(b, 1) == [b"2"]


class Book:
    """An application whose state is all it delivered."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.restored = False

    def snapshot(self) -> bytes:
        return b"\n".join(self.lines)

    def restore(self, state: bytes) -> None:
        self.lines = state.split(b"\n") if state else []
        self.restored = True

    async def follow(self, group: Any) -> None:
        async for item in group:
            if isinstance(item, unisono.Message):
                self.lines.append(item.payload)


async def test_a_joiner_gets_the_state_as_of_its_join(place: Path) -> None:
    async def talk(group: Any, count: int) -> None:
        for i in range(count):
            await group.multicast(str(i).encode())
            await asyncio.sleep(0.002)

    async with daemons(place, 2), asyncio.TaskGroup() as tasks:
        books = [Book() for _ in range(4)]
        groups: list[Any] = []
        following = []
        talking = None
        for at, book in enumerate(books):
            keywords = {"snapshot": book.snapshot, "restore": book.restore, "at": at % 2}
            group = await joining(place, f"m{at}", **keywords)
            groups.append(group)
            following.append(tasks.create_task(book.follow(group)))
            if talking is None:
                talking = tasks.create_task(talk(group, 400))
                await eventually(lambda: len(books[0].lines) > 50)
        assert talking is not None
        await talking
        await eventually(lambda: all(len(book.lines) == 400 for book in books))
        assert [book.restored for book in books] == [False, True, True, True]
        assert all(book.lines == books[0].lines for book in books)
        for group in groups:
            await group.leave()


async def test_when_the_giver_goes_another_one_gives(place: Path) -> None:
    async with daemons(place, 2):
        first, third = Book(), Book()
        of = lambda book: {"snapshot": book.snapshot, "restore": book.restore}  # noqa: E731
        mute = await joining(place, "mute", **of(first))
        # The first reads nothing, so it gives nothing; and then it goes.
        waiting = asyncio.ensure_future(joining(place, "late", at=1, **of(third))._group._join())
        await of_size(mute, 1)
        await eventually(lambda: len(mute.members) == 2)
        await mute.multicast(b"said in between")
        assert not waiting.done()
        await mute.leave()
        late = await waiting
        assert not third.restored, "no client is left that has the state"
        assert await heard(late, 1) == [b"said in between"], "but nothing is lost"
        await late.leave()


async def test_a_state_that_is_too_large_is_reported_to_the_joiner(place: Path) -> None:
    async with daemons(place, message_bytes_max=1000):
        state = {"snapshot": lambda: b"x" * 1001, "restore": lambda data: None}
        a = await joining(place, "a", **state)
        reading = asyncio.create_task(of_size(a, 3))
        with pytest.raises(unisono.Stopped, match="1001 bytes, over message_bytes_max=1000"):
            await joining(place, "b", **state)
        await eventually(lambda: len(a.members) == 1)
        reading.cancel()
        await a.leave()


async def test_a_daemon_that_joins_later_knows_the_groups(place: Path) -> None:
    port = free_port()
    async with daemon(place, 0, port) as d0, joining(place, "a") as a:
        await a.multicast(b"before")
        async with daemon(place, 1, port) as d1, joining(place, "b", at=1) as b:
            assert [who.name for who in b.view.members] == ["a", "b"]
            await a.multicast(b"after")
            assert await heard(b, 1) == [b"after"]
            assert await heard(a, 2) == [b"before", b"after"]
            assert a.view.id == b.view.id and a.view.members == b.view.members
            assert d0.registry.snapshot() == d1.registry.snapshot()


async def test_names_are_the_groups_own(place: Path) -> None:
    async with daemons(place, 2), joining(place, "a", "red"), joining(place, "a", "blue"):
        with pytest.raises(unisono.Stopped, match="name a is taken in group red: give another"):
            await joining(place, "a", "red", at=1)


async def test_levels_are_those_of_the_daemons_protocol(place: Path) -> None:
    async with daemons(place), joining(place, "a", service="fifo") as a:
        await a.multicast(b"1")
        await a.multicast(b"2", service=unisono.AGREED)
        one, two = await messages(a, 2)
        assert (one.service, one.seq) == (unisono.Service.FIFO, None)
        assert two.service is unisono.AGREED and two.seq is not None
        with pytest.raises(unisono.Misuse, match="does not offer resilient"):
            await a.multicast(b"3", service="resilient(2)")
        with pytest.raises(unisono.Misuse, match="does not offer resilient"):
            await joining(place, "b", service="resilient(2)")


async def test_the_caller_s_mistakes_are_reported(place: Path) -> None:
    with pytest.raises(unisono.Stopped, match=r"no daemon answers at unix:.*: start one with"):
        await joining(place, "a")
    with pytest.raises(unisono.Stopped, match=r"no daemon answers"):
        await unisono.connect(f"{place}/d0")
    async with daemons(place, message_bytes_max=1000), joining(place, "a") as a:
        with pytest.raises(unisono.TooLarge, match="message_bytes_max=1000"):
            await a.multicast(b"x" * 1001)
        with pytest.raises(unisono.Misuse, match="a message is bytes, not str"):
            await a.multicast("x")
        with pytest.raises(unisono.Misuse, match="group 'a b'"):
            await a.multicast(b"x", to="a b")
        with pytest.raises(unisono.Misuse, match="has 0 groups: give 1 to 64"):
            await a.multicast(b"x", to=())
        with pytest.raises(unisono.Misuse, match="ring takes no request 'vote', but lock, rel"):
            await a.vote(1)
        out = await unisono.connect(f"{place}/d0")
        with pytest.raises(unisono.TooLarge):
            await out.send("g", b"x" * 1001)
        await out.close()
    for text in ("d0", "tcp:10.0.0.1:7401", "tcp:localhost:1", "unix:", "/" + "x" * 120):
        with pytest.raises(unisono.Misuse, match="daemon"):
            unisono.join("g", daemon=text)
    for option in ({"peers": "127.0.0.1:1"}, {"protocol": "mtp"}, {"master": 1}, {"trace": "x"}):
        with pytest.raises(
            unisono.Misuse, match=f"^{next(iter(option))}= cannot be used with daemon="
        ):
            unisono.join("g", daemon="/d0", **option)
    with pytest.raises(unisono.Misuse, match="go together"):
        unisono.join("g", daemon="/d0", snapshot=lambda: b"")
    with pytest.raises(unisono.Misuse, match="name"):
        unisono.connect("/d0", name="a b")


async def test_a_file_may_name_the_daemon(place: Path) -> None:
    file = place / "group.toml"
    file.write_text(f'[group]\ngroup = "g"\ndaemon = "unix:{place}/d0"\n')
    async with daemons(place) as (one,), unisono.join(config=file, name="a") as a:
        assert a.me.name == "a" and a.me.address == one.ring.me.address


async def test_tcp_on_loopback_serves_as_well(place: Path) -> None:
    one = daemon(place, 0, free_port())
    both = type(one)(
        ["tcp:127.0.0.1:0", f"{place}/x"],
        "ring",
        protocol=RING,
        port=free_port(),
        **role(0),
    )
    async with both:
        tcp, unix = both.at
        async with (
            unisono.join("g", daemon=str(tcp), name="a") as a,
            unisono.join("g", daemon=str(unix), name="b") as b,
        ):
            await b.multicast(b"x")
            assert await heard(a, 1) == [b"x"]


async def test_a_clean_leave_receives_all_that_was_sent_before_it(place: Path) -> None:
    async with daemons(place, 2), joining(place, "a") as a, joining(place, "b", at=1) as b:
        await a.multicast_many([b"%d" % i for i in range(1000)])
        await a.leave()
        own = [item.payload async for item in a if isinstance(item, unisono.Message)]
        assert own == [b"%d" % i for i in range(1000)]
        assert len(await heard(b, 1000)) == 1000
        assert (await of_size(b, 1)).left[0].name == "a"


async def test_the_daemon_s_own_end_is_reported_at_once(place: Path) -> None:
    async with daemons(place) as (one,), unisono.connect(f"{place}/d0") as out:
        a = await joining(place, "a")
        await one.close()
        assert await stopped(a) == "the daemon was stopped"
        with pytest.raises(unisono.Stopped, match="the daemon was stopped"):
            await a.multicast(b"x")
        await eventually(lambda: out.stopped is not None)
        with pytest.raises(unisono.Stopped, match="the daemon was stopped"):
            await out.send("g", b"x")


async def test_a_sender_waits_for_its_delivery_through_daemons(place: Path) -> None:
    async with (
        daemons(place, 2),
        joining(place, "a") as a,
        joining(place, "b", at=1) as b,
    ):
        await of_size(a, 2)
        first = await a.multicast(b"one").delivered
        assert (first.payload, first.number) == (b"one", 1)
        assert (await a.multicast(b"two", to=["g", "h"]).delivered).payload == b"two"
        with pytest.raises(unisono.Misuse, match="for other groups"):
            _ = a.multicast(b"three", to="h").delivered
        assert await heard(b, 2) == [b"one", b"two"]
