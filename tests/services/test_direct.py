"""Messages and questions to one member, in one stream with the multicasts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import unisono
from tests.daemon.stage import daemons
from tests.net.recorder import free_port
from tests.waiting import LIMIT_S, eventually
from unisono.errors import Misuse, Stopped
from unisono.model import Message
from unisono.programs import SimulatedMember
from unisono.services import direct
from unisono.services.direct import DirectGroup, Question, Unanswered, Unicast


async def read(group: DirectGroup, heard: list[str]) -> None:
    async for item in group:
        match item:
            case Question(message):
                if message.payload != b"say nothing":
                    item.answer(message.payload.upper())
            case Unicast(message):
                heard.append(f"to me: {message.payload.decode()}")
            case Message(_, payload):
                heard.append(payload.decode())


@asynccontextmanager
async def members(
    *names: str, **options: Any
) -> AsyncIterator[list[tuple[DirectGroup, list[str]]]]:
    options = options or {"port": free_port()}
    async with AsyncExitStack() as stack:
        found: list[tuple[DirectGroup, list[str]]] = []
        readers: list[asyncio.Task[None]] = []
        for name in names:
            joined = await stack.enter_async_context(direct.join("t", name=name, **options))
            heard: list[str] = []
            readers.append(asyncio.create_task(read(joined, heard)))
            found.append((joined, heard))
        await eventually(lambda: len(found[0][0].members) == len(names))
        yield found
        for reader in readers:
            reader.cancel()


async def exchange(found: list[tuple[DirectGroup, list[str]]]) -> None:
    (ann, _), (bob, bob_heard), (_, cid_heard) = found
    await ann.multicast(b"1")
    await ann.send("bob", b"2")
    await ann.multicast(b"3")
    await ann.send(bob.me, b"4")
    assert await ann.ask("bob", b"five", LIMIT_S) == b"FIVE"
    assert bob_heard == ["1", "to me: 2", "3", "to me: 4"], "in the order of sending"
    last = await ann.multicast(b"6").delivered
    assert last.payload.endswith(b"6")
    await eventually(lambda: cid_heard == ["1", "3", "6"])
    assert await ann.ask(ann.me, b"self", LIMIT_S) == b"SELF"


async def test_only_the_addressee_reads_it_in_order() -> None:
    async with members("ann", "bob", "cid") as found:
        await exchange(found)
        ann = found[0][0]
        with pytest.raises(TimeoutError):
            await ann.ask("bob", b"say nothing", timeout=0.05)
        with pytest.raises(Misuse, match="dan is not in the group, which has ann, bob, cid"):
            ann.send("dan", b"")


async def test_through_the_daemon(place: Path) -> None:
    async with daemons(place), members("ann", "bob", "cid", daemon=f"{place}/d0") as found:
        await exchange(found)


async def test_one_that_leaves_answers_no_more() -> None:
    async with members("ann", "bob") as ((ann, _), (bob, _)):
        asking = asyncio.create_task(ann.ask("bob", b"say nothing", LIMIT_S))
        await eventually(lambda: ann._asked)
        await bob.leave()
        with pytest.raises(Unanswered, match=r"bob#\d+ was asked and is no longer in the group"):
            await asking
        asking = asyncio.create_task(ann.ask("ann", b"say nothing", LIMIT_S))
        await asyncio.sleep(0)
        await ann.leave()
        with pytest.raises(Stopped):
            await asking


async def test_a_question_is_answered_once() -> None:
    async with direct.join("t", name="ann", port=free_port()) as ann:
        asking = asyncio.create_task(ann.ask("ann", b"?", LIMIT_S))
        async for item in ann:
            if isinstance(item, Question):
                item.answer(b"!")
                with pytest.raises(Misuse, match="answer once"):
                    item.answer(b"!")
                break
        reading = asyncio.create_task(anext(ann))
        assert await asking == b"!"
        reading.cancel()


async def test_views_from_before_the_question_do_not_end_it() -> None:
    port = free_port()
    async with (
        direct.join("t", name="ann", port=port) as ann,
        direct.join("t", name="bob", port=port) as bob,
    ):
        await eventually(lambda: len(ann.members) == 2)
        asking = asyncio.create_task(ann.ask("bob", b"x", LIMIT_S))
        readers = [asyncio.create_task(read(each, [])) for each in (ann, bob)]
        assert await asking == b"X", "ann reads the view of herself alone first"
        for reader in readers:
            reader.cancel()


class Talk:
    def __init__(self) -> None:
        self.read: dict[str, list[int]] = {}
        self.answered: list[tuple[int, bytes]] = []


async def talk(state: Talk) -> None:
    async with direct.join("sim") as group:

        async def speak() -> None:
            for number in range(12):
                await asyncio.sleep(random.uniform(0.02, 0.3))
                to = random.choice(group.members)
                match random.randrange(3):
                    case 0:
                        await group.multicast(b"%d" % number)
                    case 1:
                        await group.send(to, b"%d" % number)
                    case 2:
                        try:
                            found = await group.ask(to, b"%d" % number, 2)
                        except (TimeoutError, unisono.UnisonoError):
                            continue
                        state.answered.append((number, found))

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(speak())
            async for item in group:
                if isinstance(item, Question):
                    item.answer(b"%s %s" % (group.me.name.encode(), item.message.payload))
                if isinstance(item, Message | Question | Unicast):
                    message = item if isinstance(item, Message) else item.message
                    number = int(message.payload)
                    state.read.setdefault(str(message.sender), []).append(number)


def first_in_first_out(members: Sequence[SimulatedMember]) -> None:
    for member in members:
        for sender, numbers in member.state.read.items():
            assert numbers == sorted(set(numbers)), f"{member.name} read {numbers} of {sender}"
        for number, answer in member.state.answered:
            assert int(answer.split()[1]) == number


@pytest.mark.parametrize("protocol", ["ring", "mtp", "rmcast", "rmp"])
def test_it_is_first_in_first_out_under_faults(protocol: str) -> None:
    unisono.chaos(seeds=2, nodes=3, protocol=protocol, invariant=first_in_first_out)(talk)()


@pytest.mark.soak
@pytest.mark.parametrize("protocol", ["ring", "mtp", "rmcast", "rmp"])
def test_it_is_first_in_first_out_under_many_faults(protocol: str) -> None:
    unisono.chaos(seeds=400, nodes=3, protocol=protocol, invariant=first_in_first_out)(talk)()
