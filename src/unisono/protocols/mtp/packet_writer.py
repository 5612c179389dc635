"""Outgoing packets: the header that each begins with, sealed and addressed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from unisono.core import Effect, Send, Target
from unisono.layout import encode
from unisono.model import Member
from unisono.parts.codec import PacketCodec
from unisono.protocols.mtp.clock import StepClock
from unisono.protocols.mtp.master import MasterWatch
from unisono.protocols.mtp.ordering import Ordering
from unisono.protocols.mtp.pacing import Pacing
from unisono.protocols.mtp.packets import (
    HEADER_BYTES,
    Header,
    PacketKind,
    Refuse,
    bits_of,
    key_of,
    write_header,
)
from unisono.protocols.mtp.reading import WithHeader
from unisono.wire import ENVELOPE_BYTES

NO_HEADER: Final = Header(0, 0, 0, 0, 0, 0, 0, 0, 1)
"""In a packet that is yet to be sealed: `PacketWriter` writes the header."""


@dataclass(eq=False)
class PacketWriter:
    """Builds the packets that this member sends, and counts those that it drops."""

    _key: int
    _clock: StepClock
    _codec: PacketCodec
    _ordering: Ordering
    _pace: Pacing
    _master: MasterWatch
    _packet_bytes_max: int

    def __post_init__(self) -> None:
        self.body_bytes_max = self._packet_bytes_max - ENVELOPE_BYTES - HEADER_BYTES
        self.count, self.drop = self._codec.count, self._codec.drop
        self._headers: dict[int, bytes] = {}
        """By base, the headers written in this step, as of this version of the order."""
        self._written = (0, 0)

    def header(self, base: int = 0) -> bytes:
        """[MTP 3.3] What every packet begins with. The statuses are those of the messages before
        `base`: the number of the data packet's message, or the next one."""
        ordering = self._ordering
        base = base or ordering.known_next
        if self._written != (written := (self._clock.steps, ordering.version)):
            self._written = written
            self._headers.clear()
        known = self._headers.get(base)
        if known is None:
            pace = self._pace
            known = self._headers[base] = write_header(
                Header(
                    self._key,
                    base,
                    bits_of(ordering.statuses_before(base)),
                    ordering.known_next,
                    ordering.taken(),
                    pace.heartbeat_us,
                    pace.window,
                    min(255, pace.retention),
                    ordering.t,
                )
            )
        return known

    def seal(self, kind: PacketKind, packet: WithHeader, base: int = 0) -> bytes:
        return self._codec.seal(kind, self.header(base) + encode(packet))

    def send(
        self, kind: PacketKind, packet: WithHeader, to: Target, out: list[Effect], base: int = 0
    ) -> None:
        out.append(Send(to, [self._codec.seal(kind, self.header(base) + encode(packet))]))

    def send_in(
        self, web: int, kind: PacketKind, packet: WithHeader, to: Target, out: list[Effect]
    ) -> None:
        """To the replicas of a web that we may not have joined."""
        out.append(Send(to, [self._codec.seal(kind, self.header() + encode(packet), life=web)]))

    def refuse_superseded(self, member: Member, known: int, out: list[Effect]) -> None:
        """A higher incarnation of the member is known: its clock was set back, or it is late."""
        self.refuse(member, f"a later incarnation of {member.name} is known", out, known)

    def refuse(self, member: Member, reason: str, out: list[Effect], known: int = 0) -> None:
        """Deny a join request; with a known incarnation, for good."""
        body = encode(Refuse(key_of(member), known > 0, reason, known))
        out.append(Send((member.address,), [self._codec.seal(PacketKind.REFUSE, body)]))

    def send_to_master(self, kind: PacketKind, packet: WithHeader, out: list[Effect]) -> None:
        master = self._master.member
        if master is not None:
            self.send(kind, packet, (master.address,), out)
