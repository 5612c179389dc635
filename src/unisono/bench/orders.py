"""The line protocol from a member's side: what it is ordered, what its messages look like."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

DATA, END = 0, 1
"""The kinds of message: octet 0."""
HEAD_OCTETS: Final = 5
"""The kind, and the round in four octets."""
STAMP_END: Final = 13
"""Octets 5 to 12 are the time at which it was said, in nanoseconds."""
SIZE_MIN: Final = 16
SAMPLES_MAX: Final = 2_000


@dataclass(frozen=True, slots=True)
class Order:
    """`pour` and `probe`; a word that a member does not know is its own trouble."""

    what: str
    round: int
    begin_ns: int
    seconds: float
    size: int
    speaks: bool
    senders: int
    rate: float = 0.0
    """Messages a second of each that speaks; none means as fast as the system lets it."""

    @property
    def end_ns(self) -> int:
        return self.begin_ns + round(self.seconds * 1e9)

    def line(self, speaks: bool | None = None) -> str:
        """As it is written; `speaks` is what differs from member to member."""
        words: list[str | int] = [
            self.what,
            self.round,
            self.begin_ns,
            f"{self.seconds:g}",
            self.size,
        ]
        if self.what != "pour":
            words.append(max(1, round(self.rate)))
        speaks = self.speaks if speaks is None else speaks
        return " ".join(map(str, (*words, int(speaks), self.senders)))


def parsed(line: str) -> Order:
    """The order of a line; `ValueError` when it is none."""
    what, *words = line.split()
    rate = "0" if what == "pour" else words.pop(4) if len(words) == 7 else ""
    number, begin_ns, seconds, size, speaks, senders = words
    return Order(
        what,
        int(number),
        int(begin_ns),
        float(seconds),
        int(size),
        speaks == "1",
        int(senders),
        float(rate),
    )


def head(kind: int, number: int) -> bytes:
    """How every message of this kind and round begins."""
    return bytes((kind,)) + number.to_bytes(4, "big")


def payload(kind: int, number: int, size: int = SIZE_MIN, stamp_ns: int = 0) -> bytes:
    return (head(kind, number) + stamp_ns.to_bytes(8, "big")).ljust(size, b"\0")


def stamp_ns(message: bytes) -> int:
    return int.from_bytes(message[HEAD_OCTETS:STAMP_END], "big")


def stride(expected: float) -> int:
    """Of so many, each so-and-so-manieth is a sample."""
    return max(1, -(-round(expected) // SAMPLES_MAX))


def tell(told: dict[str, Any]) -> None:
    print(json.dumps(told), flush=True)
