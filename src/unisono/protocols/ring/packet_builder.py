"""The desk of a site: what it keeps, its timers, and the packets that it writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from unisono.core import (
    EVERYONE,
    SLEPT_US,
    Arm,
    Checkpoint,
    CoreConfig,
    Disarm,
    Effect,
    Probe,
    Send,
)
from unisono.errors import BadPacket
from unisono.model import Address, Burst, Bursts, Member, Packets
from unisono.parts.admission import Admission, Terms
from unisono.parts.codec import PacketCodec
from unisono.parts.detector import Detector
from unisono.protocols.ring.codes import KINDS, WAITS, Code, Timer
from unisono.protocols.ring.ordering import Ordering
from unisono.protocols.ring.packets import (
    ALIKE_BYTES,
    HEADER_BYTES,
    NO_VERSION,
    PIECE_AT,
    PROTOCOL,
    TURN,
    Header,
    MemberRecord,
    Rank,
    Version,
    key_of,
    rank_of,
)
from unisono.protocols.ring.parameters import DEFAULTS, Parameters
from unisono.protocols.ring.ring import NO_RECORD, Ring, Seat, read_record
from unisono.protocols.ring.turn import Turn
from unisono.wire import ENVELOPE_BYTES, Writer

BURST: Final = 44
"""Packets that are sealed at once: as many as leave by one call, where they are as long as most
networks let them be."""


class PacketBuilder:
    """What every packet of one member says of it."""

    def __init__(self, setting: CoreConfig) -> None:
        self.me = setting.me
        self.key = key_of(setting.me)
        self.packet_bytes_max = setting.packet_bytes_max
        self.parameters = Parameters.of(setting.options)
        terms = Terms.of(setting, "ring", {**DEFAULTS, **setting.options})
        self.codec = PacketCodec(PROTOCOL, KINDS, terms)
        self.admission = Admission(self.codec, terms)
        self.ordering = Ordering(self.key, setting.message_bytes_max, self.codec.drop)
        self.now_us = 0
        self.ring = Ring()
        """The last one accepted."""
        self.record = NO_RECORD._replace(votes=setting.durable)
        """What is kept over a crash. Who keeps records and has none never had a past."""
        self.seen = 0
        """The highest number of a version that was heard of."""
        self.deadlines: dict[Timer, int] = {}
        self.detector: Detector[int] = Detector(self.parameters.detect_us, self.parameters.look_us)
        """Of the holder while we wait for its turn, and of all while a ring is formed."""

    @property
    def version(self) -> Version:
        """The highest that we accepted."""
        return max(self.ring.version, self.record.version)

    @property
    def rank(self) -> Rank:
        """[RNG-10] What R1 compares."""
        return rank_of(self.version, self.record.trunk)

    def keep(self, out: list[Effect], **changes: Any) -> None:
        """On stable storage, before anything that follows from it is sent."""
        self.record = self.record._replace(**changes)
        out.append(Checkpoint(self.record.octets()))

    def remember(self, stable: Iterable[bytes]) -> None:
        """What was kept before a crash: the last record that can be read. One alone that cannot is
        of a past that is forgotten."""
        for octets in stable:
            try:
                self.record = read_record(octets)
            except BadPacket:
                self.codec.drop("record")
                self.record = self.record._replace(votes=self.record.pledged > NO_VERSION)
        self.seen = max(self.seen, self.record.version.number, self.record.pledged.number)

    # -- who we are --------------------------------------------------------------------------------

    def is_former(self, member: Member) -> bool:
        """An earlier life of ours."""
        same = member.name == self.me.name and member.address.host == self.me.address.host
        return same and member.incarnation < self.me.incarnation

    def founding(self) -> Ring:
        """Before there is a ring: only how many there are to be."""
        return Ring(size=self.parameters.sites or len(self.record.names))

    def my_seat(self) -> Seat | None:
        at = self.ring.index.get(self.key)
        return None if at is None else self.ring.seats[at]

    def watch_ring(self, on: bool = True) -> None:
        """While a ring is formed all are to answer."""
        if not on:
            self.detector.rest_all()
        for key in self.ring.keys if on else ():
            if key != self.key:
                self.detector.watch(key, self.now_us)

    def probe(self, members: Iterable[Member], out: list[Effect]) -> None:
        """Ask the network whether their processes are still there."""
        to = tuple(member.address for member in members)
        if to:
            out.append(Probe(to))

    def doubt(self, address: Address) -> None:
        """The network says that nobody listens there."""
        for member in self.ring.members:
            if member.address == address:
                self.detector.refuse(key_of(member), self.now_us)

    # -- timers ------------------------------------------------------------------------------------

    def arm(self, timer: Timer, after_us: int, out: list[Effect]) -> None:
        self.deadlines[timer] = self.now_us + after_us
        out.append(Arm(timer, after_us))

    def disarm(self, timer: Timer, out: list[Effect]) -> bool:
        """Whether it was armed."""
        armed = self.deadlines.pop(timer, None) is not None
        if armed:
            out.append(Disarm(timer))
        return armed

    def overdue(self) -> list[Timer]:
        """Those that should have expired, in the order in which they were armed."""
        if not self.deadlines:
            return []
        first_us = min(self.deadlines.values())
        if first_us > self.now_us:
            return []
        due = [timer for timer, at_us in self.deadlines.items() if at_us <= self.now_us]
        if first_us >= self.now_us - SLEPT_US:
            return due
        # Deviates [RNG Event order]: who slept hears what came meanwhile before it gives up.
        return [timer for timer in due if timer not in WAITS]

    # -- packets -----------------------------------------------------------------------------------

    def person(
        self, code: Code, attempt: int, bits: int, other: Member | None = None
    ) -> MemberRecord:
        header, trunk = self._header(), self.record.trunk
        return MemberRecord(code, header, attempt, bits, self.seen, trunk, self.me, other)

    def _header(self) -> Header:
        version = self.version
        return Header(version, self.key, self.key, 0, self.ordering.S, self.ordering.safe)

    def seal(self, code: Code, body: bytes) -> bytes:
        return self.codec.seal(code, body, self.version.leader)

    def sealed(self, code: Code, body: bytes) -> bytes:
        return self.seal(code, self._header().octets(HEADER_BYTES + len(body)) + body)

    def turn_packets(self, code: Code, header: Header, turn: Turn, indices: range) -> Packets:
        """These packets of a turn. All are of one length but the turn's last."""
        if turn.count == 1:
            octets = header.octets(PIECE_AT + len(turn.content))
            return [self.seal(code, octets + TURN.pack(1, turn.flags, 0) + turn.content)]
        self.codec.sent(code, len(indices))
        return Bursts(len(indices), self._sealing(code, header, turn, indices, self.version.leader))

    def _sealing(
        self, code: Code, header: Header, turn: Turn, indices: range, leader: int
    ) -> Iterator[Burst]:
        size = ENVELOPE_BYTES + PIECE_AT + turn.piece_bytes
        whole = min(indices.stop, len(turn.content) // turn.piece_bytes)
        rows = [range(at, min(at + BURST, whole)) for at in range(indices.start, whole, BURST)]
        if whole < indices.stop:
            rows.append(range(whole, indices.stop))
        for row in rows:
            pieces = turn.pieces(row)
            octets = header.octets(PIECE_AT + len(pieces[0]))
            head = (octets + TURN.pack(turn.count, turn.flags, 0))[:ALIKE_BYTES]
            packets = self.codec.seal_batch(code, head, pieces, leader, row.start)
            yield Burst(memoryview(packets), size)

    def to(self, member: Member, code: Code, body: bytes, out: list[Effect]) -> None:
        out.append(Send((member.address,), [self.sealed(code, body)]))

    def to_all(self, members: Iterable[Member], code: Code, body: bytes, out: list[Effect]) -> None:
        to = tuple(member.address for member in members)
        if to:
            out.append(Send(to, [self.sealed(code, body)]))

    def to_many(
        self, member: Member, code: Code, bodies: Sequence[bytes], out: list[Effect]
    ) -> None:
        if bodies:
            out.append(Send((member.address,), [self.sealed(code, body) for body in bodies]))

    def everyone(self, code: Code, body: bytes, out: list[Effect]) -> None:
        out.append(Send(EVERYONE, [self.sealed(code, body)]))

    def tell(
        self, member: Member, code: Code, reason: str, out: list[Effect], known: int = 0
    ) -> None:
        body = Writer().text(reason).member(member).incarnation(known).done()
        self.to(member, code, body, out)

    def refuse(self, member: Member, reason: str, out: list[Effect]) -> None:
        self.tell(member, Code.REFUSE, reason, out)
