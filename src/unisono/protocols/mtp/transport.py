"""The transport below: a message as packets (m, p), sent within the window, repaired by NAK."""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from random import Random
from typing import Final, NamedTuple

from unisono.core import EVERYONE, Effect, Send
from unisono.model import Address, Buffer, Burst, Bursts
from unisono.parts.codec import PacketCodec
from unisono.parts.window import Window
from unisono.protocols.mtp.batch import Content
from unisono.protocols.mtp.packets import (
    DATA_BYTES,
    WHOLE,
    Data,
    Header,
    PacketKind,
    Pressure,
    Range,
)
from unisono.wire import ENVELOPE_BYTES

AHEAD_COUNT_MAX: Final = 65_536
"""A message numbered further ahead than this is not taken."""
NAK_RANGES_MAX: Final = 80
"""Ranges of one message that are asked for at once, the rest in the next heartbeat."""
BURST: Final = 44
"""Packets sealed at once: as many full-sized ones as one system call sends."""
REPAIRS_MAX: Final = 16_384
"""Repairs pending at once; NAKs beyond are dropped, and repeated by their senders."""
AT_ONCE_MAX: Final = 1536
"""Packets per heartbeat of a producer with several tokens: more may overflow a 4 MiB socket."""
LOSING: Final = 8
"""A consumer that loses more than one packet in this many asks for a slower rate."""
LARGE_BYTES: Final = 2 << 20
"""Larger messages are assembled in a memory map of their own,"""
APART_PACKETS: Final = 1024
"""this many packets at a time."""
PRIVATE: Final[dict[str, int]] = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
)
"""Of a map: it is nobody else's. On Windows it is anyway."""
ANSWERS: Final = 8
"""How long an answer takes is a mean over about so many."""
SLOW_BEATS: Final = 20
"""Longer is nobody waited for, in heartbeats."""
FEW: Final = 2
"""A repair that so many asked for goes to them alone, one that more want to the web; where NAKs
dally, each goes to the web, since others wait to see whether they need to ask."""


class Repaired(NamedTuple):
    """That a packet was sent again: when, and to whom alone. To nobody alone is to the web."""

    at_us: int
    to: tuple[Address, ...]


@dataclass(slots=True)
class Held:
    """A whole message, kept to be sent and sent again."""

    origin: int
    number: int
    slices: list[Buffer]
    sent: int = 0
    """Packets that left for the first time."""
    sent_us: int = 0
    """When the last of them did."""
    audience: tuple[Address, ...] = ()
    content: Content | None = None
    """What the slices say, where that is known: in our own."""
    repaired: dict[int, Repaired] = field(default_factory=dict)
    """By packet, when it was last sent again."""

    def audience_with(self, askers: list[Address]) -> tuple[Address, ...]:
        """Whom it was for, and those who have come since and ask; nobody named is the web."""
        return tuple(dict.fromkeys((*self.audience, *askers))) if self.audience else ()


@dataclass(slots=True)
class IncomingMessage:
    """A message on its way here. Packet p has the place p + 1 in the window."""

    number: int
    origin: int = 0
    """Who says it; 0 while nothing was heard of it."""
    window: Window[Buffer] = field(default_factory=Window)
    packets: int = 0
    """So many are known to have left."""
    ended: bool = False
    """`packets` is all there are."""
    octets: int = 0
    heard_us: int = 0
    due_us: int = -1
    """When to ask for what is missing; -1 while nothing seems to be."""
    tries: int = 0
    asked_us: int = 0
    """When we asked for what is missing before `asked_packets`; 0 once an answer came."""
    asked_packets: int = 0
    denied: set[int] = field(default_factory=set)
    apart: int = 0
    """Of its packets, the first so many lie in memory of their own."""

    @property
    def whole(self) -> bool:
        return self.ended and self.window.received == self.packets

    def slices(self) -> list[Buffer]:
        return self.window.row(1, self.packets)

    def set_apart(self) -> None:
        """Of a very large message, what has come in a row: in memory that goes back to the system
        as it is read. The allocator would keep that of so many small pieces, and the message would
        be there twice."""
        while self.window.received - self.apart >= APART_PACKETS:
            pieces = self.window.row(self.apart + 1, self.apart + APART_PACKETS)
            ends = list(accumulate(map(len, pieces), initial=0))
            try:
                block = memoryview(mmap.mmap(-1, ends[-1] or 1, **PRIVATE))
            except OSError:  # There is no more of it: they stay where they are.
                return
            block[: ends[-1]] = b"".join(pieces)
            self.window.replace(self.apart + 1, [block[at:end] for at, end in pairwise(ends)])
            self.apart += APART_PACKETS


@dataclass(slots=True)
class Pacing:
    """What the web has agreed on: see `Header`."""

    heartbeat_us: int
    window: int
    retention: int

    def adopt(self, header: Header) -> None:
        """The master's."""
        self.heartbeat_us = max(500, header.heartbeat_us)
        self.window = max(1, header.window)
        self.retention = max(1, header.retention)


