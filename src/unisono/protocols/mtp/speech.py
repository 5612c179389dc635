"""Figure 2 at work: gathers what is said, asks for tokens, and sends under them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from unisono.core import EVERYONE, Effect, Multicast, Send, Setting
from unisono.model import Address, Service
from unisono.parts.queued import MESSAGE_OCTETS, Queued, line_up
from unisono.protocols.mtp.agreement import PENDING, Token
from unisono.protocols.mtp.batch import (
    BATCH_COUNT_MAX,
    BATCH_OCTETS_MAX,
    Content,
    Said,
    said_as,
)
from unisono.protocols.mtp.council import NO_HEADER
from unisono.protocols.mtp.figure import CATCHING_UP
from unisono.protocols.mtp.packets import (
    DATA_OCTETS,
    HEADER_OCTETS,
    Empty,
    Grant,
    Kind,
    TokenRequest,
)
from unisono.protocols.mtp.transport import Held
from unisono.wire import ENVELOPE_OCTETS

if TYPE_CHECKING:
    from unisono.protocols.mtp.core import Mtp


class Speech:
    """The producer of one member."""

    def __init__(self, core: Mtp, setting: Setting) -> None:
        self._core = core
        self._window_octets = setting.window_octets_max
        self.slice_octets = (
            setting.packet_octets_max - ENVELOPE_OCTETS - HEADER_OCTETS - DATA_OCTETS
        )
        """Of a message, in one packet."""
        self._queue: deque[Queued] = deque()
        self._queue_octets = 0
        self._flight_octets = 0
        self._said = 0
        """Messages that left the queue: the number of the last one."""
        self._again: deque[Said] = deque()
        self.asked_us = 0

    def room(self) -> int:
        return max(0, self._window_octets - self._queue_octets - self._flight_octets)

    def say(self, event: Multicast) -> None:
        service = event.service if isinstance(event.service, Service) else Service.AGREED
        self._queue_octets += line_up(self._queue, event.messages, service)

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
            core.chair.want(core.producer.request, self._packets_wanted())
        elif core.now_us - self.asked_us >= wait_us:
            self.asked_us = core.now_us
            packet = TokenRequest(NO_HEADER, core.producer.request, self._packets_wanted())
            core.to_master(Kind.REQUEST, packet.body(core.header_octets()), out)

    def _packets_wanted(self) -> int:
        octets = self._again[0].octets if self._again else self._queue_octets
        if not self._again and self._queue:
            octets = min(octets, max(BATCH_OCTETS_MAX, len(self._queue[0].messages[0])))
        return 1 + octets // self.slice_octets

    def use(self, packet: Grant, out: list[Effect]) -> None:
        """`receive Master ["token_grant", s, last, members]`"""
        core = self._core
        number = packet.number
        held = number in core.outlet.held
        if held or number < core.consumer.next_out or core.hearing.status(number) is not PENDING:
            core.door.drop("late")
            return
        if packet.request != core.producer.request or not core.producer.asking:
            core.door.count("token_returned")
        core.know(number + 1)
        self.granted(Token(number, packet.header.last), packet.audience, out)

    def granted(self, token: Token, audience: tuple[Address, ...], out: list[Effect]) -> None:
        """`multicast {Master} ∪ Receiver(members) ["data", s, last, m]`"""
        core = self._core
        if self._again:
            batch = self._again.popleft()  # It has been counted since it was first said.
        else:
            batch = self._gather()
            self._flight_octets += self._cost(batch)
        core.producer.granted(token, batch)
        self.send_content(token.number, batch, audience)

    def send_content(self, number: int, content: Content, audience: tuple[Address, ...]) -> None:
        core = self._core
        slices = content.slices(self.slice_octets)
        held = Held(core.key, number, slices, 0, core.now_us, audience, content)
        core.outlet.send(held)

    def _gather(self) -> Said:
        """All that was said while the token was awaited; nothing gives it back."""
        parts: list[Queued] = []
        room, left = BATCH_OCTETS_MAX, BATCH_COUNT_MAX
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
        self._queue_octets -= self._cost(batch)
        return batch

    def _cost(self, batch: Said) -> int:
        return batch.octets + MESSAGE_OCTETS * batch.count

    def settle(self) -> None:
        """What of ours the master accepted leaves the window; what it rejected is said again."""
        core = self._core
        if not core.producer.flights:
            return
        accepted, rejected = core.producer.settled(core.hearing.status)
        for batch in accepted:
            self._flight_octets -= self._cost(batch)
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
            held = core.outlet.held.get(number)
            if held is not None and held.sent and not core.outlet.goes_on(number):
                ended = held.sent == len(held.slices)
                body = Empty(NO_HEADER, number, held.sent, ended).body(core.header_octets())
                out.append(Send(held.audience or EVERYONE, [core.door.seal(Kind.EMPTY, body)]))
