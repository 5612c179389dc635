"""A member of Unisono that does what it reads: `python -m unisono.bench.member HOW`.

HOW is a JSON object: `count` (the members of the group), `service`, `state_octets`, and `join`, the
arguments of `unisono.join`. It uses what every application can: bursts in by `multicast_many`,
bursts out by `batches`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable
from itertools import islice
from json import loads
from typing import Any, Final

from unisono import join
from unisono.bench.orders import (
    DATA,
    END,
    STAMP_END,
    Order,
    head,
    parsed,
    payload,
    stamp_ns,
    stride,
    tell,
)
from unisono.bench.processes import rss_peak_kb
from unisono.errors import UnisonoError
from unisono.group import Batch, Group
from unisono.model import Message, View
from unisono.net.stream import Item

BURST_OCTETS, BURST_COUNT = 64 << 10, 2048
"""What is said by one call: as much as the group hands on at once."""
WHOLE_OCTETS_MAX: Final = 4096
"""Up to this size every octet of what comes is looked at, above only its head."""
PAUSE_S: Final = 0.001
"""Above a thousand messages a second they are said in small batches, one each millisecond."""
EARLY_COUNT_MAX: Final = 4096
"""Batches that wait for the order they belong to: others may have read theirs before us."""
MOURN = "mourn"
"""An order of our members alone: one of them is about to be killed."""


class Hearing:
    """What is done with what comes while an order lasts."""

    def __init__(self, order: Order, group: Group) -> None:
        self.order = order
        self.done = asyncio.Event()
        self.sent = 0
        self._marks = 0
        self._mark = payload(END, order.round)

    def heard(self, now_ns: int, batch: Batch, payloads: list[bytes]) -> None:
        """A batch of the stream, and the payloads of its messages."""
        raise NotImplementedError

    def answer(self) -> dict[str, Any]:
        raise NotImplementedError

    def _ended(self, payloads: list[bytes]) -> int:
        """How many of these are end marks."""
        found = payloads.count(self._mark)
        self._marks += found
        if self._marks >= self.order.senders:
            self.done.set()
        return found


class Pouring(Hearing):
    """Counts."""

    def __init__(self, order: Order, group: Group) -> None:
        super().__init__(order, group)
        self._data = payload(DATA, order.round, order.size)
        self._head = head(DATA, order.round)
        self._count = self._first_ns = self._last_ns = 0

    def heard(self, now_ns: int, batch: Batch, payloads: list[bytes]) -> None:
        if self.order.size <= WHOLE_OCTETS_MAX:
            found = payloads.count(self._data)
        else:
            found = sum(each.startswith(self._head) for each in payloads)
        if found:
            self._count += found
            self._first_ns = self._first_ns or now_ns
            self._last_ns = now_ns
        if found < len(payloads):
            self._ended(payloads)

    def answer(self) -> dict[str, Any]:
        return {
            "sent": self.sent,
            "delivered": self._count,
            "first_ns": self._first_ns,
            "last_ns": self._last_ns,
            "rss_kb": rss_peak_kb(),
        }


class Probing(Hearing):
    """Notes how long some of what others said was under way."""

    def __init__(self, order: Order, group: Group) -> None:
        super().__init__(order, group)
        self._head = head(DATA, order.round)
        self.own: set[bytes] = set()
        """Beginnings of what was said here: their way is not measured."""
        expected = order.rate * order.seconds * order.senders
        self._stride = stride(expected)
        self._skip = 0
        self._count = 0
        self._samples_us: list[float] = []

    def heard(self, now_ns: int, batch: Batch, payloads: list[bytes]) -> None:
        for each in islice(payloads, self._skip, None, self._stride):
            if each.startswith(self._head) and each[:STAMP_END] not in self.own:
                self._samples_us.append((now_ns - stamp_ns(each)) / 1000)
        self._skip = (self._skip - len(payloads)) % self._stride
        self._count += len(payloads) - self._ended(payloads)

    def answer(self) -> dict[str, Any]:
        return {"count": self._count, "samples_us": self._samples_us}


class Mourning(Hearing):
    """Waits for the view of those who are left, and for the first message in it."""

    def __init__(self, order: Order, group: Group) -> None:
        super().__init__(order, group)
        self._view_ns = self._first_ns = 0

    def heard(self, now_ns: int, batch: Batch, payloads: list[bytes]) -> None:
        for item in batch:
            if isinstance(item, View):
                # Not one of those that the group had while it came together.
                if len(item.members) == self.order.senders and now_ns > self.order.begin_ns:
                    self._view_ns = now_ns
            elif self._view_ns and not self._first_ns and isinstance(item, Message):
                self._first_ns = now_ns
                self.done.set()

    def answer(self) -> dict[str, Any]:
        return {"view_ns": self._view_ns, "first_ns": self._first_ns}


KINDS: Final[dict[str, Callable[[Order, Group], Hearing]]] = {
    "pour": Pouring,
    "probe": Probing,
    MOURN: Mourning,
}


class Member:
    """Reads the group's stream, and obeys."""

    def __init__(self, group: Group, count: int, service: str) -> None:
        self._group = group
        self._count = count
        self._service = service
        self._hearing: Hearing | None = None
        self._fallen = ""
        self._early: list[tuple[int, Batch, list[bytes]]] = []
        self.together = asyncio.Event()

    async def listen(self) -> None:
        """For ever; what ends it is trouble, but between orders it can wait: the others may only
        have left before us."""
        try:
            await self._hear()
        except UnisonoError as trouble:
            if self._hearing is not None or not self.together.is_set():
                raise
            self._fallen = str(trouble)
            await asyncio.Future()

    async def _hear(self) -> None:
        async for batch in self._group.batches():
            now_ns = time.monotonic_ns()
            payloads = batch.payloads()
            if len(payloads) < len(batch):  # Rare: most batches are messages alone.
                self._look_at_views(batch.notices())
            if self._hearing is not None:
                self._hearing.heard(now_ns, batch, payloads)
            elif len(self._early) < EARLY_COUNT_MAX:
                self._early.append((now_ns, batch, payloads))
        raise UnisonoError(f"the member is out of the group: {self._group.stopped}")

    def _look_at_views(self, batch: list[Item]) -> None:
        for item in batch:
            if isinstance(item, View):
                if len(item.members) >= self._count:
                    self.together.set()
                elif self.together.is_set() and not isinstance(self._hearing, Mourning):
                    raise UnisonoError(f"the view fell to {len(item.members)} members")

    async def obey(self, order: Order) -> dict[str, Any]:
        began_ns = time.process_time_ns()
        if self._fallen:
            raise UnisonoError(self._fallen)
        hearing = KINDS[order.what](order, self._group)
        for early in self._early:
            hearing.heard(*early)
        self._early.clear()
        self._hearing = hearing
        await until_ns(order.begin_ns)
        speaking = asyncio.create_task(self._speak(hearing))
        heard = asyncio.create_task(hearing.done.wait())
        try:
            await asyncio.wait((speaking, heard), return_when=asyncio.FIRST_COMPLETED)
            if order.what != MOURN or speaking.done():
                await speaking
            await heard
        finally:
            self._hearing = None
            speaking.cancel()
            heard.cancel()
        told = {"did": order.what, "round": order.round, **hearing.answer()}
        return told | {"cpu_ns": time.process_time_ns() - began_ns}

    async def _speak(self, hearing: Hearing) -> None:
        order = hearing.order
        if not order.speaks:
            return
        if order.what == "pour":
            await self._pour(hearing)
        else:
            await self._say_evenly(hearing)
        if order.what != MOURN:
            await self._group.multicast(payload(END, order.round), self._service)

    async def _pour(self, hearing: Hearing) -> None:
        order, service, say = hearing.order, self._service, self._group.multicast_many
        count = max(1, min(BURST_COUNT, -(-BURST_OCTETS // order.size)))
        burst = [payload(DATA, order.round, order.size)] * count
        end_ns, now_ns = order.end_ns, time.monotonic_ns
        while now_ns() < end_ns:
            await say(burst, service)
            hearing.sent += count

    async def _say_evenly(self, hearing: Hearing) -> None:
        """What is due, again and again; a speaker that was held up does not catch up for ever."""
        order, say = hearing.order, self._group.multicast_many
        gap_ns = 1e9 / order.rate
        begin_ns = time.monotonic_ns()
        due_count = 0
        filler = bytes(order.size)
        start = head(DATA, order.round)
        while (now_ns := time.monotonic_ns()) < order.end_ns:
            due = int((now_ns - begin_ns) / gap_ns) + 1 - due_count
            if due > 0:
                stamped = start + time.monotonic_ns().to_bytes(8, "big")
                if isinstance(hearing, Probing):
                    hearing.own.add(stamped)
                await say([stamped + filler[len(stamped) :]] * due, self._service)
                due_count += due
                hearing.sent += due
            next_ns = begin_ns + due_count * gap_ns
            await asyncio.sleep(max(next_ns / 1e9 - time.monotonic(), PAUSE_S))


async def until_ns(at_ns: int) -> None:
    while (left_ns := at_ns - time.monotonic_ns()) > 0:
        await asyncio.sleep(left_ns / 1e9)


async def joined(how: dict[str, Any], adopted: asyncio.Event) -> Group:
    """In the group, with a state to hand over if there is to be one."""
    octets = how.get("state_octets", 0)
    state = bytes(octets)

    def restore(given: bytes) -> None:
        if len(given) == octets:
            adopted.set()

    with_state: dict[str, Any] = {}
    if octets:
        with_state = {"snapshot": lambda: state, "restore": restore}
    group: Group = await join(**how["join"], **with_state)
    return group


async def work(how: dict[str, Any]) -> None:
    """Until the orders end, or the member has to leave."""
    lines: asyncio.Queue[str] = asyncio.Queue()
    reading = asyncio.create_task(_read(lines))
    adopted = asyncio.Event()
    began_ns = time.monotonic_ns()
    joining = asyncio.create_task(joined(how, adopted))
    await asyncio.wait((joining, reading), return_when=asyncio.FIRST_COMPLETED)
    if not joining.done():  # Nobody is there any more to give orders.
        joining.cancel()
        await asyncio.gather(joining, return_exceptions=True)
        return
    group = await joining
    member = Member(group, how["count"], how["service"])

    async def obey() -> None:
        if how.get("newcomer"):
            await adopted.wait()
        await member.together.wait()
        tell({"ready": True, "took_ns": time.monotonic_ns() - began_ns})
        while True:
            tell(await member.obey(parsed(await lines.get())))

    tasks = (reading, asyncio.create_task(member.listen()), asyncio.create_task(obey()))
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(UnisonoError):
            await group.leave()


async def _read(lines: asyncio.Queue[str]) -> None:
    """Who gives the orders may be gone at any time: that ends all."""
    pipe = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(pipe), sys.stdin)
    while (line := (await pipe.readline()).decode().strip()) and line != "quit":
        lines.put_nowait(line)


def main() -> int:
    how = loads(sys.argv[1])
    try:
        asyncio.run(work(how))
    except (UnisonoError, ValueError, KeyError) as error:
        tell({"trouble": " ".join(str(error).split()) or type(error).__name__})
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
