"""QDAT and QSUS: turns as they come, in order, and what everybody has of them.

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
from unisono.parts.window import Window
from unisono.protocols.ring.packets import WHOLE, Flag, Range, TurnPacket, key_of
from unisono.protocols.ring.ring import Ring
from unisono.protocols.ring.turn import (
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
from unisono.wire import read_numbers

AHEAD_MAX: Final = 256
"""Turns beyond S that are kept; later ones are asked for again when their time comes."""
RANGES_MAX: Final = 64
"""Gaps that are asked for at once."""
# Deviates [RNG Memory]: the paper keeps the last n messages, safe or not. Here nothing is forgotten
# before all have it.
HISTORY_ROUNDS: Final = 2
"""So many rounds of turns are kept that everyone has: for one that was away for a moment."""
HISTORY_BYTES: Final = 1 << 20
"""But not beyond this."""

_SERVICES: Final = tuple(Service)


@dataclass(slots=True)
class Heard:
    """What a turn says to the application, once it may be delivered."""

    s: int
    spans: list[MessageRun]
    count: int
    """Of messages."""
    octets: int
    safe: bool
    """It waits until everyone has it."""
    others: tuple[int, ...] = ()
    """Originators for whom the holder said it: it waits until these have it."""


@dataclass(slots=True)
class Growing:
    """A large message of which the last piece has not come."""

    number: int
    service: int
    pieces: list[Buffer]
    octets: int


class Ordering:
    """S, K and the turns of one member."""

    def __init__(self, key: int, message_bytes_max: int, drop: Callable[[str], None]) -> None:
        self.key = key
        self._message_bytes_max = message_bytes_max
        self.window: Window[Turn] = Window()
        self._incoming: dict[int, IncomingTurn] = {}
        self._history_bytes = 0
        self.ring = Ring()
        self._view = str(self.ring.version)
        self.K: list[int] = []
        """By position: the last turn that each is known to have."""
        self.safe = 0
        """k: everyone has the turns up to here."""
        self.highest = 0
        """The highest turn that was heard of."""
        self.reached = 0
        """The highest turn that somebody said, or has, with all before it."""
        self.place = 0
        self.locals: dict[int, int] = {}
        """ls by originator: its last message that was ordered."""
        self._growing: dict[int, Growing] = {}
        self._members: dict[int, Member] = {}
        self._drop = drop
        self.is_broken = False
        """Others deliver a message that is too large for us: we cannot go on."""

    @property
    def S(self) -> int:
        return self.window.received

    # -- a new ring ------------------------------------------------------------------------------

    def enter(self, ring: Ring) -> None:
        """[RNG Phase-2] All on the ring have the turns up to its base. What lies beyond belongs to
        nobody, and large messages begin anew."""
        if ring.base > self.S:  # A newcomer: what was before is not for it.
            self.window = Window(ring.base)
            self._history_bytes = 0
        self._cut(ring.base)
        self._incoming.clear()
        self._growing.clear()
        self.ring, self._view = ring, str(ring.version)
        self.K = [ring.base] * len(ring.seats)
        self.highest = self.reached = ring.base
        self.place = ring.place
        self._members = {key: ring.seats[at].member for key, at in ring.index.items()}
        self.locals = {key_of(seat.member): seat.local for seat in (*ring.absent, *ring.seats)}
        self._forget()

    def start_anew(self) -> None:
        """Nothing is left of what was: a new group begins."""
        self.window = Window()
        self._history_bytes = 0
        self.place = self.safe = self.highest = self.reached = 0
        self.locals = {}
        self._growing.clear()
        self._incoming.clear()

    def stand_still(self) -> None:
        """[RNG Phase-1] What is not whole by now may be of a ring that is no more."""
        self._incoming.clear()
        self._cut(self.S)
        self.highest = self.reached = self.S

    def _cut(self, after: int) -> None:
        for turn in self.window.cut(after):
            self._history_bytes -= len(turn.content)

    def expect(self, s: int) -> None:
        """The one who leads has the turns up to here."""
        self.highest = self.reached = max(self.S, s)

    # -- turns -----------------------------------------------------------------------------------

    def take(self, packet: TurnPacket, holder: int) -> bool:
        """Packets of a turn. They may complete it; whether it is still coming in."""
        s, count = packet.header.s, packet.of
        if s > self.highest:
            self.highest = s
        if s > self.reached and not packet.flags & Flag.EARLY:
            self.reached = s
        if s <= self.window.received or s > self.window.received + AHEAD_MAX:
            return False
        found = self._incoming.get(s)
        if found is None:
            if self.window.get(s) is not None:
                return False
            if count == 1:
                content = bytes(packet.pieces[0])
                self._put(s, Turn(s, holder, packet.flags, content, len(content) or 1))
                return False
            found = IncomingTurn(holder, packet.flags, [None] * count, count)
            self._incoming[s] = found
        if len(found.pieces) != count:
            return False
        found.take(packet.at, packet.pieces)
        if found.missing:
            return True
        del self._incoming[s]
        turn = found.turn(s)
        if turn is None:
            self._drop("malformed")
        else:
            self._put(s, turn)
        return False

    def extends_turn(self, packet: TurnPacket) -> bool:
        """Take packets from the middle of a turn that is coming in, if that is what they are: after
        them its last packet, or another, is still to come."""
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

    def say(self, turn: Turn) -> None:
        """Our own turn is in order at once."""
        self.highest = max(self.highest, turn.s)
        self._put(turn.s, turn)

    def hear(self, turn: Turn) -> Heard:
        """The turn that comes next, read: what it brings is the same at everyone, for the same
        turns came before it everywhere."""
        spans: list[MessageRun] = []
        content = turn.content
        try:
            runs = read_runs(content)
        except BadPacket as bad:
            self._drop(bad.reason)
            runs = []
        at = len(content)
        for run in runs:
            at -= len(run.chunks[0])
        for run in runs:
            self._hear_run(run, content, at, spans)
            at += len(run.chunks[0])
        count = octets = 0
        for span in spans:
            count += span.times
            octets += span.size
        others = tuple(run.origin for run in runs if run.origin != turn.holder)
        return Heard(turn.s, spans, count, octets, bool(turn.flags & Flag.SAFE), others)

    def _hear_run(self, run: OriginRun, content: bytes, at: int, spans: list[MessageRun]) -> None:
        """The messages of a run, whose octets begin at this place.

        [RNG-4] A delegate's run may come twice, or after a gap: whatever is not its originator's
        next message is passed over."""
        member = self._members.get(run.origin)
        if member is None:
            self._drop("origin")
            return
        number, have, view = run.first, self.locals.get(run.origin, 0), self._view
        lengths: tuple[int, ...]
        for times, size, mark in run.groups:
            length, past, lengths = size, have + 1 - number, ()
            new, octets, start, service = times - past, content, at + past * length, mark & SERVICE
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
                self._growing.pop(run.origin, None)
            elif mark & IN_PIECES:
                piece = memoryview(content)[at : at + length]
                whole = self._grow(run.origin, number, mark, piece)
                if whole is None:
                    new = 0
                else:
                    octets, start, service = joined(whole.pieces), 0, whole.service
                    length = len(octets)
            else:
                self._growing.pop(run.origin, None)
            if new:
                level, first = _SERVICES[service], have + 1
                place = self.place + 1
                span = MessageRun(
                    member, octets, start, length, new, first, view, place, level, lengths
                )
                spans.append(span)
                self.place += new
                have += new
            if not mark & MORE:
                number += times
            at += size_of(times, size, mark)
        self.locals[run.origin] = have

    def _grow(self, origin: int, number: int, mark: int, piece: Buffer) -> Growing | None:
        """A piece of a large message; the message when it was the last."""
        if not mark & GOES_ON:
            self._growing[origin] = Growing(number, mark & SERVICE, [piece], len(piece))
            return None
        found = self._growing.get(origin)
        if found is None or found.number != number:
            self._drop("fragment")
            return None
        found.pieces.append(piece)
        found.octets += len(piece)
        if found.octets > self._message_bytes_max:
            self._drop("too_large")
            self.is_broken = True
            return None
        return None if mark & MORE else self._growing.pop(origin)

    # -- what everyone has -----------------------------------------------------------------------

    def note(self, key: int, s: int, k: int) -> None:
        """A packet of this ring: its sender has everything up to s, and knows that all have k."""
        at = self.ring.index.get(key)
        if at is not None and s > self.K[at]:
            self.K[at] = s
        if k > self.safe:
            self.safe = k
        if s > self.highest:
            self.highest = s
        if s > self.reached:
            self.reached = s

    def may_deliver(self, heard: Heard) -> bool:
        """[RNG-7] What is safe when everyone has it; the rest at once, except what the holder said
        for others. Such a turn may be lost with its holder and all who have it, and an originator
        without it would say its message again, at another place: so it must have it first."""
        if heard.s <= self.safe:
            return True
        return not heard.safe and all(self._has(key, heard.s) for key in heard.others)

    def _has(self, key: int, s: int) -> bool:
        """Whether this one is known to have turn s, which we have."""
        at = self.ring.index.get(key)
        return key == self.key or (at is not None and self.K[at] >= s)

    def settle(self) -> None:
        """[RNG-7, RNG-8] Both roads: by what the others' turns and acks tell us, or by k."""
        at = self.ring.index.get(self.key)
        if at is not None:
            self.K[at] = self.window.received
        if self.K and (least := min(self.K)) > self.safe:
            self.safe = least
        self._forget()

    def _forget(self) -> None:
        """[RNG-9] About a ring's worth is kept."""
        window = self.window
        limit = min(self.safe, window.received)
        if window.floor >= limit:
            return
        keep = HISTORY_ROUNDS * max(1, len(self.ring.seats))
        while window.floor < limit and (
            window.floor < limit - keep or self._history_bytes > HISTORY_BYTES
        ):
            for turn in window.forget(window.floor + 1):
                self._history_bytes -= len(turn.content)

    # -- repair ----------------------------------------------------------------------------------

    def gaps(self) -> list[Range]:
        """What is missing up to the highest turn that was heard of."""
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
            start = -1
            for index, piece in enumerate(found.pieces):
                if piece is None and start < 0:
                    start = index
                elif piece is not None and start >= 0:
                    ranges.append((s, start, index - 1))
                    start = -1
            if start >= 0:
                ranges.append((s, start, WHOLE))
        return ranges[:RANGES_MAX]

    def is_coming(self) -> bool:
        """Of all that was heard of only the next turn is not whole, and its holder has more."""
        s = self.window.received + 1
        found = self._incoming.get(s)
        if found is None or not found.flags & Flag.WANTED:
            return False
        return all(self.window.get(later) for later in range(s + 1, self.highest + 1))

    def has_gap(self) -> bool:
        """A turn was heard of that is not here."""
        return self.highest > self.window.received

    def is_lost(self) -> bool:
        """What is missing will not come by itself: something that was sent after it is here."""
        s = self.window.received + 1
        if self.reached > s:
            return True
        found = self._incoming.get(s)
        return found is not None and found.pieces[-1] is not None

    def pieces(self, ranges: Sequence[Range], count_max: int) -> list[tuple[Turn, range]]:
        """Of what is asked for, what is here: turns, and which packets of each."""
        found: list[tuple[Turn, range]] = []
        for s, first, last in ranges:
            turn = self.window.get(s)
            if turn is None:
                continue
            asked = range(first, min(last + 1, turn.count))[:count_max]
            if asked:
                found.append((turn, asked))
                count_max -= len(asked)
        return found

    def has_from(self, s: int) -> bool:
        """Whether one whose last turn is s can be sent all that follows."""
        return s >= self.window.floor
