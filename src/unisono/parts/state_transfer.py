"""State transfer from one member to another, outside the order: the receiver pulls.

The receiver requests again what did not come, so the server keeps no timers. At most `flight`
pieces are in flight; the next half is requested when the last half has begun to arrive.
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
"""Gaps that are requested at once."""


PIECES_MAX: Final = 64
"""Pieces sent in answer to one request, by default."""

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
    """States kept to be pulled in pieces, each under a key of the protocol: a joiner, a view."""

    __slots__ = ("_piece_bytes", "_pieces_max", "_states")

    def __init__(self, piece_bytes: int, pieces_max: int = PIECES_MAX) -> None:
        self._piece_bytes = piece_bytes
        self._pieces_max = pieces_max
        self._states: dict[K, memoryview | None] = {}
        """None while the application is asked for it."""

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, key: K) -> bool:
        """Whether the state is here."""
        return self._states.get(key) is not None

    def known(self) -> list[K]:
        """The keys of states that are here, or expected."""
        return list(self._states)

    def expect(self, key: K) -> None:
        """The application is asked for this state."""
        self._states[key] = None

    def keep_expected(self, key: K, state: bytes) -> None:
        """The application's answer; ignored if it was forgotten meanwhile."""
        if key in self._states:
            self.keep(key, state)

    def keep(self, key: K, state: bytes) -> None:
        self._states[key] = memoryview(state)

    def forget(self, key: K) -> None:
        self._states.pop(key, None)

    def clear(self) -> None:
        self._states.clear()

    def pieces(self, key: K, offset: int, count: int) -> list[tuple[int, int, memoryview]]:
        """Up to `count` pieces from `offset` on: total size, offset and piece of each. An empty
        state is one empty piece; of a state that is not here there is none."""
        state = self._states.get(key)
        if state is None:
            return []
        size, step = len(state), self._piece_bytes
        if not size:
            return [(0, 0, state)]
        last = min(offset + min(count, self._pieces_max) * step, size)
        return [(size, at, state[at : min(at + step, last)]) for at in range(offset, last, step)]


class StateReceiver:
    """A state on its way. Pieces may come in any order, twice, or not at all.

    Each piece is written where it belongs, so that a large state is in memory once. At most twice
    what has come is reserved, whatever size is announced.
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
        """By offset, the lengths of pieces beyond the first gap."""
        self._piece = 0
        self._asked = flight * PIECE_BYTES_MAX
        self._last = 0
        """The end of the last range requested."""
        self.at = 0
        """Everything before this offset is here."""
        self.has_run_dry = False
        """The last piece requested came, and some before it did not: they are lost."""
        self._stood_at = -1

    def take(self, total: int, offset: int, piece: Buffer) -> bool:
        """Whether the piece was new. An impossible one is refused."""
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

    def _reserve(self, nbytes: int) -> None:
        """Grow in few large steps: many small ones would fragment the memory."""
        self._state.seek(nbytes - 1)
        self._state.write(b"\0")
        self._room = nbytes

    def ask(self) -> tuple[int, int]:
        """What to request at the start, or when nothing comes: the first missing offset, and how
        many pieces from there."""
        self._asked = max(self._asked, self.at + self._flight * (self._piece or PIECE_BYTES_MAX))
        self._last = self._asked
        return self.at, self._flight

    def ask_if_stalled(self) -> tuple[int, int] | None:
        """What to request if nothing has come since the last call; called once a heartbeat."""
        stalled = self.at == self._stood_at
        request = self.ask() if stalled else None
        self._stood_at = self.at
        return request

    def ask_again(self) -> list[tuple[int, int]]:
        """What to request when nothing comes: of a flight, what is missing."""
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
        """What to request while pieces arrive, so that they keep coming; None for nothing."""
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
