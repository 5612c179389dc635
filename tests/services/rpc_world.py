"""RPC groups under virtual time: the real service over a total order in memory and lossy datagrams.

The event loop's clock jumps to the next timer, so a run takes no time and, for a seed, is always
the same.
"""

from __future__ import annotations

import asyncio
import itertools
import selectors
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from random import Random
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from unisono.errors import Misuse, Stopped
from unisono.group import Group, Rejoined
from unisono.model import (
    Address,
    Buffer,
    Change,
    ChangeKind,
    Member,
    Message,
    Service,
    ServiceLevel,
    View,
)
from unisono.services import rpc

T = TypeVar("T")


class _NoWaiting(selectors.SelectSelector):
    """Instead of waiting for a socket, time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "the run waits for something that never happens"
            self.now_s += max(0.0, timeout)
        return ready


class Network:
    """Datagrams, lost, delayed, repeated and reordered as the dice fall."""

    def __init__(self, dice: Random, loss: float, delay_s: float = 0.001) -> None:
        self.dice, self.loss, self.delay_s = dice, loss, delay_s
        self.ends: dict[Address, asyncio.DatagramProtocol] = {}
        self.cut: set[str] = set()
        """Hosts whose datagrams are all lost."""
        self.sent_count = 0
        self.opens = True
        """Whether sockets can be opened."""

    def send(self, source: Address, to: Address, packet: bytes) -> None:
        self.sent_count += 1
        if source.host in self.cut or to.host in self.cut:
            return
        for _ in range(1 + (self.dice.random() < self.loss / 4)):
            if self.dice.random() >= self.loss:
                after_s = self.delay_s * (1 + self.dice.random() * 5 * bool(self.loss))
                asyncio.get_running_loop().call_later(after_s, self._arrive, source, to, packet)

    def _arrive(self, source: Address, to: Address, packet: bytes) -> None:
        if end := self.ends.get(to):
            end.datagram_received(packet, source)


class _Transport:
    def __init__(self, network: Network, address: Address) -> None:
        self._network, self._address = network, address
        self._closing = False

    def sendto(self, packet: bytes, to: Address) -> None:
        self._network.send(self._address, Address(*to), packet)

    def get_extra_info(self, name: str) -> Address:
        return self._address

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True
        self._network.ends.pop(self._address, None)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is virtual and whose datagrams go over a `Network`."""

    def __init__(self, network: Network) -> None:
        self._clock = _NoWaiting()
        super().__init__(self._clock)
        self._network = network
        self._ports = itertools.count(40_000)

    def time(self) -> float:
        return self._clock.now_s

    async def create_datagram_endpoint(  # type: ignore[override]
        self, factory: Callable[[], asyncio.DatagramProtocol], *, local_addr: tuple[str, int]
    ) -> tuple[Any, Any]:
        if not self._network.opens:
            raise OSError("too many open files")
        end = factory()
        address = Address(local_addr[0], next(self._ports))
        self._network.ends[address] = end
        return _Transport(self._network, address), end


class MemoryGroup:
    """One member's end of an `Order`, with the part of a `Group` that the service uses."""

    def __init__(self, order: Order, me: Member, **config: Any) -> None:
        self.config = SimpleNamespace(
            **{"group": "g", "daemon": "", "service": "", "slow": "block", **config}
        )
        self.me = me
        self.blocked = ""
        self._order = order
        self._queue: deque[Any] = deque()
        self._news = asyncio.Event()
        self._ended: Exception | None = None
        self._sent = 0

    @property
    def view(self) -> View:
        return self._order.view

    @property
    def members(self) -> tuple[Member, ...]:
        return self.view.members

    def multicast(self, payload: Buffer, service: ServiceLevel = Service.AGREED) -> Awaitable[int]:
        if self._ended is not None:
            raise Stopped("over")
        self._sent += 1
        multicast = self._order.multicast(self.me, bytes(payload), self._sent)
        return asyncio.ensure_future(multicast)  # It is under way, whether awaited or not.

    def multicast_many(
        self, payloads: Iterable[Buffer], service: ServiceLevel | None = None
    ) -> Awaitable[list[int]]:
        if service is not None and service not in self._order.services:
            raise Misuse(f"no {service}")
        return asyncio.gather(*(self.multicast(payload) for payload in payloads))

    def put(self, item: object) -> None:
        self._queue.append(item)
        self._news.set()

    def end(self, error: Exception) -> None:
        self._ended = error
        self._news.set()

    async def __anext__(self) -> Any:
        while not self._queue:
            if self._ended is not None:
                raise self._ended
            self._news.clear()
            await self._news.wait()
        return self._queue.popleft()

    async def leave(self) -> None:
        self._order.remove(self.me, ChangeKind.LEFT)


