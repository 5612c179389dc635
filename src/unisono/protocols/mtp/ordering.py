"""Figure 3 at work: takes data, learns statuses, and delivers in the order of numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Final

from unisono.core import Congested, Deliver, Effect
from unisono.errors import BadPacket
from unisono.model import Buffer, Message, Service
from unisono.parts.codec import PacketCodec
from unisono.parts.message_runs import MessageRun, MessageRuns
from unisono.protocols.mtp.agreement import (
    ACCEPTED,
    DELIVER,
    PENDING,
    REJECTED,
    SKIP,
    WAIT,
    Consumer,
    DataStatus,
    MessageStatus,
    Next,
)
from unisono.protocols.mtp.batch import (
    Batch,
    Content,
    MembershipChange,
    MessageBatch,
    MixedBatch,
    read_content,
)
from unisono.protocols.mtp.clock import StepClock
from unisono.protocols.mtp.decision import machine_of
from unisono.protocols.mtp.fail_stop import FailStop
from unisono.protocols.mtp.master import MasterWatch
from unisono.protocols.mtp.message_receiver import MessageReceiver
from unisono.protocols.mtp.message_sender import Held, MessageSender
from unisono.protocols.mtp.packets import Data, Header
from unisono.protocols.mtp.web import Web

AHEAD_COUNT_MAX: Final = 65_536
"""A message numbered further ahead than this is dropped."""
GRANTS_MAX: Final = 4
"""Times t: so many numbers may have been granted since a master last stated the next."""
HISTORY_MAX: Final = 65_536
"""Statuses of delivered messages that are remembered for NAKs."""
DELIVER_COUNT_MAX: Final = 4096
"""Messages delivered in one step, before the application may report that it is congested."""
SPOOL_BYTES_MAX: Final = 64 << 20
"""What a joiner that waits for the state buffers; then the web waits for it."""
SERVICES: Final = {int(service): service for service in Service}
"""An enumeration looks its members up far more slowly."""

_message = partial(tuple.__new__, Message)

ApplyChange = Callable[[int, MembershipChange, list[Effect]], bool]
"""Applies a membership change that was delivered; False if the member's own end came with it."""


