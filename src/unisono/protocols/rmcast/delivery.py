"""Delivers messages to the application, and carries out control messages in their order."""

from __future__ import annotations

from dataclasses import dataclass

from unisono.core import Congested, Deliver, Effect
from unisono.errors import BadPacket
from unisono.parts.codec import PacketCodec
from unisono.parts.core_clock import CoreClock
from unisono.protocols.rmcast.control import Add, Bye, read_control
from unisono.protocols.rmcast.failure import Failures
from unisono.protocols.rmcast.ordering import Ordering
from unisono.protocols.rmcast.packets import FAILED, LEFT, MEMBER, MessagePart, key_of
from unisono.protocols.rmcast.roster import PeerState, Roster
from unisono.protocols.rmcast.send_queue import REPORT_BYTES
from unisono.protocols.rmcast.views import Views


@dataclass(eq=False)
class Delivery:
    """What the application gets, while it can take it."""

    _roster: Roster
    _ordering: Ordering
    _views: Views
    _failures: Failures
    _codec: PacketCodec
    _clock: CoreClock

    def __post_init__(self) -> None:
        self.congested = False

    def hold_back(self, event: Congested, out: list[Effect]) -> None:
        self.congested = event.on

    def deliver(self, out: list[Effect]) -> bool:
        """Whether there was anything to deliver or to carry out."""
        moved = False
        while True:
            if self._views.changed:
                self._views.install(out)
            messages, control = self._ordering.deliverable()
            if messages:
                out.append(Deliver(messages))
                moved = True
            if control is None:
                return moved
            moved = True
            self._obey(*control)

    def _obey(self, peer: PeerState, chunk: MessagePart) -> None:
        try:
            order = read_control(chunk.payload)
        except BadPacket as bad:
            self._codec.drop(bad.reason)
            return
        roster = self._roster
        if isinstance(order, Add):
            key = key_of(order.member)
            if key not in roster.peers and key not in roster.tombs:
                roster.add(order.member, order.rank, self._clock.now_us)
                self._views.note_change()
                if reason := roster.oversize():
                    self._failures.stop(reason)
        elif isinstance(order, Bye) and peer.status in (MEMBER, FAILED):
            roster.mark(peer, LEFT)
            self._views.note_change()
            peer.unreported = REPORT_BYTES  # It waits for our acknowledgment.
