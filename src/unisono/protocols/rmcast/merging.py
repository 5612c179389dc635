"""Parts of a split group: each announces itself, and the weaker one stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unisono.core import EVERYONE, Arm, Effect, Send
from unisono.layout import encode
from unisono.model import Member
from unisono.protocols.rmcast.figure import Timer
from unisono.protocols.rmcast.packets import Announce, PacketKind, StreamStatus, key_of

if TYPE_CHECKING:
    from unisono.protocols.rmcast.core import Rmcast


class Merging:
    """Tells others of our part, and weighs theirs."""

    def __init__(self, core: Rmcast) -> None:
        self._core = core

    def announce(self, out: list[Effect]) -> None:
        core = self._core
        out.append(Arm(Timer.ANNOUNCE, core.about(core.parameters.announce_us)))
        if core.roster.sponsor().key == core.roster.key and not core.leaving:
            out.append(Send(EVERYONE, [self.announcement()]))

    def announcement(self, echo: int = 0) -> bytes:
        core = self._core
        stamp = max(core.now_us, 0)
        body = encode(Announce(core.me, self._size(), core.codec.life, stamp=stamp, echo=echo))
        return core.codec.seal(PacketKind.ANNOUNCE, body)

    def pointer(self, sponsor: Member) -> bytes:
        """Tells a seeker that there is a group. Without a stamp it cannot be answered."""
        body = encode(Announce(sponsor, self._size(), self._core.codec.life))
        return self._core.codec.seal(PacketKind.ANNOUNCE, body)

    def _size(self) -> int:
        """Ourselves, and those heard lately: of a newcomer, its request or its welcome."""
        since_us = self._core.now_us - self._core.parameters.detect_us
        return 1 + sum(peer.heard_us >= since_us for peer in self._core.roster.others())

    def weigh(self, packet: Announce, out: list[Effect]) -> None:
        """Two parts of one group cannot both go on: the larger stays, at equal size the one with
        the lesser sponsor; the members of the other stop, and may join again."""
        # Deviates [RMC A3.12]: parts that removed each other would ignore each other for ever;
        # each announces itself, and the suspected stop when they hear of it.
        core = self._core
        theirs = key_of(packet.sponsor)
        peer = core.roster.peers.get(theirs)
        ours_too = theirs in core.roster.farewells or (
            peer is not None and peer.status in (StreamStatus.MEMBER, StreamStatus.LEFT)
        )
        if theirs == core.roster.key or (packet.life == core.codec.life and ours_too):
            return
        ours = core.roster.sponsor()
        stronger = (-packet.size, packet.sponsor) < (-self._size(), ours.member)
        if stronger and self._is_there(packet):
            self._tell_mine(packet, out)
            core.detector.stop(
                f"another part of the group goes on: {packet.size} with {packet.sponsor}"
            )
        elif ours.key == core.roster.key and not packet.forwarder and not core.leaving:
            answer = self.announcement(echo=packet.stamp)
            out.append(Send((packet.sponsor.address,), [answer]))

    def _is_there(self, packet: Announce) -> bool:
        """An announcement may be late, of a part that is no more: it counts when it answers one of
        ours, or when one of us, to whom it was an answer, passes it on."""
        if packet.forwarder:
            return packet.forwarder in self._core.roster.peers
        return self._core.is_recent(packet.echo)

    def _tell_mine(self, packet: Announce, out: list[Effect]) -> None:
        core = self._core
        to = tuple(peer.member.address for peer in core.roster.others())
        if to and not packet.forwarder:
            body = encode(packet._replace(forwarder=core.roster.key))
            out.append(Send(to, [core.codec.seal(PacketKind.ANNOUNCE, body)]))
