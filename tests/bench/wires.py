"""What a message costs, counted and not timed: calls of functions in the cores, packets and bytes
on the wire. Members are cores in this process, and a packet reaches all as soon as it is sent;
so the figures are the same on every machine.

    python -m tests.bench.wires        the table of the documents
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from unisono import protocols
from unisono.bench.member import mixed_sizes
from unisono.core import (
    Arm,
    Core,
    CoreConfig,
    Deliver,
    Disarm,
    Effect,
    Event,
    Everyone,
    Expired,
    Fail,
    Install,
    Join,
    Multicast,
    Received,
    Send,
    Timer,
)
from unisono.model import Address, Burst, Member, Service, View
from unisono.net.send_path import runs

BATCH_BYTES: Final = 64 << 10
IP_AND_UDP_BYTES: Final = 28
PACKET_BYTES: Final = 1472
"""What an Ethernet frame of 1,500 bytes carries."""


class Cost(NamedTuple):
    """Of a message, on the average."""

    calls: float
    """Of functions, in all cores together."""
    packets: float
    nbytes: float
    """On the wire, with the headers of IP and UDP; a multicast is on it once."""


class Wire:
    """Some cores and what is between them. Time passes only when nothing else is to be done."""

    def __init__(self, protocol: str, count: int) -> None:
        spec = protocols.spec(protocol)
        self._members = [
            Member(f"m{index:02}", Address("10.0.0.1", 5000 + index), 1) for index in range(count)
        ]
        self.cores: list[Core] = [
            spec.make(
                CoreConfig(
                    me=me,
                    group="wire",
                    seed=index,
                    packet_bytes_max=PACKET_BYTES,
                    options=spec.assign_roles(index, count, {}),
                )
            )
            for index, me in enumerate(self._members)
        ]
        self._timers: list[dict[Timer, int]] = [{} for _ in self.cores]
        self._under_way: deque[tuple[int, Event]] = deque()
        self.now_us = 1_000_000
        self.step_us = 5
        self.heard = [0] * count
        self.views: list[View | None] = [None] * count
        self.packets = self.nbytes = 0
        for index in range(count):
            self.step(index, Join())
        while any(view is None or len(view.members) < count for view in self.views):
            self.pump()
        self.packets = self.nbytes = 0

    def step(self, index: int, event: Event) -> None:
        for effect in self.cores[index].step(self.now_us, event):
            self._perform(index, effect)

    def pump(self) -> None:
        """What is next: a burst that is under way, or the first timer."""
        if self._under_way:
            self.now_us += self.step_us
            self.step(*self._under_way.popleft())
            return
        due = [(at, index, timer) for index, own in enumerate(self._timers)
               for timer, at in own.items()]  # fmt: skip
        at, index, timer = min(due, key=lambda each: each[:2])
        self.now_us = max(self.now_us, at)
        del self._timers[index][timer]
        self.step(index, Expired(timer))

    def _perform(self, index: int, effect: Effect) -> None:
        match effect:
            case Send():
                self._send(index, effect)
            case Arm(timer, after_us):
                self._timers[index][timer] = self.now_us + after_us
            case Disarm(timer):
                self._timers[index].pop(timer, None)
            case Deliver(messages):
                self.heard[index] += len(messages)
            case Install(view):
                self.views[index] = view
            case Fail(reason):
                raise AssertionError(reason)

    def _send(self, index: int, effect: Send) -> None:
        everyone = isinstance(effect.to, Everyone)
        named = () if isinstance(effect.to, Everyone) else effect.to
        to = [
            at
            for at, member in enumerate(self._members)
            if at != index and (everyone or member.address in named)
        ]
        times = 1 if everyone else len(named)
        for data, size, count in runs(effect.packets):
            self.packets += times * count
            self.nbytes += times * (len(data) + count * IP_AND_UDP_BYTES)
            burst = Burst(memoryview(bytes(data)), size)
            for at in to:
                self._under_way.append((at, Received(self._members[index].address, burst)))


@contextmanager
def counted() -> Iterator[list[int]]:
    """How many functions are called meanwhile, those written in C included."""
    calls = [0]

    def note(frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            calls[0] += 1

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def cost(protocol: str, members: int, size: int, senders: int, count: int) -> Cost:
    """All senders use their credit, until all members have delivered so many messages."""
    count_max = max(1, min(512, BATCH_BYTES // (size or 1)))
    return cost_of_batches(protocol, members, [bytes(size)] * count_max, senders, count)


def cost_of_batches(
    protocol: str, members: int, batch: list[bytes], senders: int, count: int
) -> Cost:
    wire = Wire(protocol, members)
    batch_bytes = sum(map(len, batch)) + 64 * len(batch)
    share = -(-count // senders // len(batch)) * len(batch)
    said = [0] * senders
    before = list(wire.heard)
    event = Multicast(batch, Service.AGREED)
    with counted() as calls:
        while min(now - then for now, then in zip(wire.heard, before, strict=True)) < (
            senders * share
        ):
            for index in range(senders):
                while said[index] < share and wire.cores[index].send_credit() > batch_bytes:
                    wire.step(index, event)
                    said[index] += len(batch)
            wire.pump()
    total = senders * share
    return Cost(calls[0] / total, wire.packets / total, wire.nbytes / total)


def mixed_cost(protocol: str) -> Cost:
    """Of messages of 20 to 200 bytes, three members, one sends."""
    batch = [bytes(size) for size in mixed_sizes(MIXED_BYTES, 512)]
    return cost_of_batches(protocol, 3, batch, 1, enough(3, MIXED_BYTES))


def lone_calls(protocol: str) -> int:
    """From the sender's call until the last of three members has delivered a lone message: the
    usual one of several, since some meet a timer."""
    wire, found = Wire(protocol, 3), []
    for _ in range(LONE_COUNT):
        for _ in range(LONE_PAUSE):
            wire.pump()
        before = list(wire.heard)
        with counted() as calls:
            wire.step(0, Multicast([bytes(64)], Service.AGREED))
            while wire.heard == before or min(wire.heard) < max(wire.heard):
                wire.pump()
        found.append(calls[0])
    return sorted(found)[LONE_COUNT // 2]


MIXED_BYTES: Final = 110
LONE_COUNT, LONE_PAUSE = 25, 200
SIZES: Final = (64, 1000, 65_536)
MEMBERS: Final = (3, 16)


def enough(members: int, size: int) -> int:
    """Messages of which the beginning and the end no longer matter."""
    return 9_000_000 // members // (size + 900)


def table() -> str:
    lines = [
        "| protocol | members | senders | size | calls | packets | least | bytes | least |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for protocol in ("ring", "mtp", "rmp", "transis"):
        for members in MEMBERS:
            for senders in (1, members):
                for size in SIZES:
                    found = cost(protocol, members, size, senders, enough(members, size))
                    least = size / PACKET_BYTES
                    lines.append(
                        f"| {protocol} | {members} | {senders} | {size:,} | {found.calls:.2f} |"
                        f" {found.packets:.3f} | {least:.3f} | {found.nbytes:,.0f} |"
                        f" {size + least * IP_AND_UDP_BYTES:,.0f} |"
                    )
    return "\n".join(lines)


def paths() -> str:
    lines = ["| protocol | lone | mixed |", "|---|---:|---:|"]
    for protocol in ("ring", "mtp", "rmp", "transis"):
        lines.append(f"| {protocol} | {lone_calls(protocol)} | {mixed_cost(protocol).calls:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(), paths(), sep="\n\n")