class MessageSender:
    """The sending side: repairs first, then what is new, at most a window a heartbeat and token."""

    def __init__(
        self, codec: PacketCodec, pace: Pacing, dally: int, header: Callable[[int], bytes]
    ) -> None:
        self._codec = codec
        self._pace = pace
        self._few = 0 if dally else FEW
        self._header = header
        self.held: dict[int, Held] = {}
        """Ours, and at a master replica everybody's."""
        self._fresh: deque[Held] = deque()
        self._repairs: dict[tuple[int, int], list[Address]] = {}
        self._beat_us = 0
        self._left = 0
        self.sent_count = 0
        """Packets that left for the first time."""

    def hold(self, held: Held) -> None:
        self.held[held.number] = held

    def send(self, held: Held) -> None:
        """Line up a new message."""
        self.held[held.number] = held
        self._fresh.append(held)

    def busy(self) -> bool:
        return bool(self._fresh or self._repairs)

    def is_leaving(self, number: int) -> bool:
        """Whether some of a message has yet to be sent for the first time."""
        held = self.held.get(number)
        return held is not None and held.sent < len(held.slices)

    def is_sending(self, number: int) -> bool:
        """Whether it is this message's turn, and more of it leaves when the window opens."""
        return bool(self._fresh) and self._fresh[0].number == number

    def drop(self, number: int) -> None:
        """Forget a message: it was rejected, or nobody needs it any more."""
        held = self.held.pop(number, None)
        if held is not None and held.sent < len(held.slices) and held in self._fresh:
            self._fresh.remove(held)

    def asked(self, number: int, first: int, last: int, asker: Address, now_us: int) -> None:
        """[MTP 3.3] Line up a repair. What was sent to the asker a moment ago is on its way."""
        held = self.held[number]
        for packet in range(first, min(last, held.sent - 1) + 1):
            key = number, packet
            askers = self._repairs.get(key)
            lately = self._lately(held, packet, now_us)
            if askers is not None:
                if asker not in askers:
                    askers.append(asker)
            elif lately is not None and (not lately.to or asker in lately.to):
                self._codec.drop("repaired")
            elif len(self._repairs) >= REPAIRS_MAX:
                self._codec.drop("repairs")
                return
            else:
                self._repairs[key] = [asker]

    def _lately(self, held: Held, packet: int, now_us: int) -> Repaired | None:
        repaired = held.repaired.get(packet)
        recent_us = now_us - self._pace.heartbeat_us // 2
        return repaired if repaired is not None and repaired.at_us > recent_us else None

    def pump(self, now_us: int, out: list[Effect]) -> None:
        """Send what the window allows."""
        if not self.busy():
            return
        if now_us - self._beat_us >= self._pace.heartbeat_us:
            self._beat_us, self._left = now_us, self._window()
        if self._repairs:
            self._repair(now_us, out)
        while self._fresh and self._left:
            held = self._fresh[0]
            count = min(self._left, len(held.slices) - held.sent)
            packets = self._packets(held, range(held.sent, held.sent + count))
            held.sent += count
            held.sent_us = now_us
            self.sent_count += count
            self._left -= count
            out.append(Send(held.audience or EVERYONE, packets))
            if held.sent == len(held.slices):
                self._fresh.popleft()

    def _window(self) -> int:
        """Packets in this heartbeat: a window for each token of ours."""
        # Deviates [MTP 4 window]: the paper's is a producer's, however many tokens it holds. What a
        # consumer must be able to take is t times the window in either case.
        window = self._pace.window
        return max(window, min(len(self._fresh) * window, AT_ONCE_MAX))

    def wait_us(self, now_us: int) -> int:
        """Until the next heartbeat: when the window opens again, if something waits for that."""
        if not self.busy():
            return self._pace.heartbeat_us
        return max(1, self._beat_us + self._pace.heartbeat_us - now_us)

    def _repair(self, now_us: int, out: list[Effect]) -> None:
        load: list[bytes] = []
        to: tuple[Address, ...] = ()
        for key in list(self._repairs):
            if not self._left:
                break
            askers = self._repairs.pop(key)
            held = self.held.get(key[0])
            if held is None or key[1] >= len(held.slices):
                continue
            lately = self._lately(held, key[1], now_us)
            all_askers = (*(lately.to if lately is not None else ()), *askers)
            alone = len(all_askers) <= self._few
            held.repaired[key[1]] = Repaired(now_us, all_askers if alone else ())
            target = tuple(askers) if alone else held.audience_with(askers)
            if load and target != to:
                out.append(Send(to or EVERYONE, load))
                load = []
            to = target
            load.append(self._packet(held, key[1]))
            self._left -= 1
            self._codec.count("repair")
        if load:
            out.append(Send(to or EVERYONE, load))

    def _packets(self, held: Held, row: range) -> Bursts:
        """These of its packets, sealed as they leave."""
        self._codec.sent(PacketKind.DATA, len(row))
        return Bursts(
            len(row), self._sealing(held, row, self._header(held.number), self._codec.life)
        )

    def _sealing(self, held: Held, row: range, header: bytes, life: int) -> Iterator[Burst]:
        slices, whose = held.slices, (held.origin, held.number)
        last, at = len(slices) - 1, row.start
        size = ENVELOPE_BYTES + len(header) + DATA_BYTES + len(slices[at])
        while at < row.stop:
            packets = bytearray()
            end = min(at + BURST, row.stop, last, (at | 0xFFFF) + 1)
            if at < end:
                head = Data.head(header, *whose, at, False)
                pieces = list(map(bytes, slices[at:end]))
                packets += self._codec.seal_batch(PacketKind.DATA, head, pieces, life, at & 0xFFFF)
            # The last does not begin as the others do, and may be shorter.
            if end == last < row.stop and end - at < BURST:
                head, piece = Data.head(header, *whose, last, True), bytes(slices[last])
                tail = self._codec.seal_batch(PacketKind.DATA, head, [piece], life, last & 0xFFFF)
                packets += tail
                end += 1
            yield Burst(memoryview(packets), size)
            at = end

    def _packet(self, held: Held, packet: int) -> bytes:
        """[MTP 3.3] The data and number as they were, the header as it is now."""
        end = packet == len(held.slices) - 1
        header = self._header(held.number)
        body = Data.body(header, held.origin, held.number, packet, end, held.slices[packet])
        return self._codec.seal(PacketKind.DATA, body)


