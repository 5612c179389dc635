"""The line protocol between the bench and a member: its commands, and the messages it sends."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

from unisono.model import Service, ServiceLevel

LOAD, PROBE, CRASH = "load", "probe", "crash"
"""Send as fast as the system allows; send at a rate and measure delays; survive the crash of a
member (ours only). A member reports any other command as trouble."""
EACH, MIXED = "each", "mixed"
"""Ways to use the library: message by message; bursts of many lengths."""
DATA, END = 0, 1
"""Kinds of message: byte 0."""
HEAD_BYTES: Final = 5
"""The kind, and the round in four bytes."""
STAMP_END: Final = 13
"""Bytes 5 to 12 are the time at which it was sent, in nanoseconds."""
SIZE_MIN: Final = 16
SAMPLES_MAX: Final = 2_000


@dataclass(frozen=True, slots=True)
class Command:
    """One line to a member."""

    what: str
    round: int
    begin_ns: int
    seconds: float
    size: int
    sends: bool
    senders: int
    rate: float = 0.0
    """Messages a second of each sender; 0: as fast as the system allows."""

    @property
    def end_ns(self) -> int:
        return self.begin_ns + round(self.seconds * 1e9)

    def line(self, sends: bool | None = None) -> str:
        """As it is written; `sends` is what differs from member to member."""
        words: list[str | int] = [
            self.what,
            self.round,
            self.begin_ns,
            f"{self.seconds:g}",
            self.size,
        ]
        if self.what != LOAD:
            words.append(max(1, round(self.rate)))
        sends = self.sends if sends is None else sends
        return " ".join(map(str, (*words, int(sends), self.senders)))


def parse(line: str) -> Command:
    """The command of a line; `ValueError` if it is none."""
    what, *words = line.split()
    rate = "0" if what == LOAD else words.pop(4) if len(words) == 7 else ""
    number, begin_ns, seconds, size, sends, senders = words
    return Command(
        what,
        int(number),
        int(begin_ns),
        float(seconds),
        int(size),
        sends == "1",
        int(senders),
        float(rate),
    )


async def commands() -> AsyncIterator[Command]:
    """From standard input, until `quit` or its end."""
    pipe = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(pipe), sys.stdin)
    while (line := (await pipe.readline()).decode().strip()) and line != "quit":
        yield parse(line)


def answer(values: dict[str, Any]) -> None:
    print(json.dumps(values), flush=True)


async def until_ns(at_ns: int) -> None:
    """Sleep until this time of the monotonic clock."""
    while (left_ns := at_ns - time.monotonic_ns()) > 0:
        await asyncio.sleep(left_ns / 1e9)


# -- messages --------------------------------------------------------------------------------------


def head(kind: int, number: int) -> bytes:
    """How every message of this kind and round begins."""
    return bytes((kind,)) + number.to_bytes(4, "big")


def payload(kind: int, number: int, size: int = SIZE_MIN, stamp_ns: int = 0) -> bytes:
    return (head(kind, number) + stamp_ns.to_bytes(8, "big")).ljust(size, b"\0")


def end_level(level: ServiceLevel) -> ServiceLevel:
    """The level of an end mark: it has to come, and after the messages that it ends."""
    is_weak = isinstance(level, Service) and level < Service.FIFO
    return Service.FIFO if is_weak else level


def stamp_ns(message: bytes) -> int:
    return int.from_bytes(message[HEAD_BYTES:STAMP_END], "big")


def stride(expected: float) -> int:
    """Sample every n-th of this many messages."""
    return max(1, -(-round(expected) // SAMPLES_MAX))
