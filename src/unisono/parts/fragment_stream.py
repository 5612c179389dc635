"""Reassembly: a numbered stream of fragments, from which whole messages are taken in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Generic, Protocol, TypeVar

from unisono.model import Buffer
from unisono.parts.packing import joined
from unisono.parts.window import Window

FIRST: Final = 1
LAST: Final = 2
"""Flags of the fragment that begins a message, and of the one that ends it."""


def marked(pieces: Sequence[Buffer]) -> Iterator[tuple[int, Buffer]]:
    """The pieces of one message, each with its flags."""
    last = len(pieces) - 1
    for index, piece in enumerate(pieces):
        yield (FIRST if index == 0 else 0) | (LAST if index == last else 0), piece


class Fragment(Protocol):
    """What the stream holds: at least flags and a piece of the payload."""

    @property
    def flags(self) -> int: ...
    @property
    def payload(self) -> Buffer: ...


F = TypeVar("F", bound=Fragment)


class FragmentStream(Generic[F]):
    """Fragments by number, as they arrive, and how far their messages have been taken."""

    __slots__ = ("_scanned", "delivered", "window")

    def __init__(self, start: int = 0, window: Window[F] | None = None) -> None:
        self.window = Window[F](start) if window is None else window
        self.delivered = start
        """The last fragment of the last message taken."""
        self._scanned = 0
        """Fragments up to here do not end the message that is being received."""

    def complete(self) -> int:
        """The last fragment of the next message; 0 while some of it is missing."""
        window = self.window
        number = max(self.delivered, self._scanned) + 1
        while number <= window.received:
            fragment = window.get(number)
            assert fragment is not None, "a received fragment was forgotten before its delivery"
            if fragment.flags & LAST:
                return number
            self._scanned = number
            number += 1
        return 0

    def take(self, last: int) -> tuple[F, bytes]:
        """The next message, which ends at `last`: its first fragment and its payload."""
        fragments = self.window.row(self.delivered + 1, last)
        self.delivered = last
        return fragments[0], joined([fragment.payload for fragment in fragments])
