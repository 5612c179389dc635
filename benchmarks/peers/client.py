"""A peer's member in Python: what is the same for all of them.

A peer's own part is a `Carrier`: it sends messages and passes deliveries to a `PeerReceiver`.
None of these peers has views, so members announce themselves in the ordered stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from unisono.bench.line_protocol import (
    DATA,
    END,
    HEAD_BYTES,
    LOAD,
    PROBE,
    SAMPLES_MAX,
    SIZE_MIN,
    STAMP_END,
    Command,
    answer,
    commands,
    head,
    stamp_ns,
    stride,
    until_ns,
)
from unisono.processes import rss_peak_kb

HELLO: Final = 2
"""A kind of message: its sender is there."""
HELLO_S: Final = 1.0
SENDER_AT: Final = STAMP_END
"""The byte with the index of the sender."""
AHEAD_BYTES_MAX: Final = 64 << 20
"""How far a sender may be ahead of its own deliveries: bounds every queue."""
BURST_COUNT, BURST_BYTES = 256, 1 << 20
"""Sent by one call under load."""
PAUSE_S: Final = 0.001
QUIET_NS: Final = 50_000_000
"""The silence before a round."""
EARLY_COUNT_MAX: Final = 100_000
DIGEST: Final = "UNISONO_BENCH_DIGEST"
"""An environment variable: when set, an answer has a digest of all deliveries, in order."""


class Carrier(Protocol):
    """One peer's way to all members."""

    ahead_count_max: int = 20_000
    """How many messages a sender may be ahead of its own deliveries."""

    async def send(self, payloads: Sequence[bytes]) -> None:
        """Send these, in this order; waits while the peer takes no more."""
        ...

    def quiet(self) -> None:
        """No message is on its way: a peer that keeps a log may compact it."""
        return None


class Round:
    """What a member counts during one command."""

    def __init__(self, command: Command, me: int) -> None:
        self.command = command
        self.own = self.sent = 0
        self._me = me
        self._head = head(DATA, command.round)
        self._end = head(END, command.round)
        self._ends = self._delivered = self._received = 0
        self._first_ns = self._last_ns = 0
        others = command.senders - command.sends
        self._stride = stride(command.rate * command.seconds * others)
        self._samples_us: list[float] = []
        self._digest = hashlib.blake2b(digest_size=8) if os.environ.get(DIGEST) else None

    def received(self, now_ns: int, payloads: Sequence[bytes]) -> bool:
        """Count these; whether the round is over."""
        start = self._head
        data = [each for each in payloads if each[:HEAD_BYTES] == start]
        if data:
            self._first_ns = self._first_ns or now_ns
            self._last_ns = now_ns
            self._delivered += len(data)
            self.own += (
                [each[SENDER_AT] for each in data].count(self._me) if self.command.sends else 0
            )
            if self.command.what == PROBE:
                self._sample(now_ns, data)
            if self._digest:
                for each in data:
                    self._digest.update(each[HEAD_BYTES:SIZE_MIN])
        if len(data) < len(payloads):
            self._ends += sum(each[:HEAD_BYTES] == self._end for each in payloads)
        return self._ends >= self.command.senders

    def _sample(self, now_ns: int, data: Sequence[bytes]) -> None:
        for each in data:
            if each[SENDER_AT] != self._me:
                if self._received % self._stride == 0 and len(self._samples_us) < SAMPLES_MAX:
                    self._samples_us.append((now_ns - stamp_ns(each)) / 1000)
                self._received += 1

    def answer(self, cpu_ns: int) -> dict[str, Any]:
        told = {"did": self.command.what, "round": self.command.round, "cpu_ns": cpu_ns}
        if self._digest:
            told["digest"] = self._digest.hexdigest()
        if self.command.what == PROBE:
            return told | {"count": self._received, "samples_us": self._samples_us}
        return told | {
            "sent": self.sent,
            "delivered": self._delivered,
            "first_ns": self._first_ns,
            "last_ns": self._last_ns,
            "rss_kb": rss_peak_kb(),
        }


