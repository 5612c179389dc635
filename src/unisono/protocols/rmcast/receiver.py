"""Packets as they arrive: read, and dropped unless group incarnation and sender are right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from unisono.core import Effect, Send
from unisono.errors import BadPacket
from unisono.model import Address
from unisono.parts.codec import PacketCodec
from unisono.parts.core_clock import CoreClock
from unisono.protocols.rmcast.failure import Failures
from unisono.protocols.rmcast.joining import Joiner
from unisono.protocols.rmcast.packet_builder import PacketBuilder
from unisono.protocols.rmcast.packets import (
    CLOSED,
    FAILED,
    MEMBER,
    Beat,
    Data,
    FromMember,
    Packet,
    Seek,
    StatePiece,
    StateRequest,
    Welcome,
    WelcomePart,
    read,
)
from unisono.protocols.rmcast.roster import Roster
from unisono.wire import Envelope, read_once

FROM_MEMBERS: Final = (Beat, Data, StateRequest, StatePiece)


@dataclass(eq=False)
class Receiver:
    """Decides which packets the figure gets."""

    _roster: Roster
    _codec: PacketCodec
    _builder: PacketBuilder
    _failures: Failures
    _joining: Joiner
    _clock: CoreClock
    _beat_us: int

    def opened(
        self, envelope: Envelope, source: Address, out: list[Effect]
    ) -> Packet | Welcome | None:
        """The packet, if it is for us."""
        try:
            packet = read_once(read, envelope.kind, envelope.body)
            if isinstance(packet, WelcomePart):
                return self._joining.assembled(packet, envelope.life)
        except BadPacket as bad:
            self._codec.drop(bad.reason)
            return None
        if isinstance(packet, FROM_MEMBERS):
            return packet if self._is_from_member(packet, envelope.life, source, out) else None
        if isinstance(packet, Seek) and packet.member == self._roster.me:
            self._codec.drop("own")
            return None
        return packet

    def _is_from_member(
        self, packet: FromMember, life: int, source: Address, out: list[Effect]
    ) -> bool:
        if life != self._codec.life:
            self._codec.drop("life")
            return False
        roster, header = self._roster, packet.header
        if header.sender == roster.key:
            self._codec.drop("own")
            return False
        peer = roster.peers.get(header.sender)
        if peer is None or peer.status is FAILED or peer.status is CLOSED:
            self._reject(packet, source, out)
            return False
        if type(packet) is Beat and packet.expels:
            if packet.expels != roster.key:
                self._codec.drop("former")  # It is for an earlier incarnation at this address.
                return False
            self._failures.stop(f"{peer.member} holds this member for failed")
        self._failures.hear(peer, header)
        return True

    def _reject(self, packet: FromMember, source: Address, out: list[Effect]) -> None:
        """[RMC A3.12] Only packets of members are taken. A process that was removed learns so."""
        roster, key, now_us = self._roster, packet.header.sender, self._clock.now_us
        if key not in roster.peers and key not in roster.tombs:
            self._codec.drop("stranger")
            return
        self._codec.drop("removed")
        theirs = {k for k, e in packet.header.entries.items() if e.status is MEMBER}
        ours = {peer.key for peer in roster.group()}
        if len(theirs - ours) > len(ours):
            # Perhaps we were cut off, and the members we removed continue and are more; perhaps
            # this packet is late. Their announcement will show.
            return
        informed_us = self._failures.expelled.get(key, -self._beat_us)
        if now_us - informed_us >= self._beat_us and not (
            isinstance(packet, Beat) and packet.expels
        ):
            self._failures.note_expelled(key)
            out.append(Send((source,), [self._builder.beat(expels=key)]))
