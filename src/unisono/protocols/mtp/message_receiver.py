"""Receiving: messages on their way here, what is missing of them, and when to request it."""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from random import Random
from typing import Final

from unisono.model import Buffer
from unisono.parts.codec import PacketCodec
from unisono.parts.window import Window
from unisono.protocols.mtp.pacing import Pacing
from unisono.protocols.mtp.packets import WHOLE, Data, Pressure, Range

NAK_RANGES_MAX: Final = 80
"""Ranges of one message that are requested at once, the rest in the next heartbeat."""
LOSING: Final = 8
"""A consumer that loses more than one packet in this many wants a slower rate."""
LARGE_BYTES: Final = 2 << 20
"""Larger messages are assembled in a memory map of their own,"""
APART_PACKETS: Final = 1024
"""this many packets at a time."""
PRIVATE: Final[dict[str, int]] = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
)
"""The map is not shared. On Windows it never is."""
ANSWERS: Final = 8
"""The time that an answer takes is a mean over about this many."""
SLOW_BEATS: Final = 20
"""The longest wait for an answer, in heartbeats."""


@dataclass(slots=True)
class IncomingMessage:
    """A message on its way here. Packet p is number p + 1 of the window."""

    number: int
    origin: int = 0
    """The key of its producer; 0 while unknown."""
    window: Window[Buffer] = field(default_factory=Window)
    packets: int = 0
    """Packets known to have been sent."""
    ended: bool = False
    """`packets` is all there are."""
    nbytes: int = 0
    heard_us: int = 0
    due_us: int = -1
    """When to request what is missing; -1 while nothing seems to be."""
    tries: int = 0
    asked_us: int = 0
    """When the packets before `asked_packets` were requested; 0 once one of them came."""
    asked_packets: int = 0
    denied: set[int] = field(default_factory=set)
    """Members that no longer hold it."""
    apart: int = 0
    """Leading packets that lie in a memory map of their own."""

    @property
    def whole(self) -> bool:
        return self.ended and self.window.received == self.packets

    def slices(self) -> list[Buffer]:
        return self.window.row(1, self.packets)

    def set_apart(self) -> None:
        """Move the leading packets of a very large message into a memory map, which returns to the
        system as it is read. The allocator would keep the memory of many small pieces, and the
        message would be in memory twice."""
        while self.window.received - self.apart >= APART_PACKETS:
            pieces = self.window.row(self.apart + 1, self.apart + APART_PACKETS)
            ends = list(accumulate(map(len, pieces), initial=0))
            try:
                block = memoryview(mmap.mmap(-1, ends[-1] or 1, **PRIVATE))
            except OSError:  # No memory map available: the pieces stay where they are.
                return
            block[: ends[-1]] = b"".join(pieces)
            self.window.replace(self.apart + 1, [block[at:end] for at, end in pairwise(ends)])
            self.apart += APART_PACKETS


