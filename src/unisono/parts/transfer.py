"""State from one member to another, beside the group's traffic: the taker pulls, the giver answers.

The taker asks again for what did not come, so the giver keeps no timers. At most `flight` pieces
are asked for at once; the giver holds one copy of the state for all who take it.
"""

from __future__ import annotations

from unisono.model import Buffer


class Giver:
    """One state, to be read in pieces."""

    __slots__ = ("_piece", "_state")

    def __init__(self, state: bytes, piece_octets: int) -> None:
        self._state = memoryview(state)
        self._piece = piece_octets

    @property
    def octets(self) -> int:
        return len(self._state)

    def pieces(self, offset: int, count: int) -> list[tuple[int, memoryview]]:
        """Up to `count` pieces from `offset` on; a foolish offset brings none."""
        last = min(offset + count * self._piece, len(self._state))
        return [
            (at, self._state[at : min(at + self._piece, last)])
            for at in range(offset, last, self._piece)
        ]


class Taker:
    """A state on its way. Pieces may come in any order, twice, or not at all."""

    __slots__ = ("_flight", "_limit", "_pieces", "_total", "at")

    def __init__(self, octets_max: int, flight: int = 32) -> None:
        self._limit = octets_max
        self._flight = flight
        self._total: int | None = None
        self._pieces: dict[int, bytes] = {}
        self.at = 0
        """Everything before this offset is here."""

    def take(self, total: int, offset: int, piece: Buffer) -> bool:
        """True when the piece was news. One that cannot be right is refused."""
        if total > self._limit or offset + len(piece) > total or offset in self._pieces:
            return False
        if self._total is not None and total != self._total:
            return False
        if not piece and total:
            return False
        self._total = total
        self._pieces[offset] = bytes(piece)
        while self._pieces.get(self.at):
            self.at += len(self._pieces[self.at])
        return True

    def wanted(self) -> tuple[int, int]:
        """What to ask for next: the first offset missing, and how many pieces from there."""
        return self.at, self._flight

    def done(self) -> bytes | None:
        if self._total is None or self.at < self._total:
            return None
        return b"".join(self._pieces[at] for at in sorted(self._pieces))[: self._total]
