"""A group over sessions of any kind: here of one that lives in memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

import unisono
from tests.net.recorder import free_port
from unisono.config import Config, default_service
from unisono.core import Cause, Request
from unisono.delivered_counts import DeliveredCounts
from unisono.group import Group, Joining
from unisono.group.session import Session, SessionEvents
from unisono.model import Address, Member, Message, ServiceLevel, View
from unisono.protocols import spec
from unisono.requests import GoOn
from unisono.spec import ProtocolSpec

HERE = Address("127.0.0.1", 1)


def handed_over(state: bytes) -> bytes:
    return DeliveredCounts().with_state(state)


class Echo:
    """A session whose group is itself: what is submitted is delivered."""

    def __init__(self, me: Member, events: SessionEvents) -> None:
        self.me, self._events = me, events
        self.finished = False
        self.cause: Cause | None = None
        self.warning = ""
        self.credit = 1 << 20
        self.submitted: list[tuple[list[bytes], ServiceLevel, tuple[str, ...]]] = []
        self.asked: list[object] = []

    def start(self) -> None:
        self._events.opened(self.me)
        self._events.adopt(handed_over(b"state of %d" % self.me.incarnation))
        self._events.install(View((self.me,), f"v{self.me.incarnation}", seq=0))

    def send_credit(self) -> int:
        return self.credit

    def submit(
        self, messages: Sequence[bytes], service: ServiceLevel, groups: tuple[str, ...]
    ) -> None:
        first = 1 + sum(len(each) for each, _, _ in self.submitted)
        self.submitted.append((list(messages), service, groups))
        self._events.deliver(
            [
                Message(self.me, text, first + at, "v", first + at, service)
                for at, text in enumerate(messages)
            ]
        )
        self._events.stepped()

    def request(self, request: Request) -> None:
        self.asked.append(request)

    def congested(self, on: bool) -> None:
        self.asked.append(on)

    def leave(self) -> None:
        self.end(None)

    def fail(self, reason: str) -> None:
        self.end(reason)

    def end(self, reason: str | None) -> None:
        self.finished = True
        self._events.ended(reason)

    def close(self) -> None:
        self.finished = True

    def counts(self) -> Counter[str]:
        return Counter(sessions=1)

    def describe(self) -> str:
        return "an echo"


class Echoes:
    """Opens them, and keeps them all."""

    name = "a"
    founds = True
    holds = True
    message_bytes_max = 100

    def __init__(self) -> None:
        self.opened: list[Echo] = []
        self.spec: ProtocolSpec = spec("ring")
        self.default_level = default_service(self.spec)

    def level(self, asked: ServiceLevel | str) -> ServiceLevel:
        if isinstance(asked, unisono.Resilient):
            return asked
        if asked == "agreed":
            return unisono.AGREED
        raise unisono.Misuse(f"no {asked}")

    def groups(self, to: str | Sequence[str]) -> tuple[str, ...]:
        return (to,) if isinstance(to, str) else tuple(to)

    requests = (GoOn,)

    def advice(self) -> str:
        return ""

    async def open(self, events: SessionEvents) -> Session:
        me = Member(self.name, HERE, 1 + len(self.opened))
        self.opened.append(Echo(me, events))
        return self.opened[-1]


async def test_rejoining_is_the_same_over_any_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unisono.group.rejoining.PAUSE_S", 0.001)

    echoes, restored = Echoes(), []
    group = Group(Config(group="g"), echoes, lambda: b"", restored.append)
    async with Joining(group):
        assert await group.multicast_many([b"1", b"2"]) == 2
        items = [await anext(group) for _ in range(3)]
        assert [type(item) for item in items] == [View, Message, Message]
        echoes.opened[0].end("the cable was cut")
        with pytest.raises(unisono.Stopped, match="not in the group now"):
            group.request("go_on")
        again = await anext(group)
        assert isinstance(again, unisono.Rejoined)
        assert (again.reason, again.me.incarnation) == ("the cable was cut", 2)
        assert isinstance(await anext(group), View)
        assert restored == [b"state of 1", b"state of 2"], "before the view of each"
        assert group.me.incarnation == 2 and group.counters()["sessions"] == 2
        assert await group.multicast(b"3") == 1, "numbers begin anew"
    assert [item async for item in group] and group.stopped == "left the group"


async def test_messages_for_other_groups_are_not_gathered_with_our_own() -> None:
    echoes = Echoes()
    async with Joining(Group(Config(group="g"), echoes)) as group:
        (echo,) = echoes.opened
        await group.multicast(b"quiet")
        group.multicast_nowait(b"1")
        group.multicast_nowait(b"2", to="other")
        group.multicast_nowait(b"3", to=("other", "g"))
        group.multicast_nowait(b"4", to=("other", "g"))
        await asyncio.sleep(0)
        assert [(texts, groups) for texts, _, groups in echo.submitted[1:]] == [
            ([b"1"], ()),
            ([b"2"], ("other",)),
            ([b"3", b"4"], ("other", "g")),
        ]


async def test_callers_wait_for_the_session_s_credit() -> None:
    echoes = Echoes()
    async with Joining(Group(Config(group="g"), echoes)) as group:
        (echo,) = echoes.opened
        echo.credit = 0
        await group.multicast(b"takes the last of it")
        with pytest.raises(unisono.Full):
            group.multicast_nowait(b"x")
        waiting = asyncio.create_task(group.multicast(b"y", "agreed"))
        await asyncio.sleep(0)
        assert not waiting.done() and group.counters()["multicast.waiting"] == 1
        echo.credit = 10
        group._send_buffer.stepped()
        assert await waiting == 2


async def test_the_session_s_limits_are_the_group_s() -> None:
    echoes = Echoes()
    async with Joining(Group(Config(group="g"), echoes)) as group:
        with pytest.raises(unisono.TooLarge, match="101 bytes"):
            await group.multicast(bytes(101))
        with pytest.raises(unisono.Misuse, match="no safe"):
            await group.multicast(b"", "safe")
        with pytest.raises(unisono.Misuse, match="takes no arguments; given: votes"):
            group.request("go_on", votes=2)
        group.request("go_on")
        assert echoes.opened[0].asked == [Request(GoOn())]


async def test_a_state_in_the_middle_keeps_its_place_in_the_stream() -> None:
    echoes, restored = Echoes(), []
    group = Group(Config(group="g"), echoes, lambda: b"", restored.append)
    async with Joining(group):
        await group.multicast(b"1")
        group._incarnations._receive_path.adopt(handed_over(b"later"))
        await group.multicast(b"2")
        assert isinstance(await anext(group), View)
        assert (await anext(group)).payload == b"1" and restored == [b"state of 1"]  # type: ignore[union-attr]
        assert (await anext(group)).payload == b"2" and restored[1:] == [b"later"]  # type: ignore[union-attr]


async def test_a_member_learns_how_to_address_several_groups() -> None:
    async with unisono.join("g", name="a", port=free_port(), sites=1) as group:
        with pytest.raises(unisono.Misuse, match="join through a daemon with daemon="):
            await group.multicast(b"x", to="other")
        with pytest.raises(unisono.Misuse, match="to="):
            await group.multicast_many([b"x"], to=("g", "other"))
        with pytest.raises(unisono.Misuse, match="to="):
            group.multicast_nowait(b"x", to=())