class MessageReceiver:
    """The receiving side: messages on their way, and what is missing of them."""

    def __init__(self, codec: PacketCodec, pace: Pacing, dally: int, dice: Random) -> None:
        self._codec = codec
        self._pace = pace
        self._dally = dally
        self._dice = dice
        self.incoming: dict[int, IncomingMessage] = {}
        self.octets = 0
        self._answer_us = 0
        """How long it takes until an answer comes, about."""
        self._lost = 0
        """Packets that were seen to be missing, since somebody last asked."""
        self._taken = 0

    def at(self, number: int) -> IncomingMessage:
        found = self.incoming.get(number)
        if found is None:
            found = self.incoming[number] = IncomingMessage(number)
        return found

    def pressure(self, congested: bool) -> Pressure:
        """[MTP 4] What this consumer wants of the parameters, since it was last asked."""
        lost, taken = self._lost, self._taken
        self._lost = self._taken = 0
        if congested:
            return Pressure.FULL
        return Pressure.LOSING if lost * LOSING > taken + lost else Pressure.CALM

    def take(self, data: Data, now_us: int) -> IncomingMessage | None:
        """Take a packet, or a row of them; the message when it is whole by it."""
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
        octets = sum(map(len, data.pieces))
        message.octets += octets
        if message.octets > LARGE_BYTES:
            message.set_apart()
        self.octets += octets
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
        """Some of them are here already, or beyond the end."""
        whole = None
        for packet, piece in enumerate(data.pieces, data.packet):
            one = data._replace(packet=packet, pieces=[piece])
            whole = self.take(one, now_us) or whole
        return whole

    def hear_of(self, number: int, origin: int, packets: int, ended: bool, now_us: int) -> None:
        """[MTP 3.3] An empty packet said how far a message has come."""
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
        """[MTP 4] Something is missing: ask after a random 0 to f heartbeats, and not before
        `beats` have passed."""
        if message.due_us < 0:
            dally = self._dice.randint(0, self._dally) if self._dally else 0
            wait_us = max(beats * self._pace.heartbeat_us, self._delay_us()) if beats else 0
            message.due_us = now_us + wait_us + dally * self._pace.heartbeat_us

    def _delay_us(self) -> int:
        """A member that is busy, or far away, is heard later than in a heartbeat."""
        return min(self._answer_us, SLOW_BEATS * self._pace.heartbeat_us)

    def _flows_until_us(self, message: IncomingMessage) -> int:
        """Some of it came lately: what follows may wait in a socket, behind what told us that it
        must be there."""
        return message.heard_us + max(self._pace.heartbeat_us, self._delay_us())

    def is_coming(self, message: IncomingMessage, now_us: int) -> bool:
        """Nothing is missing between what came, and it flows."""
        if message.window.received < message.window.highest:
            return False
        message.due_us = max(message.due_us, self._flows_until_us(message))
        return message.due_us > now_us

    def asked(self, message: IncomingMessage, now_us: int) -> None:
        message.tries += 1
        message.asked_us, message.asked_packets = now_us, message.packets or 1
        wait = 1 + min(message.tries, 6)
        wait += self._dice.randint(0, self._dally) if self._dally else 0
        message.due_us = now_us + max(wait * self._pace.heartbeat_us, 2 * self._delay_us())

    def missing(self, message: IncomingMessage, accepted: bool, now_us: int) -> list[Range]:
        """What to ask for: gaps, and where the end is not known but must be there, all that
        follows."""
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
            self.octets -= message.octets