class PeerReceiver:
    """Takes deliveries, in whatever thread the peer makes them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, members: int) -> None:
        self.all_here = asyncio.Event()
        self.over = asyncio.Event()
        self._loop = loop
        self._members = members
        self._here: set[int] = set()
        self._round: Round | None = None
        self._early: list[tuple[int, Sequence[bytes]]] = []
        self._lock = threading.Lock()

    def received(self, payloads: Sequence[bytes]) -> None:
        now_ns = time.monotonic_ns()
        with self._lock:
            if self._round is not None:
                if self._round.received(now_ns, payloads):
                    self._finish()
            elif not self.all_here.is_set() and any(each[0] == HELLO for each in payloads):
                self._here.update(each[SENDER_AT] for each in payloads if each[0] == HELLO)
                if len(self._here) == self._members:
                    self._loop.call_soon_threadsafe(self.all_here.set)
            elif len(self._early) < EARLY_COUNT_MAX:
                # Others may have read their commands before us.
                self._early.append((now_ns, payloads))

    def trouble(self, what: str) -> None:
        answer({"trouble": " ".join(what.split())})

    def begin(self, round_: Round) -> None:
        self.over.clear()
        with self._lock:
            self._round = round_
            for now_ns, payloads in self._early:
                if round_.received(now_ns, payloads):
                    self._finish()
            self._early.clear()

    def _finish(self) -> None:
        self._round = None
        self._loop.call_soon_threadsafe(self.over.set)


class PeerMember:
    """Obeys commands."""

    def __init__(self, carrier: Carrier, receiver: PeerReceiver, me: int) -> None:
        self._carrier = carrier
        self._receiver = receiver
        self._me = me

    async def obey(self, command: Command) -> dict[str, Any]:
        began_ns = time.process_time_ns()
        round_ = Round(command, self._me)
        self._receiver.begin(round_)
        if command.begin_ns - time.monotonic_ns() > QUIET_NS:
            self._carrier.quiet()
        await until_ns(command.begin_ns)
        if command.sends:
            await (self._load(round_) if command.what == LOAD else self._send_evenly(round_))
            await self._carrier.send([self.payload(END, command.round)])
        await self._receiver.over.wait()
        return round_.answer(time.process_time_ns() - began_ns)

    async def _load(self, round_: Round) -> None:
        command, numbered = round_.command, os.environ.get(DIGEST)
        count = max(1, min(BURST_COUNT, BURST_BYTES // command.size, self._ahead_max(command)))
        burst = [self.payload(DATA, command.round, command.size)] * count
        while await self._room(round_, count):
            if numbered:
                burst = [
                    self.payload(DATA, command.round, command.size, round_.sent + i)
                    for i in range(count)
                ]
            await self._carrier.send(burst)
            round_.sent += count

    async def _send_evenly(self, round_: Round) -> None:
        """At the given rate; above a thousand a second in batches, one a millisecond.

        What could not be sent in time, because there is no room, is not made up for.
        """
        command = round_.command
        step_ns = max(1e9 / command.rate, 1e6)
        turn = due_count = 0
        while (due_ns := command.begin_ns + int(step_ns * turn)) < command.end_ns:
            await until_ns(due_ns)
            turn += 1
            due = int(turn * step_ns * command.rate / 1e9 + 1e-6) - due_count
            due_count += due
            if not await self._room(round_, due):
                return
            now_ns = time.monotonic_ns()
            burst = [self.payload(DATA, command.round, command.size, now_ns)] * due
            if burst:
                await self._carrier.send(burst)
            round_.sent += due

    def _ahead_max(self, command: Command) -> int:
        return max(1, min(self._carrier.ahead_count_max, AHEAD_BYTES_MAX // command.size))

    async def _room(self, round_: Round, count: int) -> bool:
        """Wait for credit for this many messages; whether it came before the end of the round."""
        command = round_.command
        ahead_max = max(count, self._ahead_max(command))
        while time.monotonic_ns() < command.end_ns:
            if round_.sent + count - round_.own <= ahead_max:
                return True
            await asyncio.sleep(PAUSE_S)
        return False

    def payload(self, kind: int, number: int = 0, size: int = SIZE_MIN, stamp: int = 0) -> bytes:
        start = head(kind, number) + stamp.to_bytes(8, "big") + bytes((self._me,))
        return start.ljust(size, b"\0")


async def _work(
    connected: Callable[[PeerReceiver], contextlib.AbstractAsyncContextManager[Carrier]],
    me: int,
    members: int,
) -> None:
    receiver = PeerReceiver(asyncio.get_running_loop(), members)
    async with connected(receiver) as carrier:
        member = PeerMember(carrier, receiver, me)
        while not receiver.all_here.is_set():
            # Repeated: a group that is still forming may lose it.
            await carrier.send([member.payload(HELLO)])
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(receiver.all_here.wait(), HELLO_S)
        # All listen now; a network without repair may have lost those before.
        await carrier.send([member.payload(HELLO)])
        answer({"ready": True})
        async for command in commands():
            answer(await member.obey(command))


def run(
    connected: Callable[[PeerReceiver], contextlib.AbstractAsyncContextManager[Carrier]],
    me: int,
    members: int,
) -> int:
    """A member until its commands end; a failure is reported in one line."""
    try:
        asyncio.run(_work(connected, me, members))
    except KeyboardInterrupt:
        pass
    except Exception as error:  # whatever the peer's library raises
        answer({"trouble": f"{type(error).__name__}: {' '.join(str(error).split())}"})
        return 1
    return 0
