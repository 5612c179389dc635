"""Figure 2 at work: gathers what is said, asks for tokens, and sends under them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from unisono.core import EVERYONE, CoreConfig, Effect, Multicast, Send
from unisono.model import Address, Service
from unisono.parts.pending import MESSAGE_BYTES, Pending, enqueue
from unisono.protocols.mtp.agreement import PENDING, SendToken
from unisono.protocols.mtp.batch import (
    BATCH_BYTES_MAX,
    BATCH_COUNT_MAX,
    Content,
    Said,
    said_as,
)
from unisono.protocols.mtp.figure import CATCHING_UP
from unisono.protocols.mtp.packets import (
    DATA_BYTES,
    HEADER_BYTES,
    Empty,
    Grant,
    PacketKind,
    TokenRequest,
)
from unisono.protocols.mtp.replicas import NO_HEADER
from unisono.protocols.mtp.transport import Held
from unisono.wire import ENVELOPE_BYTES

if TYPE_CHECKING:
    from unisono.protocols.mtp.core import Mtp


class SendQueue:
    """The producer of one member."""

    def __init__(self, core: Mtp, setting: CoreConfig) -> None:
        self._core = core
        self._window_bytes = setting.window_bytes_max
        self.slice_bytes = setting.packet_bytes_max - ENVELOPE_BYTES - HEADER_BYTES - DATA_BYTES
        """Of a message, in one packet."""
        self._queue: deque[Pending] = deque()
        self._queue_bytes = 0
        self._flight_bytes = 0
        self._said = 0
        """Messages that left the queue: the number of the last one."""
        self._again: deque[Said] = deque()
        self.asked_us = 0

    def send_credit(self) -> int:
        return max(0, self._window_bytes - self._queue_bytes - self._flight_bytes)

    def say(self, event: Multicast) -> None:
        service = event.service if isinstance(event.service, Service) else Service.AGREED
        self._queue_bytes += enqueue(self._queue, event.messages, service)

    def unsaid(self) -> bool:
        """Something of ours is not settled."""
        core = self._core
        return bool(self._queue or self._again or core.producer.flights)

    def request(self, out: list[Effect]) -> None:
        """`send Master ["token_request"]`, unless one is out."""
        core = self._core
        if not (self._queue or self._again) or core.machine.state is CATCHING_UP:
            return
        if not core.producer.asking:
            core.producer.ask()
            self.asked_us = -core.parameters.beat_us
        wait_us = core.pace.heartbeat_us * 4
        if core.leads:
            core.coordinator.want(core.producer.request, self._packets_wanted())
        elif core.now_us - self.asked_us >= wait_us:
            self.asked_us = core.now_us
            packet = TokenRequest(NO_HEADER, core.producer.request, self._packets_wanted())
            core.to_master(PacketKind.REQUEST, packet.body(core.header_bytes()), out)

    def _packets_wanted(self) -> int:
        octets = self._again[0].octets if self._again else self._queue_bytes
        if not self._again and self._queue:
            octets = min(octets, max(BATCH_BYTES_MAX, len(self._queue[0].messages[0])))
        return 1 + octets // self.slice_bytes

    def use(self, packet: Grant, out: list[Effect]) -> None:
        """`receive Master ["token_grant", s, last, members]`"""
        core = self._core
        number = packet.number
        held = number in core.outbound.held
        if held or number < core.consumer.next_out or core.receiver.status(number) is not PENDING:
            core.codec.drop("late")
            return
        if packet.request != core.producer.request or not core.producer.asking:
            core.codec.count("token_returned")
        core.know(number + 1)
        self.granted(SendToken(number, packet.header.last), packet.audience, out)

    def granted(self, token: SendToken, audience: tuple[Address, ...], out: list[Effect]) -> None:
        """`multicast {Master} ∪ Receiver(members) ["data", s, last, m]`"""
        core = self._core
        if self._again:
            batch = self._again.popleft()  # It has been counted since it was first said.
        else:
            batch = self._gather()
            self._flight_bytes += self._cost(batch)
        core.producer.granted(token, batch)
        self.send_content(token.number, batch, audience)

    def send_content(self, number: int, content: Content, audience: tuple[Address, ...]) -> None:
        core = self._core
        slices = content.slices(self.slice_bytes)
        held = Held(core.key, number, slices, 0, core.now_us, audience, content)
        core.outbound.send(held)

    def _gather(self) -> Said:
        """All that was said while the token was awaited; nothing gives it back."""
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
        batch = said_as(self._said + 1, parts)
        self._said += batch.count
        self._queue_bytes -= self._cost(batch)
        return batch

    def _cost(self, batch: Said) -> int:
        return batch.octets + MESSAGE_BYTES * batch.count

    def settle(self) -> None:
        """What of ours the master accepted leaves the window; what it rejected is said again."""
        core = self._core
        if not core.producer.flights:
            return
        accepted, rejected = core.producer.settled(core.receiver.status)
        for batch in accepted:
            self._flight_bytes -= self._cost(batch)
        # Deviates [MTP Figure 2]: a producer that is still there says again what was rejected, by
        # another token; the figure sends once and never learns what became of it.
        for batch in reversed(rejected):
            if batch.count:
                self._again.appendleft(batch)

    def advertise(self, out: list[Effect]) -> None:
        """[MTP 3.3] A token holder whose message is not settled says how far it is, unless its next
        packets will show it."""
        core = self._core
        for number, _ in core.producer.flights:
            held = core.outbound.held.get(number)
            if held is not None and held.sent and not core.outbound.is_sending(number):
                ended = held.sent == len(held.slices)
                body = Empty(NO_HEADER, number, held.sent, ended).body(core.header_bytes())
                out.append(
                    Send(held.audience or EVERYONE, [core.codec.seal(PacketKind.EMPTY, body)])
                )
