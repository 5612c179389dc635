"""A member in Python of a peer: what is the same whatever carries its messages.

A peer's own part is a `Carrier`: it hands messages on, and gives what comes to the `Ear`. Who is
there is told by greetings in the ordered stream itself, since none of these peers has views.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, Protocol

from unisono.bench.orders import (
    DATA,
    END,
    HEAD_OCTETS,
    SAMPLES_MAX,
    SIZE_MIN,
    STAMP_END,
    Order,
    head,
    parsed,
    stamp_ns,
    stride,
    tell,
)
from unisono.bench.processes import rss_peak_kb

HELLO: Final = 2
"""A kind of message of ours: I am here."""
HELLO_S: Final = 1.0
WHO: Final = STAMP_END
"""The octet that says which member sent it."""
AHEAD_OCTETS_MAX: Final = 64 << 20
"""How far a member that pours may be ahead of its own deliveries: it bounds every queue."""
BURST_COUNT, BURST_OCTETS = 256, 1 << 20
"""What a member that pours hands on at once."""
PAUSE_S: Final = 0.001
QUIET_NS: Final = 50_000_000
"""So long before a round begins nobody speaks, also when clocks are read late."""
EARLY_COUNT_MAX: Final = 100_000
DIGEST: Final = "UNISONO_BENCH_DIGEST"
"""When set, an answer has a digest of all that was delivered, in its order."""


class Carrier(Protocol):
    """One peer's way to all members."""

    ahead_count_max: int = 20_000
    """How many messages a member that pours may be ahead of its own deliveries."""

    async def say(self, payloads: Sequence[bytes]) -> None:
        """Hand these on, in this order; waits while the peer takes no more."""
        ...

    def quiet(self) -> None:
        """No message is under way: a peer that keeps what was said may forget it."""
        return None


class Round:
    """What one order makes a member count."""

    def __init__(self, order: Order, me: int) -> None:
        self.order = order
        self.own = self.sent = 0
        self._me = me
        self._head = head(DATA, order.round)
        self._end = head(END, order.round)
        self._ends = self._delivered = self._heard = 0
        self._first_ns = self._last_ns = 0
        others = order.senders - order.speaks
        self._stride = stride(order.rate * order.seconds * others)
        self._samples_us: list[float] = []
        self._digest = hashlib.blake2b(digest_size=8) if os.environ.get(DIGEST) else None

    def heard(self, now_ns: int, payloads: Sequence[bytes]) -> bool:
        """Count these; whether the round is over."""
        start = self._head
        data = [each for each in payloads if each[:HEAD_OCTETS] == start]
        if data:
            self._first_ns = self._first_ns or now_ns
            self._last_ns = now_ns
            self._delivered += len(data)
            self.own += [each[WHO] for each in data].count(self._me) if self.order.speaks else 0
            if self.order.what == "probe":
                self._note(now_ns, data)
            if self._digest:
                for each in data:
                    self._digest.update(each[HEAD_OCTETS:SIZE_MIN])
        if len(data) < len(payloads):
            self._ends += sum(each[:HEAD_OCTETS] == self._end for each in payloads)
        return self._ends >= self.order.senders

    def _note(self, now_ns: int, data: Sequence[bytes]) -> None:
        for each in data:
            if each[WHO] != self._me:
                if self._heard % self._stride == 0 and len(self._samples_us) < SAMPLES_MAX:
                    self._samples_us.append((now_ns - stamp_ns(each)) / 1000)
                self._heard += 1

    def answer(self, cpu_ns: int) -> dict[str, Any]:
        told = {"did": self.order.what, "round": self.order.round, "cpu_ns": cpu_ns}
        if self._digest:
            told["digest"] = self._digest.hexdigest()
        if self.order.what == "probe":
            return told | {"count": self._heard, "samples_us": self._samples_us}
        return told | {
            "sent": self.sent,
            "delivered": self._delivered,
            "first_ns": self._first_ns,
            "last_ns": self._last_ns,
            "rss_kb": rss_peak_kb(),
        }