@dataclass(eq=False)
class Ordering:
    """The consumer of one member."""

    _consumer: Consumer
    _clock: StepClock
    _codec: PacketCodec
    _web: Web
    _master: MasterWatch
    _fail_stop: FailStop
    _outbound: MessageSender
    _inbound: MessageReceiver
    _keeps_all: bool
    """A master replica keeps the data of all messages."""

    def __post_init__(self) -> None:
        self._history: dict[int, MessageStatus] = {}
        self._complete_to = 1
        self._consuming = False
        self.spooling = False
        """Messages are kept, not delivered: the state is still to come."""
        self.congested = False
        self.known_next = 1
        """The next number, as far as we know."""
        self._granted = 1
        """The next number, as a master stated."""
        self.version = 0
        """Rises with what headers carry: a status was received, or `known_next` rose."""
        self.has_news = False
        """A status was learned in this step."""
        self.has_more = False
        """This step has delivered enough; the rest follows in the next."""
        self._finished = False

    @property
    def t(self) -> int:
        return self._consumer.t

    def start(self) -> None:
        """Consume from the beginning of a web."""
        self._consuming = True

    def start_at(self, first: int, header: Header) -> None:
        """Consume from this message on, once the state is here."""
        self._consumer.restart(header.t, first)
        self.know(header.next, True)
        self._consuming = self.spooling = True

    def end_spooling(self) -> None:
        """The state is here."""
        self.spooling = False

    def begin_step(self) -> None:
        self.has_more = False

    def end_step(self) -> None:
        self.has_news = False

    # -- packets -----------------------------------------------------------------------------------

    def learn(self, header: Header, decides: bool) -> bool:
        """Every header carries statuses and the next number; the statuses count if its sender
        `decides`. False if it is too far ahead."""
        consumer, base = self._consumer, header.base
        if base > consumer.next_out + AHEAD_COUNT_MAX:
            self._codec.drop("window")
            return False
        if base > consumer.next_out or base > consumer.next_in:
            if consumer.learn(base, header.last if decides else self._late(base, header.last)):
                self.has_news = True
                self.version += 1
        if header.next > self.known_next or base > self.known_next:
            self.know(max(header.next, base), decides)
        return True

    def _late(self, base: int, last: tuple[MessageStatus, ...]) -> tuple[MessageStatus, ...]:
        """Of statuses that others state, those that a master decided long ago."""
        late = max(self._granted, self._consumer.next_in) - self._consumer.t
        if self._consumer.next_out >= late:
            return ()
        return tuple([its if base - k < late else PENDING for k, its in enumerate(last, 1)])

    def decide(self, number: int, last: tuple[MessageStatus, ...]) -> None:
        """We are the master: these statuses are committed."""
        if self._consumer.learn(number, last):
            self.has_news = True
        self.know(number, True)

    def know(self, number: int, decides: bool = False) -> None:
        """All numbers below this have been granted, as far as who says so may be believed."""
        if decides and number > self._granted:
            self._granted = number
        number = min(number, self._limit())
        if number > self.known_next:
            self.known_next = number
            self.version += 1

    def _limit(self) -> int:
        """Of numbers: a master grants few while we do not hear of it."""
        next_out = self._consumer.next_out
        granted = max(self._granted, next_out) + GRANTS_MAX * self._consumer.t
        return min(granted, next_out + AHEAD_COUNT_MAX)

    def take_data(self, packet: Data, out: list[Effect]) -> None:
        """A packet (m, p)."""
        number, next_out = packet.number, self._consumer.next_out
        if number < next_out or self.status(number) is REJECTED:
            self._codec.drop("late", len(packet.pieces))
            return
        held = self._outbound.held
        if number in held or number >= self._limit():
            self._codec.drop("duplicate" if number in held else "window", len(packet.pieces))
            return
        self.know(number + 1)
        if self.spooling:
            # Spooled data must not keep the receive buffer that it shares with the state.
            packet = packet._replace(pieces=list(map(bytes, packet.pieces)))
        message = self._inbound.take(packet, self._clock.now_us)
        if message is not None and self._keeps_all:
            slices, now_us = message.slices(), self._clock.now_us
            self._outbound.hold(Held(message.origin, number, slices, len(slices), now_us))

    def hold_back(self, event: Congested, out: list[Effect]) -> None:
        self.congested = event.on

    # -- statuses and data -------------------------------------------------------------------------

    def status(self, number: int) -> MessageStatus:
        found = self._consumer.status.get(number)
        return found if found is not None else self._history.get(number, PENDING)

    def statuses_before(self, base: int) -> tuple[MessageStatus, ...]:
        """Of the t messages before this one, the latest first."""
        status, history = self._consumer.status, self._history
        return tuple(
            [
                status.get(number) or history.get(number, PENDING)
                for number in range(base - 1, base - 1 - self._consumer.t, -1)
            ]
        )

    def complete_to(self) -> int:
        """All messages below this number are settled, and those accepted are here."""
        number, next_out, known = self._complete_to, self._consumer.next_out, self.known_next
        if number < next_out:
            number = next_out
        while number < known:
            status = self.status(number)
            if status is PENDING or (
                status is ACCEPTED and self._data_status(number) is not DataStatus.HERE
            ):
                break
            number += 1
        self._complete_to = number
        return number

    def taken(self) -> int:
        """The master need not keep messages below this number for us: they are delivered, skipped,
        or spooled until the state is here."""
        if self.spooling and self._inbound.nbytes < SPOOL_BYTES_MAX:
            return self.complete_to()
        return self._consumer.next_out

    def slices_of(self, number: int) -> list[Buffer] | None:
        """The message's data, if it is all here."""
        held = self._outbound.held.get(number)
        if held is not None:
            return held.slices
        message = self._inbound.incoming.get(number)
        return message.slices() if message is not None and message.whole else None

    def _data_status(self, number: int) -> DataStatus:
        if number in self._outbound.held:
            return DataStatus.HERE
        message = self._inbound.incoming.get(number)
        if message is None:
            return DataStatus.COMING
        if message.whole:
            return DataStatus.HERE
        return DataStatus.LOST if self._master.key in message.denied else DataStatus.COMING

    def accepted_in(self, value: bytes) -> list[int]:
        """The messages that a value of the replicas accepts and we have not delivered."""
        try:
            machine = machine_of(value, self._consumer.t)
        except BadPacket:
            return []
        first = self._consumer.next_out
        return [n for n, its in machine.status.items() if its is ACCEPTED and n >= first]

    def holds(self, value: bytes) -> bool:
        """Whether the data of all that a value accepts is here. Before it is a consumer, a replica
        is only a witness."""
        if not self._consuming:
            return True
        return all(self.slices_of(number) is not None for number in self.accepted_in(value))

    # -- delivery ----------------------------------------------------------------------------------

    def deliver(self, apply_change: ApplyChange, out: list[Effect]) -> None:
        """[MTP Figure 3] Deliver or skip messages while the next one is settled and here."""
        if self.congested or self.spooling or self.has_more or self._finished:
            return
        if self._fail_stop.reason is not None:
            return
        batches: list[Sequence[Message]] = []
        count = 0
        consumer, data_status = self._consumer, self._data_status
        while not self.has_more:
            number = consumer.next_out
            due = consumer.due(data_status)
            if due is WAIT:
                break
            if due is SKIP:
                self._step_on(number, REJECTED)
                self._outbound.drop(number)
            elif due is DELIVER:
                origin = self._origin(number)
                content = self._content(number)
                self._step_on(number, ACCEPTED)
                if isinstance(content, MessageBatch | MixedBatch):
                    self._append(origin, content, batches)
                    count += content.count
                    self.has_more = count >= DELIVER_COUNT_MAX
                elif isinstance(content, MembershipChange):
                    out += map(Deliver, batches)
                    batches, count = [], 0
                    if not apply_change(number, content, out):
                        self._finished = True
                        break
            else:
                # Deviates [MTP 3.4]: a member that missed a status requests it from the master, and
                # gives up when that is denied; Figure 3 rejoins at once, also for a late packet.
                if due is Next.REJOIN and self.status(number) is ACCEPTED:
                    self._fail_stop.request(f"message {number} was accepted and cannot be had")
                break
        out += map(Deliver, batches)

    def _content(self, number: int) -> Content | None:
        held = self._outbound.held.get(number)
        if held is not None and held.content is not None:
            return held.content
        slices = self.slices_of(number)
        assert slices is not None
        size = len(slices[0])
        self._inbound.drop(number)  # Frees its packets as they are read.
        try:
            content = read_content(slices)
        except BadPacket as bad:
            self._codec.drop(bad.reason)
            return None
        if held is not None and not slices[0]:
            held.keep_content(content, size)
        return content

    def _step_on(self, number: int, status: MessageStatus) -> None:
        self._history[number] = status
        if len(self._history) > HISTORY_MAX:
            del self._history[next(iter(self._history))]
        self._consumer.step_on()
        self._inbound.drop(number)

    def _origin(self, number: int) -> int:
        held = self._outbound.held.get(number)
        if held is not None:
            return held.origin
        message = self._inbound.incoming.get(number)
        return message.origin if message is not None else 0

    def _append(self, origin: int, batch: Batch, batches: list[Sequence[Message]]) -> None:
        web = self._web
        sender = web.members.get(origin)
        count = batch.count
        if sender is None or not count:
            if count:
                self._codec.drop("stranger")
            return
        view, n = web.view, batch.first
        seq = web.note_delivered(origin, count, n + count - 1)
        if isinstance(batch, MixedBatch):
            levels = map(SERVICES.__getitem__, batch.services)
            numbers, seqs = range(n, n + count), range(seq, seq + count)
            rows = zip(repeat(sender), batch.payloads, numbers, repeat(view), seqs, levels)
            batches.append(list(map(_message, rows)))
            return
        runs: list[MessageRun] = []
        for times, length, service, data, start in batch.groups:
            level = SERVICES[service]
            runs.append(MessageRun(sender, data, start, length, times, n, view, seq, level))
            seq += times
            n += times
        batches.append(MessageRuns(runs))
