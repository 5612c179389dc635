"""Figure 2 at work: queues messages, requests tokens, and sends under them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from unisono.core import EVERYONE, CoreConfig, Effect, Multicast
from unisono.model import Address, Member, Service
from unisono.parts.pending import MESSAGE_BYTES, Pending, enqueue
from unisono.protocols.mtp.agreement import PENDING, Consumer, Producer, SendToken
from unisono.protocols.mtp.batch import (
    BATCH_BYTES_MAX,
    BATCH_COUNT_MAX,
    Batch,
    Content,
    make_batch,
)
from unisono.protocols.mtp.clock import StepClock
from unisono.protocols.mtp.master import MasterWatch
from unisono.protocols.mtp.message_sender import Held, MessageSender
from unisono.protocols.mtp.ordering import Ordering
from unisono.protocols.mtp.pacing import Pacing
from unisono.protocols.mtp.packet_writer import NO_HEADER, PacketWriter
from unisono.protocols.mtp.packets import (
    DATA_BYTES,
    HEADER_BYTES,
    Empty,
    Grant,
    PacketKind,
    TokenRequest,
    granted_to,
)
from unisono.wire import ENVELOPE_BYTES

REQUEST_BEATS: Final = 4
"""An unanswered request is repeated after this many heartbeats."""


@dataclass(eq=False)
class SendQueue:
    """The producer of one member."""

    _config: CoreConfig
    _key: int
    _producer: Producer[Batch]
    _consumer: Consumer
    _clock: StepClock
    _pace: Pacing
    _master: MasterWatch
    _ordering: Ordering
    _packets: PacketWriter
    _outbound: MessageSender

    def __post_init__(self) -> None:
        self._window_bytes = self._config.window_bytes_max
        self.slice_bytes = (
            self._config.packet_bytes_max - ENVELOPE_BYTES - HEADER_BYTES - DATA_BYTES
        )
        """The part of a message that one packet carries."""
        self._queue: deque[Pending] = deque()
        self._queue_bytes = 0
        self._flight_bytes = 0
        self._numbered = 0
        """The number of the last message that left the queue."""
        self._again: deque[Batch] = deque()
        """Batches that were rejected and are sent again."""
        self._requested_us: int | None = None
        """When the token was last requested, of `_requested_of`."""
        self._requested_of: Member | None = None

    def send_credit(self) -> int:
        return max(0, self._window_bytes - self._queue_bytes - self._flight_bytes)

    def multicast(self, event: Multicast, out: list[Effect]) -> None:
        service = event.service if isinstance(event.service, Service) else Service.AGREED
        self._queue_bytes += enqueue(self._queue, event.messages, service)

    def is_unsettled(self) -> bool:
        """Some message of ours is queued, or its status is pending."""
        return bool(self._queue or self._again or self._producer.flights)

    # -- tokens ------------------------------------------------------------------------------------

    def wanted(self) -> tuple[int, int] | None:
        """The request for a token, if one is needed: its number, and how many packets to send."""
        return (self._producer.request, self._packets_wanted()) if self._needs_token() else None

    def _needs_token(self) -> bool:
        if not (self._queue or self._again):
            return False
        if not self._producer.asking:
            self._producer.ask()
            self._requested_us = None
        return True

    def request(self, out: list[Effect]) -> None:
        """`send Master ["token_request"]`, unless one is out."""
        if not self._needs_token():
            return
        now_us, before_us = self._clock.now_us, self._requested_us
        if before_us is not None and self._requested_of is self._master.member:
            if now_us - before_us < self._pace.heartbeat_us * REQUEST_BEATS:
                return
        self._requested_us, self._requested_of = now_us, self._master.member
        packet = TokenRequest(NO_HEADER, self._producer.request, self._packets_wanted())
        self._packets.send_to_master(PacketKind.REQUEST, packet, out)

    def _packets_wanted(self) -> int:
        nbytes = self._again[0].nbytes if self._again else self._queue_bytes
        if not self._again and self._queue:
            nbytes = min(nbytes, max(BATCH_BYTES_MAX, len(self._queue[0].messages[0])))
        return 1 + nbytes // self.slice_bytes

    def use_token(self, packet: Grant, out: list[Effect]) -> None:
        """`receive Master ["token_grant", s, last, members]`"""
        number, ordering = packet.number, self._ordering
        if packet.header.sender != self._master.key:
            self._packets.drop("stranger")  # Only the master was asked.
            return
        request = granted_to(self._key, packet.request)
        if request > self._producer.request:
            self._packets.drop("stranger")  # It is another's, and two would send one message.
            return
        late = number in self._outbound.held or number < self._consumer.next_out
        if late or ordering.status(number) is not PENDING:
            self._packets.drop("late")
            return
        if request != self._producer.request or not self._producer.asking:
            self._packets.count("token_returned")
        ordering.know(number + 1, True)
        self.granted(SendToken(number, packet.header.last), packet.audience)

    def granted(self, token: SendToken, to: tuple[Address, ...]) -> None:
        """`multicast {Master} ∪ Receiver(members) ["data", s, last, m]`"""
        self.settle()  # What the grant itself reports as rejected is sent again first.
        if self._is_behind(token):
            batch = make_batch(self._numbered + 1, [])
        elif self._again:
            batch = self._again.popleft()  # It counts in the window since it was first sent.
        else:
            batch = self._gather()
            self._flight_bytes += self._cost(batch)
        self._producer.granted(token, batch)
        self.send_content(token.number, batch, to)

    def _is_behind(self, token: SendToken) -> bool:
        """An earlier message of ours was settled long before this token was granted, and we do not
        know how. If it was rejected, what we send now would be delivered before it."""
        first = token.number - self._consumer.t
        status = self._ordering.status
        return any(
            number < first and status(number) is PENDING for number, _ in self._producer.flights
        )

    def send_content(self, number: int, content: Content, to: tuple[Address, ...]) -> None:
        slices = content.slices(self.slice_bytes)
        self._outbound.send(Held(self._key, number, slices, 0, self._clock.now_us, to, content))

    def _gather(self) -> Batch:
        """All that was queued meanwhile; an empty batch returns the token."""
        parts: list[Pending] = []
        room, left = BATCH_BYTES_MAX, BATCH_COUNT_MAX
        while self._queue:
            head = self._queue[0]
            fit = head.fit(room, left) or int(not parts)
            if not fit:
                break
            part = head._replace(messages=head.messages[:fit])
            parts.append(part)
            room -= sum(map(len, part.messages))
            left -= fit
            del head.messages[:fit]
            if not head.messages:
                self._queue.popleft()
        batch = make_batch(self._numbered + 1, parts)
        self._numbered += batch.count
        self._queue_bytes -= self._cost(batch)
        return batch

    def _cost(self, batch: Batch) -> int:
        return batch.nbytes + MESSAGE_BYTES * batch.count

    # -- what became of it -------------------------------------------------------------------------

    def settle(self) -> None:
        """Accepted batches leave the window; rejected ones are sent again."""
        if not self._producer.flights:
            return
        accepted, rejected = self._producer.settled(self._ordering.status)
        for batch in accepted:
            self._flight_bytes -= self._cost(batch)
        # Deviates [MTP Figure 2]: a producer that is still there sends again what was rejected,
        # under another token; the figure sends once and never learns what became of it.
        for batch in reversed(rejected):
            if batch.count:
                self._again.appendleft(batch)

    def advertise(self, out: list[Effect]) -> None:
        """[MTP 3.3] A token holder whose message is not settled states how much of it was sent,
        unless its next packets will show it."""
        for number, _ in self._producer.flights:
            held = self._outbound.held.get(number)
            if held is not None and held.sent and not self._outbound.is_sending(number):
                packet = Empty(NO_HEADER, number, held.sent, held.sent == len(held.slices))
                self._packets.send(PacketKind.EMPTY, packet, held.to or EVERYONE, out)
