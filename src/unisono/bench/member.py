"""A member of Unisono that obeys the line protocol: `python -m unisono.bench.member HOW`.

HOW is a JSON object: `count` (members of the group), `service`, `via`, `state_octets`, `newcomer`,
and `join`, the arguments of `unisono.join`. It uses what every application can: bursts in by
`multicast_many`, bursts out by `batches`; with `via` "each" message by message, with "mixed" bursts
of messages of many lengths.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
from collections.abc import Sequence
from itertools import islice
from json import loads
from typing import Any, Final

from unisono import join
from unisono.bench.line_protocol import (
    CRASH,
    DATA,
    EACH,
    END,
    LOAD,
    MIXED,
    PROBE,
    SAMPLES_MAX,
    SIZE_MIN,
    STAMP_END,
    Command,
    answer,
    commands,
    end_level,
    head,
    payload,
    stamp_ns,
    stride,
    until_ns,
)
from unisono.errors import UnisonoError
from unisono.group import Group, StreamBatch
from unisono.model import Message, Resilient, ServiceLevel, View, level_named
from unisono.net.stream import Item, Stable
from unisono.processes import rss_peak_kb

BURST_BYTES, BURST_COUNT = 64 << 10, 2048
"""Sent by one call: as much as the group hands on at once."""
COMPARED_BYTES_MAX: Final = 4096
"""Up to this size a received message is compared byte by byte, above only its head."""
PAUSE_S: Final = 0.001
"""Above a thousand messages a second they are sent in batches, one a millisecond."""
EARLY_COUNT_MAX: Final = 4096
"""Batches kept for the next command: other members may have read theirs earlier."""
EACH_COUNT_MAX: Final = 512
"""Messages of a load that are read one by one, and counted together."""


class Measurement:
    """What is done with received messages while a command lasts."""

    def __init__(self, command: Command, level: ServiceLevel) -> None:
        self.command = command
        self.is_resilient = isinstance(level, Resilient)
        self.done = asyncio.Event()
        self.sent = 0
        self._marks = 0
        self._mark = payload(END, command.round)

    def received(self, now_ns: int, batch: Sequence[Item], payloads: list[bytes]) -> None:
        """A batch of the stream, and the payloads of its messages."""
        raise NotImplementedError

    def answer(self) -> dict[str, Any]:
        raise NotImplementedError

    def _count_marks(self, payloads: list[bytes]) -> int:
        """How many of these are end marks; those of all senders end the measurement."""
        found = payloads.count(self._mark)
        self._marks += found
        if self._marks >= self.command.senders:
            self.done.set()
        return found


class Loading(Measurement):
    """Counts messages."""

    def __init__(self, command: Command, level: ServiceLevel) -> None:
        super().__init__(command, level)
        self._data = payload(DATA, command.round, command.size)
        self._head = head(DATA, command.round)
        self._count = self._first_ns = self._last_ns = 0

    def received(self, now_ns: int, batch: Sequence[Item], payloads: list[bytes]) -> None:
        small = self.command.size <= COMPARED_BYTES_MAX
        found = payloads.count(self._data) if small else 0
        if found < len(payloads):  # Large, of many lengths, or with an end mark.
            found = sum(each.startswith(self._head) for each in payloads)
        if found:
            self._count += found
            self._first_ns = self._first_ns or now_ns
            self._last_ns = now_ns
        if found < len(payloads):
            self._count_marks(payloads)

    def answer(self) -> dict[str, Any]:
        return {
            "sent": self.sent,
            "delivered": self._count,
            "first_ns": self._first_ns,
            "last_ns": self._last_ns,
            "rss_kb": rss_peak_kb(),
        }


class Probing(Measurement):
    """Samples the delay of messages from others; of resilient ones, the time until the sender is
    notified that enough members hold them."""

    def __init__(self, command: Command, level: ServiceLevel) -> None:
        super().__init__(command, level)
        self._head = head(DATA, command.round)
        self.own: set[bytes] = set()
        """Heads of our own messages: their delay is not measured."""
        expected = command.rate * command.seconds * command.senders
        self._stride = stride(expected)
        self._skip = 0
        self._count = 0
        self._samples_us: list[float] = []

    def received(self, now_ns: int, batch: Sequence[Item], payloads: list[bytes]) -> None:
        for each in islice(payloads, self._skip, None, self._stride):
            if self.is_resilient:
                break
            if each.startswith(self._head) and each[:STAMP_END] not in self.own:
                self._samples_us.append((now_ns - stamp_ns(each)) / 1000)
        self._skip = (self._skip - len(payloads)) % self._stride
        self._count += len(payloads) - self._count_marks(payloads)
        if self.is_resilient and len(payloads) < len(batch):
            self._sample_stable(now_ns, batch)

    def _sample_stable(self, now_ns: int, batch: Sequence[Item]) -> None:
        for notice in batch.notices() if isinstance(batch, StreamBatch) else batch:
            mine = notice.messages if isinstance(notice, Stable) else ()
            for message in mine:
                if message.payload[:STAMP_END] in self.own and len(self._samples_us) < SAMPLES_MAX:
                    self._samples_us.append((now_ns - stamp_ns(message.payload)) / 1000)

    def answer(self) -> dict[str, Any]:
        return {"count": self._count, "samples_us": self._samples_us}


class Crashing(Measurement):
    """Waits for the view of the survivors, and for the first message in it."""

    def __init__(self, command: Command, level: ServiceLevel) -> None:
        super().__init__(command, level)
        self._view_ns = self._first_ns = 0

    def received(self, now_ns: int, batch: Sequence[Item], payloads: list[bytes]) -> None:
        for item in batch:
            if isinstance(item, View):
                # Not one from before: the group may have formed through views of this size.
                if len(item.members) == self.command.senders and now_ns > self.command.begin_ns:
                    self._view_ns = now_ns
            elif self._view_ns and not self._first_ns and isinstance(item, Message):
                self._first_ns = now_ns
                self.done.set()

    def answer(self) -> dict[str, Any]:
        return {"view_ns": self._view_ns, "first_ns": self._first_ns}


MEASUREMENTS: Final[dict[str, type[Measurement]]] = {
    LOAD: Loading,
    PROBE: Probing,
    CRASH: Crashing,
}


class BenchMember:
    """Reads the group's stream and obeys commands."""

    def __init__(self, group: Group, count: int, service: str, via: str) -> None:
        self._group = group
        self._count = count
        self._via = via
        level = level_named(service)
        if level is None:
            raise UnisonoError(f"no level is called {service!r}")
        self._level = level
        self._measurement: Measurement | None = None
        self._fallen = ""
        self._early: list[tuple[int, Sequence[Item], list[bytes]]] = []
        self.together = asyncio.Event()

    async def listen(self) -> None:
        """For ever. A failure between commands is kept for the next one: the others may only have
        left before us."""
        try:
            await (self._receive_each() if self._via == EACH else self._receive())
        except UnisonoError as trouble:
            if self._measurement is not None or not self.together.is_set():
                raise
            self._fallen = str(trouble)
            await asyncio.Future()

    async def _receive(self) -> None:
        async for batch in self._group.batches():
            now_ns = time.monotonic_ns()
            payloads = batch.payloads()
            if len(payloads) < len(batch):  # Rare: most batches are messages alone.
                self._look_at_views(batch.notices())
            self._received(now_ns, batch, payloads)
        raise UnisonoError(f"the member is out of the group: {self._group.stopped}")

    async def _receive_each(self) -> None:
        """Message by message; a load is counted some hundred at a time."""
        items: list[Item] = []
        async for item in self._group:
            items.append(item)
            if type(item) is Message:
                loading = type(self._measurement) is Loading
                if loading and len(items) < EACH_COUNT_MAX and item.payload[0] == DATA:
                    continue
            else:
                self._look_at_views([item])
            found = [each.payload for each in items if isinstance(each, Message)]
            self._received(time.monotonic_ns(), items, found)
            items = []
        raise UnisonoError(f"the member is out of the group: {self._group.stopped}")

    def _received(self, now_ns: int, batch: Sequence[Item], payloads: list[bytes]) -> None:
        if self._measurement is not None:
            self._measurement.received(now_ns, batch, payloads)
        elif len(self._early) < EARLY_COUNT_MAX:
            self._early.append((now_ns, batch, payloads))

    def _look_at_views(self, batch: list[Item]) -> None:
        for item in batch:
            if isinstance(item, View):
                if len(item.members) >= self._count:
                    self.together.set()
                elif self.together.is_set() and not isinstance(self._measurement, Crashing):
                    raise UnisonoError(f"the view fell to {len(item.members)} members")

    async def obey(self, command: Command) -> dict[str, Any]:
        began_ns = time.process_time_ns()
        if self._fallen:
            raise UnisonoError(self._fallen)
        measurement = MEASUREMENTS[command.what](command, self._level)
        for early in self._early:
            measurement.received(*early)
        self._early.clear()
        self._measurement = measurement
        await until_ns(command.begin_ns)
        sending = asyncio.create_task(self._send(measurement))
        received = asyncio.create_task(measurement.done.wait())
        try:
            await asyncio.wait((sending, received), return_when=asyncio.FIRST_COMPLETED)
            if command.what != CRASH or sending.done():
                await sending
            await received
        finally:
            self._measurement = None
            sending.cancel()
            received.cancel()
        answered = {"did": command.what, "round": command.round, **measurement.answer()}
        return answered | {"cpu_ns": time.process_time_ns() - began_ns}

    async def _send(self, measurement: Measurement) -> None:
        command = measurement.command
        if not command.sends:
            return
        if command.what == LOAD:
            await self._load(measurement)
        else:
            await self._send_evenly(measurement)
        if command.what != CRASH:
            await self._group.multicast(payload(END, command.round), end_level(self._level))

    async def _load(self, measurement: Measurement) -> None:
        command, service, send = measurement.command, self._level, self._group.multicast_many
        count = max(1, min(BURST_COUNT, -(-BURST_BYTES // command.size)))
        sizes = mixed_sizes(command.size, count) if self._via == MIXED else [command.size] * count
        burst = [payload(DATA, command.round, size) for size in sizes]
        end_ns, now_ns = command.end_ns, time.monotonic_ns
        while now_ns() < end_ns:
            if self._via == EACH:
                for each in burst:
                    await self._group.multicast(each, service)
            else:
                await send(burst, service)
            measurement.sent += count

    async def _send_evenly(self, measurement: Measurement) -> None:
        """At the given rate; what a blocked sender missed is sent together."""
        command, send = measurement.command, self._group.multicast_many
        gap_ns = 1e9 / command.rate
        begin_ns = time.monotonic_ns()
        due_count = 0
        filler = bytes(command.size)
        start = head(DATA, command.round)
        while (now_ns := time.monotonic_ns()) < command.end_ns:
            due = int((now_ns - begin_ns) / gap_ns) + 1 - due_count
            if due > 0:
                stamped = start + time.monotonic_ns().to_bytes(8, "big")
                if isinstance(measurement, Probing):
                    measurement.own.add(stamped)
                await send([stamped + filler[len(stamped) :]] * due, self._level)
                due_count += due
                measurement.sent += due
            next_ns = begin_ns + due_count * gap_ns
            await asyncio.sleep(max(next_ns / 1e9 - time.monotonic(), PAUSE_S))


def mixed_sizes(mean: int, count: int) -> list[int]:
    """From 20 to 200 bytes where the mean is 110: all lengths, in an order that is always the
    same."""
    low, high = mean * 2 / 11, mean * 20 / 11
    step = (high - low) / max(1, count - 1)
    found = [max(SIZE_MIN, round(low + step * at)) for at in range(count)]
    random.Random(0).shuffle(found)
    return found


async def joined(how: dict[str, Any], adopted: asyncio.Event) -> Group:
    """The group, with a state to transfer on request."""
    size = how.get("state_octets", 0)
    state = bytes(size)

    def restore(given: bytes) -> None:
        if len(given) == size:
            adopted.set()

    with_state: dict[str, Any] = {}
    if size:
        with_state = {"snapshot": lambda: state, "restore": restore}
    group: Group = await join(**how["join"], **with_state)
    return group


async def work(how: dict[str, Any]) -> None:
    """Until the commands end, or the member is out of the group."""
    queue: asyncio.Queue[Command] = asyncio.Queue()
    reading = asyncio.create_task(_read(queue))
    adopted = asyncio.Event()
    began_ns = time.monotonic_ns()
    joining = asyncio.create_task(joined(how, adopted))
    await asyncio.wait((joining, reading), return_when=asyncio.FIRST_COMPLETED)
    if not joining.done():  # Nobody is left to give commands.
        joining.cancel()
        await asyncio.gather(joining, return_exceptions=True)
        return
    group = await joining
    member = BenchMember(group, how["count"], how["service"], how["via"])

    async def obey() -> None:
        if how.get("newcomer"):
            await adopted.wait()
        await member.together.wait()
        answer({"ready": True, "took_ns": time.monotonic_ns() - began_ns})
        while True:
            answer(await member.obey(await queue.get()))

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


async def _read(queue: asyncio.Queue[Command]) -> None:
    """Its end ends the member: the bench may be gone at any time."""
    async for command in commands():
        queue.put_nowait(command)


def main() -> int:
    how = loads(sys.argv[1])
    try:
        asyncio.run(work(how))
    except (UnisonoError, ValueError, KeyError) as error:
        answer({"trouble": " ".join(str(error).split()) or type(error).__name__})
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