class MessageReceiver:
    """Collects the packets of messages, and decides when a gap is due for a NAK."""

    def __init__(self, codec: PacketCodec, pace: Pacing, dally: int, dice: Random) -> None:
        self._codec = codec
        self._pace = pace
        self._dally = dally
        self._dice = dice
        self.incoming: dict[int, IncomingMessage] = {}
        self.nbytes = 0
        self._answer_us = 0
        """The mean time until a NAK is answered."""
        self._lost = 0
        """Packets seen to be missing since `pressure` was last called, and those that came."""
        self._taken = 0

    def at(self, number: int) -> IncomingMessage:
        found = self.incoming.get(number)
        if found is None:
            found = self.incoming[number] = IncomingMessage(number)
        return found

    def pressure(self, congested: bool) -> Pressure:
        """[MTP 4] What this consumer wants of the pace, judged since the last call."""
        lost, taken = self._lost, self._taken
        self._lost = self._taken = 0
        if congested:
            return Pressure.FULL
        return Pressure.LOSING if lost * LOSING > taken + lost else Pressure.CALM

    def take(self, data: Data, now_us: int) -> IncomingMessage | None:
        """Take a packet, or a row of them; returns the message once it is complete."""
        message = self.incoming.get(data.number) or self.at(data.number)
        message.origin = message.origin or data.origin
        first, count = data.packet + 1, len(data.pieces)
        ending = message.packets if message.ended else WHOLE
        if count > 1 and (first <= message.window.highest or first + count - 1 > ending):
            return self._take_each(data, now_us)
        if (
            message.origin != data.origin
            or first > ending
            or (data.end and message.packets > first)
        ):
            self._codec.count("drop.contrary", count)
            return None
        if first > message.window.highest:
            message.window.put_row(first, data.pieces)
        elif not message.window.put(first, data.piece):
            self._codec.drop("duplicate")
            return None
        nbytes = sum(map(len, data.pieces))
        message.nbytes += nbytes
        if message.nbytes > LARGE_BYTES:
            message.set_apart()
        self.nbytes += nbytes
        self._taken += count
        if message.asked_us and first <= message.asked_packets:
            self._answer_us += (now_us - message.asked_us - self._answer_us) // ANSWERS
            message.asked_us = 0
        message.heard_us = now_us
        if first > message.packets:
            self._lost += first - message.packets - 1
        message.packets = max(message.packets, first + count - 1)
        message.ended = message.ended or data.end
        if message.whole:
            message.due_us = -1
            return message
        if message.window.received < message.packets:
            self.notice(message, now_us, 0)
        elif message.due_us >= 0 and not message.ended:
            message.due_us = -1
        return None

    def _take_each(self, data: Data, now_us: int) -> IncomingMessage | None:
        """Some of them are duplicates, or beyond the end."""
        whole = None
        for packet, piece in enumerate(data.pieces, data.packet):
            one = data._replace(packet=packet, pieces=[piece])
            whole = self.take(one, now_us) or whole
        return whole

    def expect(self, number: int, origin: int, packets: int, ended: bool, now_us: int) -> None:
        """[MTP 3.3] An empty packet stated how much of a message was sent."""
        message = self.at(number)
        if message.whole or (message.origin and message.origin != origin):
            return
        message.origin = origin
        if packets >= message.packets and not message.ended:
            self._lost += packets - message.packets
            message.packets, message.ended = packets, ended and packets > 0
        if message.window.received < message.packets:
            self.notice(message, now_us, 1)

    def notice(self, message: IncomingMessage, now_us: int, beats: int) -> None:
        """[MTP 4] Something is missing: request it after a random 0 to f heartbeats, and not before
        `beats` have passed."""
        if message.due_us < 0:
            dally = self._dice.randint(0, self._dally) if self._dally else 0
            wait_us = max(beats * self._pace.heartbeat_us, self._delay_us()) if beats else 0
            message.due_us = now_us + wait_us + dally * self._pace.heartbeat_us

    def _delay_us(self) -> int:
        """A busy or distant member takes longer than a heartbeat to answer."""
        return min(self._answer_us, SLOW_BEATS * self._pace.heartbeat_us)

    def _flows_until_us(self, message: IncomingMessage) -> int:
        """When some of it came lately, the rest may still wait in a socket."""
        return message.heard_us + max(self._pace.heartbeat_us, self._delay_us())

    def is_coming(self, message: IncomingMessage, now_us: int) -> bool:
        """What came has no gaps, and more is arriving."""
        if message.window.received < message.window.highest:
            return False
        message.due_us = max(message.due_us, self._flows_until_us(message))
        return message.due_us > now_us

    def requested(self, message: IncomingMessage, now_us: int) -> None:
        """A NAK was sent for it: wait longer after each."""
        message.tries += 1
        message.asked_us, message.asked_packets = now_us, message.packets or 1
        wait = 1 + min(message.tries, 6)
        wait += self._dice.randint(0, self._dally) if self._dally else 0
        message.due_us = now_us + max(wait * self._pace.heartbeat_us, 2 * self._delay_us())

    def note_denial(self, message: IncomingMessage, by: int) -> None:
        """This member no longer holds it."""
        message.denied.add(by)

    def missing(self, message: IncomingMessage, accepted: bool, now_us: int) -> list[Range]:
        """The ranges to request: gaps and, where an accepted message has no known end, the rest."""
        number, window = message.number, message.window
        ranges = [
            (number, first - 1, last - 1)
            for first, last in window.missing(message.packets, NAK_RANGES_MAX)
        ]
        if not message.ended and accepted and now_us >= self._flows_until_us(message):
            ranges.append((number, message.packets, WHOLE))
        return ranges

    def drop(self, number: int) -> None:
        message = self.incoming.pop(number, None)
        if message is not None:
            self.nbytes -= message.nbytes
