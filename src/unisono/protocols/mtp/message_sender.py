"""Sending: a message as packets (m, p), new ones within the window, and repairs before them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from unisono.core import EVERYONE, Effect, Send
from unisono.model import Address, Buffer, Bursts
from unisono.parts.codec import PacketCodec
from unisono.protocols.mtp.batch import Content
from unisono.protocols.mtp.data_packets import SealedMessage
from unisono.protocols.mtp.pacing import Pacing
from unisono.protocols.mtp.packets import Data, PacketKind

REPAIRS_MAX: Final = 16_384
"""Repairs pending at once; NAKs beyond are dropped, and repeated by their senders."""
AT_ONCE_MAX: Final = 1536
"""Packets per heartbeat of a producer with several tokens: more may overflow a 4 MiB socket."""
FEW: Final = 2
"""A repair requested by at most this many members is sent to them alone, else to the web; where
NAKs dally, always to the web, since others wait to see whether they need to send a NAK."""

WriteHeader = Callable[[int], bytes]
"""The header of a packet of this message."""


class Repaired(NamedTuple):
    """When a packet was last sent again, and to which members; none is the whole web."""

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
    to: tuple[Address, ...] = ()
    """Where it is sent; empty is the web's multicast address."""
    content: Content | None = None
    """The slices decoded, where that is known: of our own messages."""
    repaired: dict[int, Repaired] = field(default_factory=dict)
    """By packet, when it was last sent again."""

    def keep_content(self, content: Content, piece_bytes: int) -> None:
        """The slices were read, and emptied: cut them anew from their content."""
        self.slices, self.content = content.slices(piece_bytes), content

    def to_with(self, askers: list[Address]) -> tuple[Address, ...]:
        """Where it was sent, and the members that joined since and request it."""
        return tuple(dict.fromkeys((*self.to, *askers))) if self.to else ()


class MessageSender:
    """Sends repairs first, then what is new: at most a window per heartbeat and token."""

    def __init__(self, codec: PacketCodec, pace: Pacing, dally: int) -> None:
        self._codec = codec
        self._pace = pace
        self._few = 0 if dally else FEW
        self.held: dict[int, Held] = {}
        """Our own messages; at a master replica, those of all members."""
        self._fresh: deque[Held] = deque()
        self._repairs: dict[tuple[int, int], list[Address]] = {}
        self._beat_us = 0
        self._left = 0
        self.sent_count = 0
        """Packets that left for the first time."""

    def hold(self, held: Held) -> None:
        self.held[held.number] = held

    def send(self, held: Held) -> None:
        """Queue a new message."""
        self.held[held.number] = held
        self._fresh.append(held)

    def is_busy(self) -> bool:
        return bool(self._fresh or self._repairs)

    def is_leaving(self, number: int) -> bool:
        """Whether some of a message has yet to be sent for the first time."""
        held = self.held.get(number)
        return held is not None and held.sent < len(held.slices)

    def is_sending(self, number: int) -> bool:
        """Whether more of this message leaves when the window opens."""
        return bool(self._fresh) and self._fresh[0].number == number

    def drop(self, number: int) -> None:
        """Forget a message that was rejected, or that every member has."""
        held = self.held.pop(number, None)
        if held is not None and held.sent < len(held.slices) and held in self._fresh:
            self._fresh.remove(held)

    def repair(self, number: int, first: int, last: int, asker: Address, now_us: int) -> None:
        """[MTP 3.3] Queue a repair, unless the packet was sent to the asker a moment ago."""
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

    def pump(self, now_us: int, header: WriteHeader, out: list[Effect]) -> None:
        """Send what the window allows."""
        if not self.is_busy():
            return
        if now_us - self._beat_us >= self._pace.heartbeat_us:
            self._beat_us, self._left = now_us, self._window()
        if self._repairs:
            self._repair(now_us, header, out)
        while self._fresh and self._left:
            held = self._fresh[0]
            count = min(self._left, len(held.slices) - held.sent)
            packets = self._packets(held, range(held.sent, held.sent + count), header)
            held.sent += count
            held.sent_us = now_us
            self.sent_count += count
            self._left -= count
            out.append(Send(held.to or EVERYONE, packets))
            if held.sent == len(held.slices):
                self._fresh.popleft()

    def _window(self) -> int:
        """Packets in this heartbeat: a window for each of our tokens."""
        # Deviates [MTP 4 window]: the paper's window is per producer, however many tokens it holds.
        # A consumer must be able to take t times the window in either case.
        window = self._pace.window
        return max(window, min(len(self._fresh) * window, AT_ONCE_MAX))

    def wait_us(self, now_us: int) -> int:
        """Time until the next heartbeat, when the window opens again."""
        if not self.is_busy():
            return self._pace.heartbeat_us
        return max(1, self._beat_us + self._pace.heartbeat_us - now_us)

    def _repair(self, now_us: int, header: WriteHeader, out: list[Effect]) -> None:
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
            target = tuple(askers) if alone else held.to_with(askers)
            if load and target != to:
                out.append(Send(to or EVERYONE, load))
                load = []
            to = target
            load.append(self._packet(held, key[1], header))
            self._left -= 1
            self._codec.count("repair")
        if load:
            out.append(Send(to or EVERYONE, load))

    def _packets(self, held: Held, row: range, header: WriteHeader) -> Bursts:
        """These of its packets for the first time."""
        codec, number = self._codec, held.number
        codec.sent(PacketKind.DATA, len(row))
        slices, ends = tuple(held.slices[row.start : row.stop]), row.stop == len(held.slices)
        start, head = row.start, header(number)
        sealed = SealedMessage(
            codec.group, codec.life, head, held.origin, number, start, slices, ends
        )
        return Bursts(len(row), sealed)

    def _packet(self, held: Held, packet: int, header: WriteHeader) -> bytes:
        """[MTP 3.3] The data and number as they were, the header as it is now."""
        end, number = packet == len(held.slices) - 1, held.number
        body = Data.body(header(number), held.origin, number, packet, end, held.slices[packet])
        return self._codec.seal(PacketKind.DATA, body)
