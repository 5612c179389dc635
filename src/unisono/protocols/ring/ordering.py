"""QDAT and QSUS: turns as they arrive, in order, and which of them all members have.

[RNG-5] A turn that is next goes to QDAT, an early one waits in QSUS until the gap closes; both are
one window here, whose unbroken row ends at S.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from unisono.errors import BadPacket
from unisono.model import Buffer, Member, Service
from unisono.parts.message_runs import MessageRun
from unisono.parts.packing import joined
from unisono.parts.turn import (
    DIFFER,
    GOES_ON,
    IN_PIECES,
    LENGTH_BYTES,
    MORE,
    SERVICE,
    IncomingTurn,
    OriginRun,
    Turn,
    read_runs,
    size_of,
)
from unisono.parts.window import Window
from unisono.protocols.ring.packets import WHOLE, Flag, Header, Range, TurnPacket, key_of
from unisono.protocols.ring.ring import Ring
from unisono.wire import read_numbers

AHEAD_MAX: Final = 256
"""Turns beyond S that are kept; later ones are requested when they are next."""
INCOMING_MAX: Final = 32
"""Of these, incomplete ones."""
RANGES_MAX: Final = 64
"""Gaps requested at once."""
# Deviates [RNG Memory]: the paper keeps the last n messages, safe or not. Here nothing is forgotten
# before all have it.
HISTORY_ROUNDS: Final = 2
"""Rounds of turns kept though all have them, for members that return after a moment."""
HISTORY_BYTES: Final = 1 << 20
"""At most this much of them."""

_SERVICES: Final = tuple(Service)


@dataclass(slots=True)
class TurnMessages:
    """The messages of a turn, on their way to the application."""

    s: int
    runs: list[MessageRun]
    count: int
    """Of messages."""
    nbytes: int
    safe: bool
    """They wait until everyone has the turn."""
    others: tuple[int, ...] = ()
    """Originators for which the holder sent them: they wait until these have the turn."""


@dataclass(slots=True)
class PartialMessage:
    """A large message whose last piece has not arrived."""

    number: int
    service: int
    pieces: list[Buffer]
    nbytes: int


class Ordering:
    """S, K, k and the turns of one member."""

    def __init__(self, key: int, message_bytes_max: int, drop: Callable[[str], None]) -> None:
        self.key = key
        self._message_bytes_max = message_bytes_max
        self.window: Window[Turn] = Window()
        self._incoming: dict[int, IncomingTurn] = {}
        self._history_bytes = 0
        self.ring = Ring()
        self._view = str(self.ring.version)
        self.own_next = self.ring.first_turn(key)
        """Our next turn. No later one exists before we have sent it."""
        self.K: list[int] = []
        """By position: the last turn that each is known to have."""
        self.safe = 0
        """k: everyone has the turns up to here."""
        self.highest = 0
        """The highest turn known to exist."""
        self.reached = 0
        """The highest turn that some member has with all before it."""
        self.read_upto = 0
        """The last turn read."""
        self.seq = 0
        """The sequence number of the last message read."""
        self.locals: dict[int, int] = {}
        """ls by originator: the number of its last message read."""
        self._partial: dict[int, PartialMessage] = {}
        self._members: dict[int, Member] = {}
        self._drop = drop
        self.is_broken = False
        """Others deliver a message that is too large here: this member cannot go on."""
        self._arriving: Header | None = None
        """Of the packets last taken, if more of their turn are to follow. The packets of a turn
        that were read together share it."""
        self.is_unsettled = True
        """K, S or k changed since `settle`."""

    @property
    def S(self) -> int:
        return self.window.received

    # -- a new ring ------------------------------------------------------------------------------

    def enter(self, ring: Ring) -> None:
        """[RNG Phase-2] All on the ring have the turns up to its base. Later turns are void, and
        large messages begin anew."""
        if ring.base > self.S:  # A newcomer, which needs no earlier turns.
            self.window = Window(ring.base)
            self._history_bytes = 0
        self._cut(ring.base)
        self._incoming.clear()
        self._partial.clear()
        self.ring, self._view = ring, str(ring.version)
        self.K = [ring.base] * len(ring.seats)
        self.own_next = ring.first_turn(self.key)
        self.highest = self.reached = ring.base
        self.seq = ring.seq
        self._members = {key: ring.seats[at].member for key, at in ring.index.items()}
        self.locals = {key_of(seat.member): seat.local for seat in (*ring.absent, *ring.seats)}
        self.read_upto = self.window.received
        self._forget()
        self.is_unsettled = True

    def start_anew(self) -> None:
        """A new group begins with an empty history."""
        self.window = Window()
        self._history_bytes = 0
        self.seq = self.safe = self.highest = self.reached = self.read_upto = 0
        self.locals = {}
        self._partial.clear()
        self._incoming.clear()

    def stop(self) -> None:
        """[RNG Phase-1] Incomplete turns may belong to a ring that no longer exists."""
        self._incoming.clear()
        self._cut(self.S)
        self.highest = self.reached = self.S

    def _cut(self, after: int) -> None:
        for turn in self.window.cut(after):
            self._history_bytes -= len(turn.content)

    def expect(self, s: int) -> None:
        """The coordinator has the turns up to here."""
        self.highest = self.reached = max(self.S, min(s, self.own_next - 1))

    # -- turns -----------------------------------------------------------------------------------

    def take(self, packet: TurnPacket, holder: int) -> None:
        """Packets of a turn, which they may complete."""
        s, count, received = packet.header.s, packet.of, self.window.received
        self._arriving = None
        if s >= self.own_next:
            self._drop("ahead")
            return
        if s > self.highest:
            self.highest = s
        if s > self.reached and not packet.flags & Flag.EARLY:
            self.reached = s
        if not received < s <= received + AHEAD_MAX:
            return
        found = self._incoming.get(s)
        if found is not None and len(found.pieces) != count:
            self._drop("contradiction")
            if not found.gives_way(count, packet.again):
                return
            del self._incoming[s]
            found = None
        if found is None:
            if self.window.get(s) is not None:
                return
            if count == 1:
                content = bytes(packet.pieces[0])
                self._put(s, Turn(s, holder, packet.flags, content, len(content) or 1))
                return
            if len(self._incoming) >= INCOMING_MAX and s > received + 1:
                self._drop("window")
                return
            found = IncomingTurn(holder, packet.flags, [None] * count, count)
            self._incoming[s] = found
        found.is_repair &= packet.again
        found.take(packet.at, packet.pieces)
        if found.missing:
            self._arriving = None if packet.again else packet.header
            return
        del self._incoming[s]
        turn = found.turn(s)
        if turn is None:
            self._drop("malformed")
        else:
            self._put(s, turn)

    def extends_turn(self, packet: TurnPacket) -> bool:
        """Take packets from the middle of the turn that is arriving, if they are: no guard of any
        figure depends on them. See `Figure RECEIVE` for the slow way."""
        if packet.header is not self._arriving:
            return False
        found, end = self._incoming.get(packet.header.s), packet.at + len(packet.pieces)
        if found is None or len(found.pieces) != packet.of:
            return False
        if end >= packet.of or found.missing <= len(packet.pieces):
            return False
        found.take(packet.at, packet.pieces)
        return True

    def _put(self, s: int, turn: Turn) -> None:
        self.window.put(s, turn)
        self._history_bytes += len(turn.content)
        self.is_unsettled = True

    def put_own(self, turn: Turn) -> None:
        """Our own turn, which is in order unless it is early."""
        self.highest = max(self.highest, turn.s)
        self.own_next = turn.s + len(self.ring.seats)
        self._put(turn.s, turn)

    def next_turn(self) -> Turn:
        """The first turn in order that was not read."""
        self.read_upto += 1
        turn = self.window.get(self.read_upto)
        assert turn is not None
        return turn

    def read(self, turn: Turn) -> TurnMessages:
        """The messages of the next turn: the same at all members, since all read the same turns
        before it."""
        found: list[MessageRun] = []
        content = turn.content
        try:
            runs = read_runs(content)
        except BadPacket as bad:
            self._drop(bad.reason)
            runs = []
        at = len(content) - sum([len(run.chunks[0]) for run in runs])
        for run in runs:
            self._read_run(run, content, at, found)
            at += len(run.chunks[0])
        count = nbytes = 0
        for each in found:
            count += each.times
            nbytes += each.size
        others = tuple([run.origin for run in runs if run.origin != turn.holder])
        return TurnMessages(turn.s, found, count, nbytes, bool(turn.flags & Flag.SAFE), others)

    def _read_run(self, run: OriginRun, content: bytes, at: int, found: list[MessageRun]) -> None:
        """The messages of a run, whose bytes begin at this offset.

        [RNG-4] The run of a delegate may arrive twice, or after a gap: any message but the next of
        its originator is ignored."""
        member = self._members.get(run.origin)
        if member is None:
            self._drop("origin")
            return
        number, have, view = run.first, self.locals.get(run.origin, 0), self._view
        lengths: tuple[int, ...]
        for times, size, mark in run.groups:
            length, past, lengths = size, have + 1 - number, ()
            new, data, start, service = times - past, content, at + past * length, mark & SERVICE
            if not 0 <= past < times:
                new = 0
            elif mark & DIFFER:
                lengths = read_numbers(content, at, times)
                if sum(lengths) != size:
                    self._drop("malformed")
                    new = 0
                start = at + times * LENGTH_BYTES + sum(lengths[:past])
                lengths = lengths[past:]
                length = sum(lengths)
                self._partial.pop(run.origin, None)
            elif mark & IN_PIECES:
                piece = memoryview(content)[at : at + length]
                whole = self._join(run.origin, number, mark, piece)
                if whole is None:
                    new = 0
                else:
                    data, start, service = joined(whole.pieces), 0, whole.service
                    length = len(data)
            else:
                self._partial.pop(run.origin, None)
            if new:
                level, first, seq = _SERVICES[service], have + 1, self.seq + 1
                found.append(
                    MessageRun(member, data, start, length, new, first, view, seq, level, lengths)
                )
                self.seq += new
                have += new
            if not mark & MORE:
                number += times
            at += size_of(times, size, mark)
        self.locals[run.origin] = have

    def _join(self, origin: int, number: int, mark: int, piece: Buffer) -> PartialMessage | None:
        """A piece of a large message; with the last, the message."""
        if not mark & GOES_ON:
            self._partial[origin] = PartialMessage(number, mark & SERVICE, [piece], len(piece))
            return None
        found = self._partial.get(origin)
        if found is None or found.number != number:
            self._drop("fragment")
            return None
        found.pieces.append(piece)
        found.nbytes += len(piece)
        if found.nbytes > self._message_bytes_max:
            self._drop("too_large")
            self.is_broken = True
            return None
        return None if mark & MORE else self._partial.pop(origin)

    # -- what everyone has -----------------------------------------------------------------------

    def note(self, key: int, s: int, k: int) -> None:
        """A packet of this ring: its sender has all turns up to s, and knows that all have k: we
        too."""
        at = self.ring.index.get(key)
        if at is None or s >= self.own_next or k > self.window.received:
            if max(s, k) > self.highest:
                self._drop("ahead")
            return
        if s > self.K[at]:
            self.K[at] = s
            self.is_unsettled = True
        if k > self.safe:
            self.safe = k
            self.is_unsettled = True
        if s > self.highest:
            self.highest = s
        if s > self.reached:
            self.reached = s

    def may_deliver(self, messages: TurnMessages) -> bool:
        """[RNG-7] Safe messages when everyone has them; others at once, except those that the
        holder sent for another member. Such a turn may be lost with its holder and all that have
        it, and an originator without it would send its message again, at another place in the
        order: so the originator must have it first."""
        if messages.s <= self.safe:
            return True
        return not messages.safe and all(self._has(key, messages.s) for key in messages.others)

    def _has(self, key: int, s: int) -> bool:
        """The member is known to have turn s, which is here."""
        at = self.ring.index.get(key)
        return key == self.key or (at is not None and self.K[at] >= s)

    def note_safe(self, s: int) -> None:
        """All have the turns up to s."""
        self.safe = max(self.safe, s)
        self.is_unsettled = True

    def settle(self) -> None:
        """[RNG-7, RNG-8] k by the turns and acks of the others, or as reported by a holder."""
        if not self.is_unsettled:
            return
        self.is_unsettled = False
        at = self.ring.index.get(self.key)
        if at is not None:
            self.K[at] = self.window.received
        if self.K and (least := min(self.K)) > self.safe:
            self.safe = least
        self._forget()

    def _forget(self) -> None:
        """[RNG-9] About a ring's worth of turns is kept."""
        window = self.window
        limit = min(self.safe, window.received)
        upto = limit - HISTORY_ROUNDS * (len(self.K) or 1)
        for turn in window.forget(upto) if upto > window.floor else ():
            self._history_bytes -= len(turn.content)
        while window.floor < limit and self._history_bytes > HISTORY_BYTES:
            for turn in window.forget(window.floor + 1):
                self._history_bytes -= len(turn.content)

    # -- repair ----------------------------------------------------------------------------------

    def gaps(self) -> list[Range]:
        """What is missing up to the highest turn known."""
        ranges: list[Range] = []
        last = min(self.highest, self.S + AHEAD_MAX)
        for s in range(self.S + 1, last + 1):
            if len(ranges) >= RANGES_MAX:
                break
            if self.window.get(s) is not None:
                continue
            found = self._incoming.get(s)
            if found is None:
                ranges.append((s, 0, WHOLE))
                continue
            ranges += [(s, first, last) for first, last in found.gaps(WHOLE)]
        return ranges[:RANGES_MAX]

    def is_arriving(self) -> bool:
        """Of all turns known only the next is incomplete, and its holder has more to send."""
        s = self.window.received + 1
        found = self._incoming.get(s)
        if found is None or not found.flags & Flag.WANTED:
            return False
        return all(self.window.get(later) for later in range(s + 1, self.highest + 1))

    def hole(self) -> tuple[int, int]:
        """The next turn, if its holder sent some of it, and how many of its packets are missing."""
        found = self._incoming.get(s := self.window.received + 1)
        return (0, 0) if found is None or found.is_repair else (s, found.missing)

    def has_gap(self, event: object = None) -> bool:
        """A turn that exists is not here."""
        return self.highest > self.window.received

    def has_no_gap(self, event: object) -> bool:
        return self.highest <= self.window.received

    def is_lost(self) -> bool:
        """What is missing will not arrive by itself: something sent after it is here."""
        s = self.window.received + 1
        if self.reached > s:
            return True
        found = self._incoming.get(s)
        return found is not None and found.pieces[-1] is not None

    def pieces(self, ranges: Sequence[Range], count_max: int) -> list[tuple[Turn, range]]:
        """What is here of the ranges: turns, and which packets of each."""
        found: list[tuple[Turn, range]] = []
        for s, first, last in ranges:
            turn = self.window.get(s)
            if turn is None:
                continue
            indices = range(first, min(last + 1, turn.count))[:count_max]
            if indices:
                found.append((turn, indices))
                count_max -= len(indices)
        return found

    def has_from(self, s: int) -> bool:
        """A member whose last turn is s can be sent all that follows."""
        return s >= self.window.floor
