"""What this member sends, and when: bursts as fast as the network window permits [TRA-11], and
otherwise I-am-alive [TRA-4].

The window is what was received, of all members, and is not acknowledged by all. Half full, it
delays the next burst; the fuller, the longer. Full, it stops all but I-am-alive, with a period that
follows from who waits: a moment if others do, longer if this member waits for others, longest if
nobody does.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from unisono.core import Effect
from unisono.layout import encode
from unisono.protocols.transis.assembly import turn_of
from unisono.protocols.transis.congestion import NetworkWindow
from unisono.protocols.transis.graph import Vertex
from unisono.protocols.transis.ordering import Ordering
from unisono.protocols.transis.packets import VertexContent
from unisono.protocols.transis.parameters import MEMBERS_MAX, Parameters
from unisono.protocols.transis.send_queue import SendQueue
from unisono.protocols.transis.state import LocalMember, PacketSender
from unisono.protocols.transis.states import ALIVE, Timer
from unisono.protocols.transis.voting import PrimaryLayer

WINDOW_BYTES: Final = 1 << 20
"""The largest network window."""
VERTICES_MAX: Final = 512
"""The same in vertices."""
SMALL_FLIGHTS_MAX: Final = 4
"""Bursts of ours, less than half full, that not all have: with so many the next has to be a full
one, so that messages share bursts."""
TOKEN_US: Final = 1_000
"""The longest that a token rests while somebody has something to send."""
BURSTS_MAX: Final = 2
"""Bursts that one step sends."""


@lru_cache(maxsize=MEMBERS_MAX)
def front_bytes_of(members: int) -> int:
    """What precedes the payload of a vertex."""
    return len(encode(VertexContent((0,) * members, b"")))


class Flow:
    """From the send queue to the network."""

    def __init__(
        self,
        parameters: Parameters,
        local: LocalMember,
        outgoing: PacketSender,
        queue: SendQueue,
        primary: PrimaryLayer,
        congestion: NetworkWindow,
        piece_bytes: int,
    ) -> None:
        self._parameters = parameters
        self._local = local
        self._outgoing = outgoing
        self._queue = queue
        self._primary = primary
        self._congestion = congestion
        self._piece_bytes = piece_bytes
        self._sent_us = 0
        """When the last burst was sent."""

    def _burst_bytes(self) -> int:
        """Payload of a full vertex: at most a share of the window, since all may send at once."""
        packets = self._congestion.burst_packets(self._piece_bytes)
        packets = min(packets, self._parameters.vertex_packets)
        return packets * self._piece_bytes - front_bytes_of(len(self._local.keys))

    def _fill(self, ordering: Ordering) -> float:
        """How full the network window is: 1 is full."""
        vertices = ordering.graph.window()
        return max(ordering.nbytes / self._congestion.nbytes, vertices / VERTICES_MAX)

    def _delay_us(self, fill: float) -> int:
        """From one burst to the next: it grows with the window, from half of it on."""
        return max(0, int(self._parameters.urge_us * (2 * fill - 1)))

    def transmit(self, ordering: Ordering, out: list[Effect]) -> None:
        """Once a step: send what may be sent; then see when to say that I am alive."""
        queue, now_us = self._queue, self._local.now_us
        queue.acknowledged(ordering.graph.received_by_all()[self._local.rank])
        bursts = 0
        while self._has_more() and bursts < BURSTS_MAX and ordering.order.may_emit():
            bursts += 1
            burst_bytes, fill = self._burst_bytes(), self._fill(ordering)
            if fill >= 1:
                break
            if queue.small_flights >= SMALL_FLIGHTS_MAX and queue.queue_bytes < burst_bytes:
                break
            wait_us = self._sent_us + self._delay_us(fill) - now_us
            if wait_us > 0:
                self._outgoing.arm_within(Timer.SEND, wait_us, out)
                break
            index = ordering.graph.acks()[self._local.rank] + 1
            self._send(ordering, queue.gather(index, burst_bytes, self._piece_bytes), out)
            self._sent_us = now_us
        self._plan(ordering, out)

    def _has_more(self) -> bool:
        return bool(self._queue) and self._primary.may_operate

    def _plan(self, ordering: Ordering, out: list[Effect]) -> None:
        p, order = self._parameters, ordering.order
        if not order.may_emit() and order.is_idle() and self._has_more():
            self.speak(ordering, out)
        if ordering.has_unanswered():
            self._outgoing.arm_within(ALIVE, p.answer_us, out)
        elif order.is_awaited() and not order.is_idle():
            self._outgoing.arm_within(ALIVE, min(p.answer_us, TOKEN_US), out)
        elif order.is_awaited() or not ordering.is_settled() or self._has_more():
            self._outgoing.arm_within(ALIVE, p.urge_us, out)
        else:
            self._outgoing.arm_within(ALIVE, p.alive_us, out)

    def speak(self, ordering: Ordering, out: list[Effect]) -> None:
        """[TRA-4] I am alive, and hold this. While the window is full, my last vertex says so again
        if it can: the window of a group that waits for a slow reader does not grow."""
        if ordering.graph.window() >= VERTICES_MAX:
            if (last := ordering.repeatable(VERTICES_MAX)) is not None:
                return self._transmit(last, out)
        self._send(ordering, b"", out)

    def _send(self, ordering: Ordering, payload: bytes, out: list[Effect]) -> None:
        self._transmit(ordering.append(payload), out)

    def _transmit(self, vertex: Vertex, out: list[Effect]) -> None:
        turn = turn_of(vertex, self._local.rank, self._piece_bytes)
        self._outgoing.send_vertex(self._local.configuration.life, turn, out)
        self._outgoing.disarm(ALIVE, out)
