"""Algorithm 3: receive the streams of all members, deliver in causal order, clean up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from unisono.core import Effect
from unisono.model import Member, Message, Service
from unisono.parts.codec import PacketCodec
from unisono.protocols.rmcast.packets import (
    CLOSED,
    CONTROL,
    FAILED,
    LAST,
    MEMBER,
    RECORD_BYTES,
    Data,
    MessagePart,
)
from unisono.protocols.rmcast.roster import PeerState, Roster
from unisono.protocols.rmcast.send_queue import SendQueue
from unisono.protocols.rmcast.views import Views

AHEAD_COUNT_MAX: Final = 1 << 16
"""A chunk this far ahead of the first gap of its stream is not taken."""


@dataclass(eq=False)
class Ordering:
    """The streams of all members, as they are received and delivered here."""

    _roster: Roster
    _codec: PacketCodec
    _views: Views
    _send_queue: SendQueue

    def take(self, packet: Data, out: list[Effect]) -> None:
        """M_self takes the chunks that are new."""
        peer = self._roster.peers.get(packet.origin)
        if peer is None:
            self._codec.drop("stranger" if packet.origin not in self._roster.tombs else "ended")
            return
        if peer.key == self._roster.key:
            self._codec.drop("own")
            return
        if peer.status is not MEMBER and packet.header.sender == peer.key:
            self._codec.drop("removed")
            return
        if packet.first + len(packet.chunks) > peer.window.received + AHEAD_COUNT_MAX:
            self._codec.drop("window")
            return
        fresh = 0
        for number, chunk in enumerate(packet.chunks, packet.first):
            if peer.window.put(number, chunk):
                fresh += len(chunk.payload) + RECORD_BYTES
        peer.note_received(fresh)
        if fresh:
            self._roster.stir()
        else:
            self._codec.drop("duplicate")

    def deliverable(self) -> tuple[list[Message], tuple[PeerState, MessagePart] | None]:
        """What may be delivered, in causal order, up to the next control message, which is returned
        beside it: what follows depends on what it changes."""
        out: list[Message] = []
        moved = True
        while moved:
            moved = False
            for peer in list(self._roster.peers.values()):
                if peer.window.received <= peer.delivered:
                    continue
                while (last := self._whole(peer)) and self._due(peer, last):
                    moved = True
                    chunk = self._deliver(peer, last, out)
                    if chunk is not None:
                        return out, (peer, chunk)
        return out, None

    def held(self) -> dict[Member, int]:
        """By member, the number of its last message that is all here, with those before it."""
        marks: dict[Member, int] = {}
        for peer in self._roster.peers.values():
            marks[peer.member] = peer.message
            for number in range(peer.window.received, peer.delivered, -1):
                chunk = peer.window.get(number)
                if chunk is not None and chunk.flags & LAST:
                    marks[peer.member] = max(peer.message, chunk.message)
                    break
        return marks

    def _whole(self, peer: PeerState) -> int:
        """The last chunk of the next message of this stream; 0 while some of it is missing."""
        return peer.complete()

    def _due(self, peer: PeerState, last: int) -> bool:
        """[RMC A3.27-36] Its predecessors are delivered; of a failed member, agreement needs it."""
        # Deviates [RMC A3.28]: a message carries what it must come after, so there is no sorting
        # of M; a message that waits holds up its own stream and what depends on it, nothing else.
        chunk = peer.window.get(peer.delivered + 1)
        assert chunk is not None
        peers, tombs = self._roster.peers, self._roster.tombs
        deps = chunk.deps
        if self._send_queue.farewell and self._knows_farewell(chunk):
            return False
        for i in range(0, len(deps), 2):
            other = peers.get(deps[i])
            if other is None:
                if deps[i + 1] > tombs.get(deps[i], deps[i + 1]):
                    return False
            elif other.delivered < deps[i + 1]:
                return False
        if peer.status is MEMBER:
            return True
        return peer.status is FAILED and last <= self.needed(peer)

    def _knows_farewell(self, chunk: MessagePart) -> bool:
        mine, farewell, deps = self._roster.key, self._send_queue.farewell, chunk.deps
        return any(deps[i] == mine and deps[i + 1] >= farewell for i in range(0, len(deps), 2))

    def is_over(self, peer: PeerState) -> bool:
        """Whether a leaver has delivered all of this stream that it should."""
        chunk = peer.window.get(peer.delivered + 1)
        return chunk is not None and self._knows_farewell(chunk)

    def needed(self, peer: PeerState) -> int:
        """[RMC A3.33] How much of a failed member's stream agreement needs: what any member of the
        group has delivered of it, but no more than where one of them has closed it."""
        most, limit = peer.delivered, None
        for other in self._roster.reporters():
            entry = other.row.get(peer.key)
            if entry is None:
                continue
            if entry.status is CLOSED:
                limit = entry.delivered if limit is None else min(limit, entry.delivered)
            most = max(most, entry.delivered)
        return most if limit is None else min(most, limit)

    def _deliver(self, peer: PeerState, last: int, out: list[Message]) -> MessagePart | None:
        """Deliver the next message, which ends at `last`; a control message is returned instead."""
        first, payload = peer.take(last)
        if first.flags & CONTROL:
            return first._replace(payload=payload)
        peer.message = first.message
        service = Service(first.service)
        out.append(Message(peer.member, payload, first.message, self._views.id, service=service))
        return None

    def clean_up(self, reporters: Sequence[PeerState]) -> None:
        """[RMC A3.51] Forget what is known to be delivered by everyone; leavers that still retain
        chunks may need it too."""
        rows = [other.trusted for other in reporters]
        for key, peer in self._roster.peers.items():
            everywhere, floor = peer.delivered, peer.window.floor
            if everywhere <= floor:
                continue
            for row in rows:
                entry = row.get(key)
                if entry is None or entry.delivered <= floor:
                    break
                if entry.delivered < everywhere:
                    everywhere = entry.delivered
            else:
                forgotten = peer.window.forget(everywhere)
                if key == self._roster.key:
                    self._send_queue.release(forgotten)
