"""State from one member to another, beside the group's traffic: the taker pulls, the giver answers.

The taker asks again for what did not come, so the giver keeps no timers. At most `flight` pieces
are under way; the next half is asked for when the last half has begun to come.
"""

from __future__ import annotations

from collections.abc import Hashable
from io import BytesIO
from typing import Final, Generic, NamedTuple, TypeVar

from unisono.fields import U16, U64, Rest
from unisono.model import Buffer

PIECE_BYTES_MAX: Final = 65_536
RESERVE_BYTES: Final = 1 << 20
GAPS_MAX: Final = 32
"""Gaps that are asked for at once."""


PIECES_MAX: Final = 64
"""Pieces sent in answer to one request."""

K = TypeVar("K", bound=Hashable)


class TransferRequest(NamedTuple):
    """A joiner requests pieces of the state; none is the report that it has all of it."""

    joiner: U64
    offset: U64
    pieces: U16

    def label(self) -> str:
        return f"state-ask from {self.offset}"


class TransferPiece(NamedTuple):
    """A piece of the state that was captured for this joiner."""

    joiner: U64
    total: U64
    offset: U64
    piece: Rest

    def label(self) -> str:
        return f"state {self.offset} of {self.total}"


class StateServer(Generic[K]):
    """States captured for joiners, each kept until its joiner has it."""

    __slots__ = ("_piece_bytes", "_senders")

    def __init__(self, piece_bytes: int) -> None:
        self._piece_bytes = piece_bytes
        self._senders: dict[K, StateSender | None] = {}

    def __len__(self) -> int:
        return len(self._senders)

    def joiners(self) -> list[K]:
        return list(self._senders)

    def expect(self, joiner: K) -> None:
        """The application is asked for its state, for this joiner."""
        self._senders[joiner] = None

    def keep(self, joiner: K, state: bytes) -> None:
        """The application's answer; ignored if the joiner has gone meanwhile."""
        if joiner in self._senders:
            self._senders[joiner] = StateSender(state, self._piece_bytes)

    def forget(self, joiner: K) -> None:
        self._senders.pop(joiner, None)

    def pieces(self, joiner: K, offset: int, count: int) -> list[tuple[int, int, memoryview]]:
        """The pieces requested: total size, offset and piece of each. None before the application
        has answered. A request for 0 pieces reports that the joiner has the state."""
        if count == 0:
            self.forget(joiner)
        sender = self._senders.get(joiner)
        if sender is None:
            return []
        pieces = sender.pieces(offset, min(count, PIECES_MAX))
        if not pieces and sender.octets == 0:
            pieces = [(0, memoryview(b""))]
        return [(sender.octets, at, piece) for at, piece in pieces]


class StateSender:
    """One state, to be read in pieces."""

    __slots__ = ("_piece", "_state")

    def __init__(self, state: bytes, piece_bytes: int) -> None:
        self._state = memoryview(state)
        self._piece = piece_bytes

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


class StateReceiver:
    """A state on its way. Pieces may come in any order, twice, or not at all.

    Each is put into its place as it comes, and the whole is handed over as it lies, so that a large
    state is in memory once. Reserved is twice what has come, however large it is said to be.
    """

    __slots__ = (
        "_ahead",
        "_asked",
        "_flight",
        "_last",
        "_piece",
        "_room",
        "_state",
        "_stood_at",
        "_total",
        "at",
        "has_run_dry",
    )

    def __init__(self, flight: int = 64) -> None:
        self._flight = flight
        self._total: int | None = None
        self._state = BytesIO()
        self._room = 0
        self._ahead: dict[int, int] = {}
        """By offset, the lengths of the pieces that came before one that belongs before them."""
        self._piece = 0
        self._asked = flight * PIECE_BYTES_MAX
        self._last = 0
        """Where the last range that was asked for ends."""
        self.at = 0
        """Everything before this offset is here."""
        self.has_run_dry = False
        """The last piece that was asked for came, and some before it did not: they are lost."""
        self._stood_at = -1

    def take(self, total: int, offset: int, piece: Buffer) -> bool:
        """True when the piece was news. One that cannot be right is refused."""
        length = len(piece)
        if offset + length > total or offset < self.at or offset in self._ahead:
            return False
        if self._total is not None and (total != self._total or offset >= self._asked):
            return False
        if not length and (total or self._total is not None):
            return False
        if length > self._piece:  # The first to come may be the last and shorter one.
            asked = self.at + self._flight * length
            if offset > asked:
                return False
            self._asked = max(self._asked, asked) if self._piece else asked
            self._piece = length
        self._total = total
        if offset + length > self._room:
            self._reserve(min(total, max(RESERVE_BYTES, 2 * (offset + length))))
        self._state.seek(offset)
        self._state.write(piece)
        self.has_run_dry = offset != self.at and offset + length == min(self._last, total)
        if offset != self.at:
            self._ahead[offset] = length
            return True
        self.at += length
        while self._ahead and (length := self._ahead.pop(self.at, 0)):
            self.at += length
        return True

    def _reserve(self, octets: int) -> None:
        """Grow in few large steps: many small ones would leave as many holes in the memory."""
        self._state.seek(octets - 1)
        self._state.write(b"\0")
        self._room = octets

    def ask(self) -> tuple[int, int]:
        """What to ask for at the start, or when nothing comes: the first offset missing, and how
        many pieces from there."""
        self._asked = max(self._asked, self.at + self._flight * (self._piece or PIECE_BYTES_MAX))
        self._last = self._asked
        return self.at, self._flight

    def ask_if_stalled(self) -> tuple[int, int] | None:
        """What to ask for if nothing has come since the last call; called once a heartbeat."""
        stalled = self.at == self._stood_at
        request = self.ask() if stalled else None
        self._stood_at = self.at
        return request

    def ask_again(self) -> list[tuple[int, int]]:
        """What to ask for when nothing comes: not all of a flight, but what is missing of it."""
        start, count = self.ask()
        if not self._piece:
            return [(start, count)]
        last = min(self._asked, self._total or 0)
        asks: list[tuple[int, int]] = []
        for offset in (*sorted(self._ahead), last):
            if offset > start:
                asks.append((start, -(-(offset - start) // self._piece)))
            start = offset + self._ahead.get(offset, 0)
        del asks[GAPS_MAX:]
        if asks:
            start, count = asks[-1]
            self._last = start + count * self._piece
        return asks

    def ask_ahead(self) -> tuple[int, int] | None:
        """What to ask for while pieces come in, so that they never stop coming; None is nothing."""
        half = max(1, self._flight // 2)
        low = self.at + half * self._piece >= self._asked
        if self._total is None or self._asked >= self._total or not low:
            return None
        self._asked = max(self._asked, self.at)
        start, self._asked = self._asked, self._asked + half * self._piece
        self._last = self._asked
        return start, half

    def is_done(self) -> bool:
        return self._total is not None and self.at >= self._total

    def state(self) -> bytes:
        """The whole state, once it is done."""
        assert self.is_done()
        return self._state.getvalue()
