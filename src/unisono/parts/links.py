"""Reliable links to peers: one stream of ours to all of them, and one of each to us.

Gaps are requested again, what is sent is retained until every peer has taken it, and the peers that
fall silent are reported. For protocols whose steady state is a few ordered streams.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, NamedTuple

from unisono.core import CoreConfig, Effect, Send, Target
from unisono.fields import U8, U64, Blob, bounded
from unisono.layout import size_of
from unisono.model import Address, Member
from unisono.parts.codec import PacketCodec
from unisono.parts.detector import Detector
from unisono.parts.fragment_stream import FragmentStream, marked
from unisono.parts.identity import key_of
from unisono.parts.labels import number_range
from unisono.parts.nak_stream import ReceiveStream, SendStream, packet_loads
from unisono.parts.packet_set import PacketSet
from unisono.parts.packing import fragments
from unisono.wire import ENVELOPE_BYTES

FLIGHT_BYTES: Final = 256 << 10
REPAIR_PACKETS_MAX: Final = 32
BEATS: Final = 8
"""Heartbeats until a silent peer is suspected."""


class LinkChunk(NamedTuple):
    """A message or a fragment of one."""

    flags: U8
    """FIRST and LAST of `fragment_stream`, and those of the protocol from 4 on."""
    origin: U64
    number: U64
    """Its sender's count of messages."""
    service: Annotated[int, bounded("B", 0, 5)]
    payload: Blob


class LinkData(NamedTuple):
    """Chunks in a row of the sender's stream."""

    sender: U64
    first: U64
    chunks: tuple[LinkChunk, ...]

    def label(self) -> str:
        return f"data {number_range(self.first, self.first + len(self.chunks) - 1)}"


class LinkBeat(NamedTuple):
    """A heartbeat: what was sent; of the receiver's stream what was taken, and what is missing."""

    sender: U64
    sent: U64
    taken: U64
    missing: tuple[tuple[U64, U64], ...] = ()

    def label(self) -> str:
        ranges = (number_range(first, last) for first, last in self.missing)
        return " ".join(("nak" if self.missing else "beat", *ranges))


class Link:
    """One peer: its stream, and how far it has taken ours."""

    def __init__(self, member: Member, start: int, taken: int) -> None:
        self.member = member
        self.stream: ReceiveStream[LinkChunk] = ReceiveStream(start)
        self.taken = taken


class Links:
    """The links of one process."""

    def __init__(
        self, config: CoreConfig, codec: PacketCodec, packets: PacketSet, detect_us: int
    ) -> None:
        self.beat_us = detect_us // BEATS
        self.peers: dict[int, Link] = {}
        self.own: SendStream[LinkChunk] = SendStream(FLIGHT_BYTES)
        self._key = key_of(config.me)
        self._codec, self._packets = codec, packets
        self._detector: Detector[int] = Detector(detect_us, self.beat_us)
        self._room = config.packet_bytes_max - ENVELOPE_BYTES - size_of(LinkData)
        self._now_us = self._asked_us = self._unreported = 0

    def tick(self, now_us: int) -> None:
        """A step begins."""
        self._now_us = now_us

    def add(self, member: Member, start: int = 0, taken: int = 0) -> Link:
        """A peer whose stream is taken after chunk `start`, and that takes ours after `taken`."""
        link = self.peers[key_of(member)] = Link(member, start, taken)
        self._detector.watch(key_of(member), self._now_us)
        return link

    def drop(self, key: int) -> None:
        del self.peers[key]
        self._detector.forget(key)

    def hear(self, key: int) -> bool:
        """A packet of this process arrived. Returns whether it is a peer."""
        self._detector.hear(key, self._now_us)
        return key in self.peers

    def silent(self) -> list[int]:
        """The peers to suspect."""
        self._detector.look(self._now_us)
        return [key for key in self.peers if self._detector.is_silent(key)]

    def addresses(self) -> tuple[Address, ...]:
        return tuple(link.member.address for link in self.peers.values())

    # -- streams ----------------------------------------------------------------------------------

    def append(self, payload: bytes, flags: int, origin: int, number: int, service: int) -> None:
        """A message at the end of our stream."""
        room = self._room - size_of(LinkChunk)
        pieces = marked(fragments(payload, room, room))
        self.own.append(LinkChunk(flags | mark, origin, number, service, p) for mark, p in pieces)

    def next_message(self, stream: FragmentStream[LinkChunk]) -> tuple[LinkChunk, bytes] | None:
        """Take the next message, once all of it is here: its first chunk and its payload."""
        if not (last := stream.complete()):
            return None
        first, payload = stream.take(last)
        self._unreported += len(payload)
        if stream.window is not self.own.window:
            stream.window.forget(last)
        return first, payload

    def take(self, packet: LinkData, out: list[Effect]) -> None:
        if not self.peers[packet.sender].stream.put(packet.first, packet.chunks):
            self._codec.drop("duplicate")

    def answer(self, packet: LinkBeat, out: list[Effect]) -> None:
        """Note what the peer has, and send again what it lacks."""
        link = self.peers[packet.sender]
        link.stream.reported = max(link.stream.reported, packet.sent)
        link.taken = max(link.taken, min(packet.taken, self.own.sent))
        for first, last in packet.missing:
            packets = self._loads(*self.own.again(first, last))[:REPAIR_PACKETS_MAX]
            self._codec.count("repair", len(packets))
            self.send((link.member.address,), packets, out)

    def conclude(self, retain_after: int, out: list[Effect]) -> None:
        """Once a step: send what may leave, forget what all have and this process does not retain,
        and request what is missing."""
        self.send(self.addresses(), self._loads(*self.own.due()), out)
        self.own.acknowledge(min((retain_after, *(link.taken for link in self.peers.values()))))
        if self._unreported >= FLIGHT_BYTES // 4:
            self.report(out)
        elif self._now_us - self._asked_us >= self.beat_us // 4:
            self._report_to((each for each in self.peers.values() if each.stream.missing()), out)

    def report(self, out: list[Effect]) -> None:
        """The heartbeat."""
        self._unreported = 0
        self._report_to(self.peers.values(), out)

    def _report_to(self, links: Iterable[Link], out: list[Effect]) -> None:
        for link in links:
            missing = link.stream.missing()
            if missing:
                self._asked_us = self._now_us
                self._codec.count("nak", len(missing))
            beat = LinkBeat(self._key, self.own.sent, link.stream.delivered, missing)
            self.send((link.member.address,), [beat], out)

    def _loads(self, first: int, chunks: list[LinkChunk]) -> list[LinkData]:
        loads = packet_loads(first, chunks, self._room, size_of(LinkChunk))
        return [LinkData(self._key, *load) for load in loads]

    def send(
        self, to: Target, packets: Iterable[Any], out: list[Effect], life: int | None = None
    ) -> None:
        sealed = self._packets.sealed(self._codec, packets, life)
        if sealed and to != ():
            out.append(Send(to, sealed))