class Order:
    """A total order of messages and views. Members get it one after the other, each in time."""

    def __init__(self, dice: Random, delay_s: float = 0.002) -> None:
        self.dice, self.delay_s = dice, delay_s
        self.services: tuple[Service, ...] = (Service.AGREED, Service.SAFE)
        self.groups: dict[Member, MemoryGroup] = {}
        self.view = View((), "0")
        self.log: list[tuple[bytes, View]] = []
        """Each message, with the view it was ordered in."""
        self.stalled = False
        """Nothing is ordered: what is multicast is lost."""
        self._incarnations = itertools.count(1)

    async def multicast(self, sender: Member, payload: bytes, number: int) -> int:
        await asyncio.sleep(0)
        if not self.stalled and sender in self.groups:
            self.log.append((payload, self.view))
            self._give(
                Message(sender, payload, number, self.view.id, len(self.log), Service.AGREED)
            )
        return number

    def _give(self, item: object) -> None:
        for group in self.groups.values():
            group.put(item)

    def add(self, name: str, **config: Any) -> MemoryGroup:
        index = next(self._incarnations)
        me = Member(name, Address(f"10.0.0.{index}", 4000), index)
        group = self.groups[me] = MemoryGroup(self, me, **config)
        self._install((*self.members, me), Change(ChangeKind.JOINED, (me,)))
        return group

    def remove(self, member: Member, how: ChangeKind) -> None:
        """It leaves, crashes, or is excluded; the others get a view without it."""
        group = self.groups.pop(member, None)
        if group is None:
            return
        group.end(StopAsyncIteration() if how is ChangeKind.LEFT else Stopped("excluded"))
        self._install(tuple(m for m in self.members if m != member), Change(how, (member,)))

    def exclude_and_readmit(self, member: Member) -> Member:
        """The member is excluded, and its process comes back as the next incarnation."""
        group = self.groups.pop(member)
        others = tuple(m for m in self.members if m != member)
        self._install(others, Change(ChangeKind.FAILED, (member,)))
        again = member._replace(incarnation=next(self._incarnations))
        group.me = again
        group.put(Rejoined("excluded", again))
        self.groups[again] = group
        self._install((*others, again), Change(ChangeKind.JOINED, (again,)))
        return again

    @property
    def members(self) -> tuple[Member, ...]:
        return self.view.members

    def _install(self, members: tuple[Member, ...], change: Change) -> None:
        self.view = View(members, str(int(self.view.id) + 1), changes=(change,))
        self._give(self.view)


class RpcWorld:
    """Some members of one group, and those that serve it."""

    def __init__(self, seed: int, loss: float = 0.0) -> None:
        self.dice = Random(seed)
        self.network = Network(self.dice, loss)
        self.order = Order(self.dice)
        self.groups: dict[str, rpc.RpcGroup] = {}
        self.serving: dict[str, asyncio.Task[None]] = {}

    def add(
        self, name: str, handler: rpc.Handler | None = None, limits: rpc.RpcLimits | None = None
    ) -> rpc.RpcGroup:
        inner = self.order.add(name)
        group = self.groups[name] = rpc.RpcGroup(cast(Group, inner), limits)
        if handler is not None:
            group.answer(handler)
        self.serve(name)
        return group

    def serve(self, name: str) -> None:
        self.serving[name] = asyncio.get_running_loop().create_task(
            _served(self.groups[name]), name=f"serve {name}"
        )

    def member(self, name: str) -> Member:
        return self.groups[name].me

    def crash(self, name: str) -> None:
        """The process is gone: nothing of it is read or sent any more."""
        self.serving[name].cancel()
        self.network.cut.add(self.groups[name].me.address.host)
        self.order.remove(self.groups[name].me, ChangeKind.FAILED)

    async def close(self) -> None:
        for task in self.serving.values():
            task.cancel()
        await asyncio.gather(*self.serving.values(), return_exceptions=True)
        await asyncio.sleep(60)  # What is under way ends by itself.

    def run_story(self, story: Coroutine[Any, Any, T]) -> T:
        """Run it under virtual time."""

        async def whole() -> T:
            try:
                return await story
            finally:
                await self.close()

        loop = VirtualLoop(self.network)
        try:
            return loop.run_until_complete(whole())
        finally:
            loop.close()


async def _served(group: rpc.RpcGroup) -> None:
    try:
        await group.serve()
    except Stopped:
        return


def run(story: Callable[[RpcWorld], Coroutine[Any, Any, T]], seed: int = 1, loss: float = 0.0) -> T:
    world = RpcWorld(seed, loss)
    return world.run_story(story(world))
