"""A reliable numbered stream: the sender retains, the receiver requests what is missing.

The sender keeps fragments until they are acknowledged, and paces them. The receiver notices gaps,
also at the end of the stream: the sender reports in its heartbeats how far it has sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Generic

from unisono.parts.fragment_stream import F, FragmentStream
from unisono.parts.pacing import Flight
from unisono.parts.packing import packed
from unisono.parts.window import Window

RANGES_MAX: Final = 16
"""Ranges requested at once."""
AHEAD_MAX: Final = 1 << 16
"""A fragment this far ahead of the first gap is not taken."""


class SendStream(Generic[F]):
    """The sender's side."""

    __slots__ = ("_flight", "nbytes", "sent", "window")

    def __init__(self, flight_bytes: int) -> None:
        self.window: Window[F] = Window()
        self.sent = 0
        """The last fragment sent."""
        self.nbytes = 0
        """Payload that is retained."""
        self._flight = Flight(flight_bytes)

    @property
    def end(self) -> int:
        """The last fragment, sent or not."""
        return self.window.highest

    def append(self, fragments: Iterable[F]) -> None:
        for fragment in fragments:
            self.window.put(self.window.highest + 1, fragment)
            self.nbytes += len(fragment.payload)

    def due(self) -> tuple[int, list[F]]:
        """The fragments that may leave now, and the number of the first."""
        first = self.sent + 1
        while self.sent < self.window.highest and not self._flight.is_full():
            self.sent += 1
            fragment = self.window.get(self.sent)
            self._flight.add(self.sent, len(fragment.payload) if fragment is not None else 0)
        return first, self.window.row(first, self.sent)

    def again(self, first: int, last: int) -> tuple[int, list[F]]:
        """What was sent of this range and is retained, and the number of the first."""
        first = max(first, self.window.floor + 1)
        return first, self.window.row(first, min(last, self.sent))

    def acknowledge(self, upto: int) -> None:
        """Every receiver has delivered the fragments up to this number."""
        upto = min(upto, self.sent)
        self._flight.acknowledge(upto)
        self.nbytes -= sum(len(fragment.payload) for fragment in self.window.forget(upto))


class ReceiveStream(FragmentStream[F]):
    """The receiver's side."""

    __slots__ = ("reported",)

    def __init__(self, start: int = 0) -> None:
        super().__init__(start)
        self.reported = start
        """How far its sender reports to have sent."""

    def put(self, first: int, fragments: Iterable[F]) -> int:
        """Takes fragments in a row; how many of them were new."""
        limit = self.window.received + AHEAD_MAX
        numbered = enumerate(fragments, first)
        return sum(number <= limit and self.window.put(number, each) for number, each in numbered)

    def missing(self) -> tuple[tuple[int, int], ...]:
        """The ranges to request."""
        window = self.window
        upto = min(max(window.highest, self.reported), window.received + AHEAD_MAX)
        return tuple(window.missing(upto, RANGES_MAX)) if upto > window.received else ()


def packet_loads(
    first: int, fragments: Iterable[F], bytes_max: int, front_bytes: int
) -> Iterator[tuple[int, tuple[F, ...]]]:
    """Fragments in a row as loads of packets, each with the number of its first. A fragment takes
    `front_bytes` beside its payload."""
    sized = ((each, len(each.payload) + front_bytes) for each in fragments)
    for load in packed(sized, bytes_max):
        yield first, tuple(load)
        first += len(load)
