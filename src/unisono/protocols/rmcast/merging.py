"""Components of a partitioned group: each announces itself, and the weaker one stops."""

from __future__ import annotations

from dataclasses import dataclass

from unisono.core import EVERYONE, Arm, Effect, Expired, Send
from unisono.layout import encode
from unisono.model import Member
from unisono.parts.codec import PacketCodec
from unisono.parts.core_clock import CoreClock
from unisono.protocols.rmcast.failure import Failures
from unisono.protocols.rmcast.packet_builder import addresses
from unisono.protocols.rmcast.packets import LEFT, MEMBER, Announce, PacketKind, key_of
from unisono.protocols.rmcast.parameters import Parameters
from unisono.protocols.rmcast.roster import PeerState, Roster
from unisono.protocols.rmcast.send_queue import SendQueue
from unisono.protocols.rmcast.states import Timer


@dataclass(eq=False)
class Merging:
    """Announces our component, and compares it with others."""

    _parameters: Parameters
    _roster: Roster
    _codec: PacketCodec
    _failures: Failures
    _send_queue: SendQueue
    _clock: CoreClock

    def announce(self, event: Expired, out: list[Effect]) -> None:
        out.append(Arm(Timer.ANNOUNCE, self._clock.jittered(self._parameters.announce_us)))
        if self._leads():
            out.append(Send(EVERYONE, [self.announcement()]))

    def _leads(self) -> bool:
        """The sponsor announces; while it is quiet, the oldest other member. A member that was
        suspended waits long before it removes others, and must not miss a larger component."""
        leader = self._failures.oldest_present()
        return leader.key == self._roster.key and not self._send_queue.farewell

    def announcement(self, echo: int = 0) -> bytes:
        stamp = max(self._clock.now_us, 0)
        return self._sealed(Announce(self._roster.me, *self._ours(), stamp=stamp, echo=echo))

    def pointer(self, sponsor: Member) -> bytes:
        """Tells a seeker that there is a group. Without a stamp it cannot be answered."""
        return self._sealed(Announce(sponsor, *self._ours()))

    def _sealed(self, packet: Announce) -> bytes:
        return self._codec.seal(PacketKind.ANNOUNCE, encode(packet))

    def _ours(self) -> tuple[int, int]:
        return self._size(), self._codec.life

    def _size(self) -> int:
        """Ourselves, and the members that sent lately."""
        since_us = self._clock.now_us - self._parameters.detect_us
        return 1 + sum(peer.heard_us >= since_us for peer in self._roster.others())

    def weigh(self, packet: Announce, out: list[Effect]) -> None:
        """Two components of one group cannot both continue: the larger does, at equal size the one
        with the lesser sponsor; the members of the other stop, and may join again."""
        # Deviates [RMC A3.12]: components that removed each other would ignore each other for ever;
        # each announces itself, and the suspected members stop when they receive that.
        roster = self._roster
        theirs = key_of(packet.sponsor)
        peer = roster.peers.get(theirs)
        is_ours = theirs in roster.farewells or (peer is not None and peer.status in (MEMBER, LEFT))
        # No process answers the announcement of a member. One that we take for a member and that
        # answers ours has removed us, or lost our addition with the sponsor that admitted us.
        answers = not packet.forwarder and self._failures.is_recent(packet.echo)
        is_ours = is_ours and packet.life == self._codec.life and not answers
        if theirs == roster.key or is_ours:
            return
        if packet.size > self._parameters.members_count_max or self._is_contradicted(peer):
            self._codec.drop("announce")
            return
        ours = self._failures.oldest_present().member
        is_stronger = (-packet.size, packet.sponsor) < (-self._size(), ours)
        if is_stronger and self._is_present(packet):
            self._forward(packet, out)
            self._failures.stop(
                f"another part of the group goes on: {packet.size} with {packet.sponsor}"
            )
        elif not packet.forwarder and self._leads():
            answer = self.announcement(echo=packet.stamp)
            out.append(Send((packet.sponsor.address,), [answer]))

    def _is_contradicted(self, peer: PeerState | None) -> bool:
        """A member whose own headers, of now, count us in leads no other component."""
        if peer is None or peer.status is not MEMBER or peer in self._failures.quiet():
            return False
        entry = peer.row.get(self._roster.key)
        return entry is not None and entry.status is MEMBER

    def _is_present(self, packet: Announce) -> bool:
        """An announcement may be late, and its component gone: it counts if it answers one of ours,
        or if a member that it answered forwards it."""
        if packet.forwarder:
            peer = self._roster.peers.get(packet.forwarder)
            return peer is not None and peer.status is MEMBER
        return self._failures.is_recent(packet.echo)

    def _forward(self, packet: Announce, out: list[Effect]) -> None:
        to = addresses(self._roster.others())
        if to and not packet.forwarder:
            out.append(Send(to, [self._sealed(packet._replace(forwarder=self._roster.key))]))
