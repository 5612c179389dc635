"""Algorithm 1: number our own messages, deliver them to ourselves, and send them as fast as the
others receive."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from unisono.core import CoreConfig, Deliver, Effect, Multicast, Send
from unisono.model import Message, Service
from unisono.parts.core_clock import CoreClock
from unisono.parts.fragment_stream import marked
from unisono.parts.pacing import Flight
from unisono.parts.packing import fragments
from unisono.protocols.rmcast.control import After, write_control
from unisono.protocols.rmcast.packet_builder import PacketBuilder, addresses
from unisono.protocols.rmcast.packets import (
    CONTROL,
    FIRST,
    LAST,
    RECORD_BYTES,
    Dep,
    MessagePart,
)
from unisono.protocols.rmcast.roster import UNKNOWN, Roster
from unisono.protocols.rmcast.views import Views

FLIGHT_BYTES: Final = 256 << 10
"""Of our own stream, sent and not yet received by all."""
REPORT_BYTES: Final = FLIGHT_BYTES // 4
"""Received of one stream since our last packet: its sender gets a report, to send on."""


class SendQueue:
    """Our own stream, from the application to the packets."""

    def __init__(
        self,
        config: CoreConfig,
        roster: Roster,
        builder: PacketBuilder,
        views: Views,
        clock: CoreClock,
    ) -> None:
        self._roster = roster
        self._builder = builder
        self._views = views
        self._clock = clock
        self._window_bytes = config.window_bytes_max
        self._held = 0
        """Payload multicast and not yet known to be delivered by all."""
        self._flight = Flight(FLIGHT_BYTES)
        self.farewell = 0
        """The last chunk that a leaver multicasts; 0 until it leaves."""

    def send_credit(self) -> int:
        return max(0, self._window_bytes - self._held)

    def multicast(self, event: Multicast, out: list[Effect]) -> None:
        # Deviates [RMC A1.9]: messages multicast together share packets and one header, and at
        # most FLIGHT_BYTES are under way; the paper sends each by itself.
        service = event.service if isinstance(event.service, Service) else Service.CAUSAL
        out.append(Deliver(self.append(event.messages, service)))

    def append_control(self, payload: bytes) -> None:
        """A message of the protocol itself, in causal order."""
        self.append([payload], Service.CAUSAL, CONTROL)

    def append_farewell(self, payload: bytes) -> None:
        """The last message of our stream."""
        self.append_control(payload)
        self.farewell = self._roster.mine().delivered

    def append(self, payloads: Iterable[bytes], service: Service, flags: int = 0) -> list[Message]:
        """Number the messages and queue them; they are delivered here before anything is sent."""
        mine = self._roster.mine()
        self._roster.stir()
        number, message = mine.delivered, mine.message
        deps, deps_max = self._deps(), 2 * self._builder.deps_max
        while len(deps) > deps_max:
            number += 1
            payload, first = write_control(After()), deps[:deps_max]
            mark = FIRST | LAST | CONTROL
            mine.window.put(number, MessagePart(mark, service, payload, message, first))
            self._held += len(payload) + RECORD_BYTES
            deps = deps[deps_max:]
        first_max = self._builder.piece_bytes(len(deps) // 2)
        piece_max = self._builder.piece_bytes()
        messages = []
        for payload in payloads:
            if not flags & CONTROL:
                message += 1
            needs = deps
            for mark, piece in marked(fragments(payload, first_max, piece_max)):
                number += 1
                chunk = MessagePart(flags | mark, service, piece, message, needs)
                mine.window.put(number, chunk)
                needs = ()
            self._held += len(payload) + RECORD_BYTES
            if not flags & CONTROL:
                view = self._views.id
                messages.append(Message(mine.member, payload, message, view, service=service))
        mine.note_appended(number, message)
        return messages

    def _deps(self) -> Dep:
        """D_G at this moment, without ourselves: what the message must come after."""
        mine = self._roster.key
        return tuple(
            value
            for key, peer in self._roster.peers.items()
            if key != mine
            for value in (key, peer.delivered)
        )

    def transmit(self, out: list[Effect]) -> None:
        """Send what the flight has space for."""
        roster = self._roster
        mine = roster.mine()
        if roster.sent == mine.delivered:
            return
        receivers = roster.reporters() if self.farewell else roster.others()
        if not receivers:
            roster.note_sent(mine.delivered)
            self._flight.clear()
            return
        flight = self._flight
        flight.acknowledge(min([p.row.get(mine.key, UNKNOWN).received for p in receivers]))
        first, last = roster.sent + 1, roster.sent
        while last < mine.delivered and not flight.is_full():
            last += 1
            chunk = mine.window.get(last)
            flight.add(last, len(chunk.payload) + RECORD_BYTES if chunk is not None else 0)
        roster.note_sent(last)
        packets = self._builder.data(mine, first, last)
        if packets:
            for peer in receivers:
                peer.sent_us, peer.unreported = self._clock.now_us, 0
            out.append(Send(addresses(receivers), packets))

    def release(self, chunks: Iterable[MessagePart]) -> None:
        """All members have delivered these chunks of our stream."""
        for chunk in chunks:
            self._held -= len(chunk.payload) + (RECORD_BYTES if chunk.flags & FIRST else 0)