class Ear:
    """Takes what is delivered, in whatever thread the peer delivers it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, members: int) -> None:
        self.all_here = asyncio.Event()
        self.over = asyncio.Event()
        self._loop = loop
        self._members = members
        self._here: set[int] = set()
        self._round: Round | None = None
        self._early: list[tuple[int, Sequence[bytes]]] = []
        self._lock = threading.Lock()

    def heard(self, payloads: Sequence[bytes]) -> None:
        now_ns = time.monotonic_ns()
        with self._lock:
            if self._round is not None:
                if self._round.heard(now_ns, payloads):
                    self._finish()
            elif not self.all_here.is_set() and any(each[0] == HELLO for each in payloads):
                self._here.update(each[WHO] for each in payloads if each[0] == HELLO)
                if len(self._here) == self._members:
                    self._loop.call_soon_threadsafe(self.all_here.set)
            elif len(self._early) < EARLY_COUNT_MAX:
                # Others may have read their orders before us.
                self._early.append((now_ns, payloads))

    def trouble(self, what: str) -> None:
        tell({"trouble": " ".join(what.split())})

    def begin(self, round_: Round) -> None:
        self.over.clear()
        with self._lock:
            self._round = round_
            for now_ns, payloads in self._early:
                if round_.heard(now_ns, payloads):
                    self._finish()
            self._early.clear()

    def _finish(self) -> None:
        self._round = None
        self._loop.call_soon_threadsafe(self.over.set)


class Member:
    """Reads orders, speaks when told to, and says what was heard."""

    def __init__(self, carrier: Carrier, ear: Ear, me: int) -> None:
        self._carrier = carrier
        self._ear = ear
        self._me = me

    async def obey(self, order: Order) -> dict[str, Any]:
        began_ns = time.process_time_ns()
        round_ = Round(order, self._me)
        self._ear.begin(round_)
        if order.begin_ns - time.monotonic_ns() > QUIET_NS:
            self._carrier.quiet()
        await _until(order.begin_ns)
        if order.speaks:
            await (self._pour(round_) if order.what == "pour" else self._drip(round_))
            await self._carrier.say([self.payload(END, order.round)])
        await self._ear.over.wait()
        return round_.answer(time.process_time_ns() - began_ns)

    async def _pour(self, round_: Round) -> None:
        order, numbered = round_.order, os.environ.get(DIGEST)
        count = max(1, min(BURST_COUNT, BURST_OCTETS // order.size, self._ahead_max(order)))
        burst = [self.payload(DATA, order.round, order.size)] * count
        while await self._room(round_, count):
            if numbered:
                burst = [
                    self.payload(DATA, order.round, order.size, round_.sent + i)
                    for i in range(count)
                ]
            await self._carrier.say(burst)
            round_.sent += count

    async def _drip(self, round_: Round) -> None:
        """Evenly, each when due; above a thousand a second those of a millisecond together.

        What could not be said in time, because there is no room, is not made up for.
        """
        order = round_.order
        step_ns = max(1e9 / order.rate, 1e6)
        turn = due_count = 0
        while (due_ns := order.begin_ns + int(step_ns * turn)) < order.end_ns:
            await _until(due_ns)
            turn += 1
            due = int(turn * step_ns * order.rate / 1e9 + 1e-6) - due_count
            due_count += due
            if not await self._room(round_, due):
                return
            now_ns = time.monotonic_ns()
            burst = [self.payload(DATA, order.round, order.size, now_ns)] * due
            if burst:
                await self._carrier.say(burst)
            round_.sent += due

    def _ahead_max(self, order: Order) -> int:
        return max(1, min(self._carrier.ahead_count_max, AHEAD_OCTETS_MAX // order.size))

    async def _room(self, round_: Round, count: int) -> bool:
        """Wait until so many more may be said; whether that was before the round's end."""
        order = round_.order
        ahead_max = max(count, self._ahead_max(order))
        while time.monotonic_ns() < order.end_ns:
            if round_.sent + count - round_.own <= ahead_max:
                return True
            await asyncio.sleep(PAUSE_S)
        return False

    def payload(self, kind: int, number: int = 0, size: int = SIZE_MIN, stamp: int = 0) -> bytes:
        start = head(kind, number) + stamp.to_bytes(8, "big") + bytes((self._me,))
        return start.ljust(size, b"\0")


async def _until(at_ns: int) -> None:
    while (left_ns := at_ns - time.monotonic_ns()) > 0:
        await asyncio.sleep(left_ns / 1e9)


async def _orders() -> AsyncIterator[Order]:
    """Until `quit`, or until who gives them is gone."""
    pipe = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(pipe), sys.stdin)
    while (line := (await pipe.readline()).decode().strip()) and line != "quit":
        yield parsed(line)


async def _work(
    connected: Callable[[Ear], contextlib.AbstractAsyncContextManager[Carrier]],
    me: int,
    members: int,
) -> None:
    ear = Ear(asyncio.get_running_loop(), members)
    async with connected(ear) as carrier:
        member = Member(carrier, ear, me)
        while not ear.all_here.is_set():
            # Again and again: a group that is still being founded may lose it.
            await carrier.say([member.payload(HELLO)])
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ear.all_here.wait(), HELLO_S)
        tell({"ready": True})
        async for order in _orders():
            tell(await member.obey(order))


def run(
    connected: Callable[[Ear], contextlib.AbstractAsyncContextManager[Carrier]],
    me: int,
    members: int,
) -> int:
    """A member until its orders end; what goes wrong is told in one line."""
    try:
        asyncio.run(_work(connected, me, members))
    except KeyboardInterrupt:
        pass
    except Exception as error:  # whatever the peer's library raises
        tell({"trouble": f"{type(error).__name__}: {' '.join(str(error).split())}"})
        return 1
    return 0
