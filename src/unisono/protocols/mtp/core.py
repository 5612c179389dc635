"""The member: takes events, runs its life, and gathers what each burst leads to."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from random import Random
from typing import Final

from unisono.core import (
    EVERYONE,
    Arm,
    Deliver,
    Depart,
    Disarm,
    Effect,
    Event,
    Fail,
    Install,
    Multicast,
    Received,
    Send,
    Setting,
)
from unisono.errors import BadPacket
from unisono.fsa import Machine
from unisono.model import Address, Buffer, Member, Message, Service
from unisono.parts.door import Door
from unisono.protocols.mtp.agreement import (
    ACCEPTED,
    PENDING,
    REJECTED,
    Consumer,
    Next,
    Producer,
    Status,
    Token,
)
from unisono.protocols.mtp.agreement import Data as Whereabouts
from unisono.protocols.mtp.batch import (
    BATCH_COUNT_MAX,
    BATCH_OCTETS_MAX,
    Batch,
    Change,
    Content,
    read_content,
)
from unisono.protocols.mtp.chair import Chair, machine_of
from unisono.protocols.mtp.council import NO_HEADER, Council
from unisono.protocols.mtp.entrance import ROSTER, Entrance
from unisono.protocols.mtp.figure import CATCHING_UP, FIGURE, INSIDE, LEAVING, MEMBER, Life, Timer
from unisono.protocols.mtp.packets import (
    DATA_OCTETS,
    HEADER_OCTETS,
    KINDS,
    PROTOCOL,
    WHOLE,
    Ack,
    Confirm,
    Data,
    Deny,
    Empty,
    Grant,
    Header,
    JoinRequest,
    Kind,
    LeaveRequest,
    Nak,
    Packet,
    Pressure,
    Propose,
    Range,
    Refuse,
    Report,
    Seat,
    Stand,
    StateAsk,
    Support,
    TokenRequest,
    bits_of,
    key_of,
    read,
    write_header,
)
from unisono.protocols.mtp.parameters import Parameters
from unisono.protocols.mtp.transport import (
    AHEAD_COUNT_MAX,
    NAK_RANGES_MAX,
    Held,
    Incoming,
    Inlet,
    Outlet,
    Pace,
)
from unisono.protocols.mtp.web import Web
from unisono.wire import ENVELOPE_OCTETS, Envelope

HISTORY_MAX: Final = 4096
"""Statuses of delivered messages that are remembered for those who ask."""
MESSAGE_OCTETS: Final = 32
"""What a message costs beside its payload, in the window."""


class Mtp:
    """A member of an MTP web: see the README beside this file for the paper."""

    def __init__(self, setting: Setting) -> None:
        self.me = setting.me
        self.key = key_of(setting.me)
        self.packet_octets_max = setting.packet_octets_max
        self.with_state = setting.with_state
        self.parameters = Parameters.of(setting.options)
        self.dice = Random(setting.seed)
        self.door = Door(PROTOCOL, KINDS, setting.group)
        parameters = self.parameters
        self.pace = Pace(parameters.heartbeat_us, parameters.window, parameters.retention)
        self.consumer = Consumer(parameters.tokens)
        self.producer: Producer[Batch] = Producer()
        self.outlet = Outlet(self.door, self.pace, self.header_octets)
        self.inlet = Inlet(self.door, self.pace, parameters.dally, self.dice)
        self.web = Web()
        self.council = Council(self, self._holds)
        self.chair = Chair(self)
        self.entrance = Entrance(self, setting.with_state)
        self.machine = Machine(FIGURE, self)
        self.now_us = 0
        self.source = setting.me.address
        """Where the packet at hand came from."""
        self.incoming_life = 0
        self.known_next = 1
        """The next number, as far as we have heard."""
        self.master: Member | None = None
        self.verdict: str | None = None
        self.congested = False
        self.news = False
        """A status was learned in this step."""
        self._window_octets = setting.window_octets_max
        self._slice_octets = (
            setting.packet_octets_max - ENVELOPE_OCTETS - HEADER_OCTETS - DATA_OCTETS
        )
        self._history: dict[int, Status] = {}
        self._master_ballot = 0
        self._master_us = 0
        self._queue: deque[tuple[bytes, int]] = deque()
        self._queue_octets = 0
        self._flight_octets = 0
        self._said = 0
        """Messages that left the queue: the number of the last one."""
        self._again: deque[Batch] = deque()
        self._asked_us = 0
        self._losses = 0
        self._reported = 1
        self._beating = False
        self._quiet = 0
        self._ticked_us = 0
        self._headers: dict[int, bytes] = {}
        self._foreign_us: int | None = None

    # -- the contract ----------------------------------------------------------------------------

    @property
    def counts(self) -> dict[str, int]:
        return self.door.counts

    @property
    def leads(self) -> bool:
        return self.council.leads

    def room(self) -> int:
        """While the application cannot take more, it may not say more: it would hear it too."""
        if self.machine.state is not MEMBER or self.congested:
            return 0
        return max(0, self._window_octets - self._queue_octets - self._flight_octets)

    def walked(self) -> Mapping[str, int]:
        return self.machine.walked

    def step(self, now_us: int, event: Event) -> list[Effect]:
        self.now_us = now_us
        self._headers.clear()
        out: list[Effect] = []
        if isinstance(event, Received):
            self.source = event.source
            for envelope in self.door.admit(event.packets):
                packet = self._open(envelope, out)
                if packet is not None:
                    self.machine.fire(packet, out)
        else:
            self.machine.fire(event, out)
        if self.machine.state in INSIDE:
            self._conclude(event, out)
        elif self.machine.state is Life.JOINING:
            self.council.settle(out)
            self.machine.settle(event, out)
            if self.machine.state in INSIDE:
                self._conclude(event, out)
        return out

    def start(self, out: list[Effect]) -> None:
        """We are in."""
        self._master_us = self.now_us
        out.append(Arm(Timer.BEAT, self.parameters.beat_us))

    def stop(self, reason: str, out: list[Effect]) -> None:
        self._end(out)
        out.append(Fail(reason))

    def depart(self, out: list[Effect]) -> None:
        if self.machine.state is CATCHING_UP:
            self.to_master(Kind.LEAVE, LeaveRequest(NO_HEADER).body(self.header_octets()), out)
        if self.council.seated:
            self.council.abandon()
            self.council.greet(out)
        self._end(out)
        out.append(Depart())

    def _end(self, out: list[Effect]) -> None:
        out.extend(Disarm(timer) for timer in Timer)

    def doom(self, reason: str) -> None:
        self.verdict = self.verdict or reason

    # -- what came in ----------------------------------------------------------------------------

    def _open(self, envelope: Envelope, out: list[Effect]) -> Packet | None:
        """The packet, if its life and its sender are right."""
        try:
            packet = read(envelope.kind, envelope.body)
        except BadPacket as bad:
            self.door.drop(bad.reason)
            return None
        self.incoming_life = envelope.life
        if isinstance(packet, JoinRequest | Refuse | Seat):
            return packet
        if packet.header.sender == self.key:
            self.door.drop("own")
            return None
        if isinstance(packet, Propose | Ack | Stand | Support):
            return self._open_council(packet, envelope.life)
        inside = self.machine.state in INSIDE
        if envelope.life != self.door.life or not inside:
            if isinstance(packet, Confirm) and not inside:
                return packet
            if isinstance(packet, Empty) and packet.ballot and inside:
                self._foreign_us = self.now_us
            self.door.drop("life")
            return None
        self._hear(packet.header)
        if self.leads:
            self._hear_member(packet, out)
        return packet

    def _open_council(self, packet: Propose | Ack | Stand | Support, life: int) -> Packet | None:
        if not self.council.rank or (self.council.seated and life != self.council.web):
            self.door.drop("life")
            return None
        if not self.council.seated and not isinstance(packet, Propose):
            self.door.drop("seat")
            return None
        if life == self.door.life and self.machine.state in INSIDE:
            self._hear(packet.header)
            if self.leads:
                self.chair.hear(packet.header.sender, packet.header.taken)
        return packet

    def _hear(self, header: Header) -> None:
        """Every header tells statuses and the next number; the master's sets the pace."""
        if self.consumer.learn(header.base, header.last):
            self.news = True
            self._headers.clear()
        self.know(max(header.next, header.base))
        if self.master is not None and header.sender == key_of(self.master):
            self._master_us = self.now_us
            self.council.heard_us = self.now_us
            self.adopt_pace(header)

    def _hear_member(self, packet: Packet, out: list[Effect]) -> None:
        assert not isinstance(packet, JoinRequest | Refuse | Seat)
        sender = packet.header.sender
        if sender in self.web.members:
            self.chair.hear(sender, packet.header.taken)
        elif isinstance(packet, TokenRequest | Report | LeaveRequest | StateAsk):
            self.chair.turn_away(sender, self.source, out)

    def know(self, number: int) -> None:
        """This many numbers have been granted, but for one."""
        if number > self.known_next:
            self.known_next = min(number, self.consumer.next_out + AHEAD_COUNT_MAX)
            self._quiet = 0
            self._headers.clear()

    def follow(self, master: Member, ballot: int) -> None:
        """Who the master is: the one with the highest ballot."""
        if ballot >= self._master_ballot:
            if self.master != master:
                self._asked_us = -self.parameters.beat_us
            self.master, self._master_ballot = master, ballot
            self._master_us = self.now_us

    def adopt_pace(self, header: Header) -> None:
        self.pace.heartbeat_us = max(500, header.heartbeat_us)
        self.pace.window = max(1, header.window)
        self.pace.retention = max(1, header.retention)

    def take(self, packet: Data) -> None:
        """A packet (m, p)."""
        number = packet.number
        if number < self.consumer.next_out or self.status(number) is REJECTED:
            self.door.drop("late")
            return
        if number >= self.consumer.next_out + AHEAD_COUNT_MAX or number in self.outlet.held:
            self.door.drop("window" if number not in self.outlet.held else "duplicate")
            return
        self.know(number + 1)
        whole = self.inlet.take(packet, self.now_us)
        if whole is not None and self.council.rank:
            slices = whole.slices()
            held = Held(whole.origin, number, slices, len(slices), self.now_us)
            self.outlet.hold(held)

    def hear_empty(self, packet: Empty) -> None:
        """[MTP 3.3] How far a token holder is; or the master's word."""
        if packet.master is not None:
            self.follow(packet.master, packet.ballot)
            self._forget(packet.stable)
        number = packet.number
        if number >= self.consumer.next_out and number < self.known_next:
            if number not in self.outlet.held and self.status(number) is not REJECTED:
                origin, count = packet.header.sender, packet.packets
                self.inlet.hear_of(number, origin, count, packet.ended, self.now_us)

    def status(self, number: int) -> Status:
        found = self.consumer.status.get(number)
        return found if found is not None else self._history.get(number, PENDING)

    def slices_of(self, number: int) -> list[Buffer] | None:
        """The message's data, if it is all here."""
        held = self.outlet.held.get(number)
        if held is not None:
            return held.slices
        message = self.inlet.incoming.get(number)
        return message.slices() if message is not None and message.whole else None

    def _holds(self, value: bytes) -> bool:
        """Whether a cohort has the data of all that a value accepts; who is no consumer yet is
        only a witness."""
        if self.machine.state not in INSIDE:
            return True
        return all(self.slices_of(number) is not None for number in self._accepted_in(value))

    def _accepted_in(self, value: bytes) -> list[int]:
        """The messages that a value accepts and we have not delivered."""
        if not value:
            return []
        try:
            machine = machine_of(value, self.parameters.tokens)
        except BadPacket:
            return []
        first = self.consumer.next_out
        return [n for n, its in machine.status.items() if its is ACCEPTED and n >= first]

    # -- what follows from a burst ---------------------------------------------------------------

    def _conclude(self, event: Event, out: list[Effect]) -> None:
        """Once a burst: decide, deliver, ask, send."""
        for _ in range(64):
            before = self.consumer.next_out, self.chair.machine.next, self.council.committed
            if self.leads:
                self.chair.conclude(out)
            self._deliver(out)
            self._settle()
            self._request(out)
            if before == (
                self.consumer.next_out,
                self.chair.machine.next,
                self.council.committed,
            ):
                break
        self.council.settle(out)
        if self.leads and self.news:
            self.chair.advertise(out)
        self.news = False
        self._report_early(out)
        self._ask(out)
        self.outlet.pump(self.now_us, out)
        if self.machine.state is LEAVING:
            self.entrance.linger()
        self.machine.settle(event, out)
        if self.machine.state in INSIDE and not self._beating and self._busy():
            self._beating = True
            out.append(Arm(Timer.HEARTBEAT, self.pace.heartbeat_us))

    def _busy(self) -> bool:
        return (
            self.outlet.busy()
            or self.known_next > self.consumer.next_out
            or bool(self.producer.flights)
            or self.producer.asking
            or (self.leads and self.chair.busy())
            or self.machine.state is LEAVING
            or bool(self.outlet.held)
        )

    # -- Figure 3 --------------------------------------------------------------------------------

    def _whereabouts(self, number: int) -> Whereabouts:
        if number in self.outlet.held:
            return Whereabouts.HERE
        message = self.inlet.incoming.get(number)
        if message is None:
            return Whereabouts.COMING
        if message.whole:
            return Whereabouts.HERE
        lost = self.master is not None and key_of(self.master) in message.denied
        return Whereabouts.LOST if lost else Whereabouts.COMING

    def _deliver(self, out: list[Effect]) -> None:
        if self.congested or self.machine.state is CATCHING_UP:
            return
        if self.verdict is not None or self.entrance.gone():
            return
        messages: list[Message] = []
        while True:
            number = self.consumer.next_out
            due = self.consumer.due(self._whereabouts)
            if due is Next.SKIP:
                self._step_on(number, REJECTED)
                self.outlet.drop(number)
            elif due is Next.DELIVER:
                content = self._content(number)
                self._step_on(number, ACCEPTED)
                if isinstance(content, Batch):
                    self._append(number, content, messages)
                elif isinstance(content, Change):
                    if messages:
                        out.append(Deliver(messages))
                        messages = []
                    if not self._change(number, content, out):
                        break
            else:
                if due is Next.REJOIN and self.status(number) is ACCEPTED:
                    self.doom(f"message {number} was accepted and cannot be had")
                break
        if messages:
            out.append(Deliver(messages))

    def _content(self, number: int) -> Content | None:
        slices = self.slices_of(number)
        assert slices is not None
        try:
            return read_content(slices)
        except BadPacket as bad:
            self.door.drop(bad.reason)
            return None

    def _step_on(self, number: int, status: Status) -> None:
        self._history[number] = status
        if len(self._history) > HISTORY_MAX:
            del self._history[next(iter(self._history))]
        self.consumer.step_on()
        self.origin = self._origin(number)
        self.inlet.drop(number)
        self._quiet = 0

    def _origin(self, number: int) -> int:
        held = self.outlet.held.get(number)
        if held is not None:
            return held.origin
        message = self.inlet.incoming.get(number)
        return message.origin if message is not None else 0

    def _append(self, number: int, batch: Batch, messages: list[Message]) -> None:
        web = self.web
        sender = web.members.get(self.origin)
        if sender is None or not batch.payloads:
            if batch.payloads:
                self.door.drop("stranger")
            return
        view, place, n = web.view, web.place, batch.first
        for payload, service in zip(batch.payloads, batch.services, strict=True):
            place += 1
            messages.append(Message(sender, payload, n, view, place, Service(service)))
            n += 1
        web.place = place
        web.upto[self.origin] = n - 1

    def _change(self, number: int, change: Change, out: list[Effect]) -> bool:
        """[MTP 5.3] The members change at this place. False when that is the end of us."""
        gone = {each.key: each.left for each in change.gone}
        if self.key in gone or change.ends:
            mine = gone.get(self.key) or (change.ends and self.leads)
            if self.machine.state is LEAVING and mine:
                self.entrance.ended(number, change.ends)
                if self.leads:
                    self.web.apply(self.door.life, number, change)
                    self.chair.changed(number, change, out)
                return False
            self.doom(
                "the master ended the web"
                if change.ends
                else "the master holds this member for failed"
            )
            return False
        before = self.web.members.copy()
        view = self.web.apply(self.door.life, number, change)
        for key in before.keys() - self.web.members.keys():
            self.entrance.forget(key)
        if self.web.members != before:
            out.append(Install(view))
        if self.council.rank:
            for member, _ in change.joined:
                self.entrance.offer(key_of(member), ROSTER, self.web.roster())
        if self.leads:
            self.chair.changed(number, change, out)
        return True

    # -- Figure 2 --------------------------------------------------------------------------------

    def say(self, event: Multicast) -> None:
        service = event.service if isinstance(event.service, Service) else Service.AGREED
        for payload in event.messages:
            self._queue.append((payload, service))
            self._queue_octets += len(payload) + MESSAGE_OCTETS

    def unsaid(self) -> bool:
        """Something of ours is not settled."""
        return bool(self._queue or self._again or self.producer.flights)

    def _request(self, out: list[Effect]) -> None:
        """`send Master ["token_request"]`, unless one is out."""
        if not (self._queue or self._again) or self.machine.state is CATCHING_UP:
            return
        if not self.producer.asking:
            self.producer.ask()
            self._asked_us = -self.parameters.beat_us
        wait_us = self.pace.heartbeat_us * 4
        if self.leads:
            self.chair.want(self.producer.request, self._packets_wanted())
        elif self.now_us - self._asked_us >= wait_us:
            self._asked_us = self.now_us
            packet = TokenRequest(NO_HEADER, self.producer.request, self._packets_wanted())
            self.to_master(Kind.REQUEST, packet.body(self.header_octets()), out)

    def _packets_wanted(self) -> int:
        octets = self._again[0].octets if self._again else self._queue_octets
        if not self._again and self._queue:
            octets = min(octets, max(BATCH_OCTETS_MAX, len(self._queue[0][0])))
        return 1 + octets // self._slice_octets

    def use(self, packet: Grant, out: list[Effect]) -> None:
        """`receive Master ["token_grant", s, last, members]`"""
        number = packet.number
        held = number in self.outlet.held
        if held or number < self.consumer.next_out or self.status(number) is not PENDING:
            self.door.drop("late")
            return
        if packet.request != self.producer.request or not self.producer.asking:
            self.door.count("token_returned")
        self.know(number + 1)
        self.granted(Token(number, packet.header.last), packet.audience, out)

    def granted(self, token: Token, audience: tuple[Address, ...], out: list[Effect]) -> None:
        """`multicast {Master} ∪ Receiver(members) ["data", s, last, m]`"""
        batch = self._again.popleft() if self._again else self._gather()
        self.producer.granted(token, batch)
        self._flight_octets += self._cost(batch)
        self.send_content(token.number, batch, audience)

    def send_content(self, number: int, content: Content, audience: tuple[Address, ...]) -> None:
        slices = content.slices(self._slice_octets)
        held = Held(self.key, number, slices, audience=audience, sent_us=self.now_us)
        self.outlet.send(held)

    def _gather(self) -> Batch:
        """All that was said while the token was awaited; nothing gives it back."""
        payloads: list[bytes] = []
        services = bytearray()
        octets = 0
        queue = self._queue
        while queue and len(payloads) < BATCH_COUNT_MAX:
            payload, service = queue[0]
            octets += len(payload)
            if payloads and octets > BATCH_OCTETS_MAX:
                break
            queue.popleft()
            payloads.append(payload)
            services.append(service)
        batch = Batch(self._said + 1, tuple(payloads), bytes(services))
        self._said += len(payloads)
        self._queue_octets -= self._cost(batch)
        return batch

    def _cost(self, batch: Batch) -> int:
        return batch.octets + MESSAGE_OCTETS * len(batch.payloads)

    def _settle(self) -> None:
        """What of ours the master accepted leaves the window; what it rejected is said again."""
        if not self.producer.flights:
            return
        accepted, rejected = self.producer.settled(self.status)
        for batch in (*accepted, *rejected):
            self._flight_octets -= self._cost(batch)
        for batch in reversed(rejected):
            if batch.payloads:
                self._again.appendleft(batch)
                self._flight_octets += self._cost(batch)

    # -- headers and packets ---------------------------------------------------------------------

    def header_octets(self, base: int = 0) -> bytes:
        """[MTP 3.3] What every packet begins with. The statuses are of the messages before `base`:
        the data packet's own number, or the next one."""
        base = base or self.known_next
        known = self._headers.get(base)
        if known is None:
            t = self.consumer.t
            bits = bits_of(tuple(self.status(base - k) for k in range(1, t + 1)))
            pace = self.pace
            known = self._headers[base] = write_header(
                Header(
                    self.key,
                    base,
                    bits,
                    self.known_next,
                    self.consumer.next_out,
                    pace.heartbeat_us,
                    pace.window,
                    min(255, pace.retention),
                    t,
                )
            )
        return known

    def to_master(self, kind: Kind, body: bytes, out: list[Effect]) -> None:
        if self.master is not None:
            out.append(Send((self.master.address,), [self.door.seal(kind, body)]))

    # -- NAKs ------------------------------------------------------------------------------------

    def _ask(self, out: list[Effect]) -> None:
        """[MTP 3.3] Ask for what is missing and due."""
        consumer, t = self.consumer, self.consumer.t
        first = consumer.next_out
        asks: dict[Address, list[Range]] = {}
        wanted = self._accepted_in(self.council.owed_value())
        if wanted:
            self.know(max(wanted) + 1)
        for number in range(first, min(self.known_next, first + 256)):
            status = self.status(number)
            unknown = status is PENDING and self.known_next - number > t and not self.leads
            if status is REJECTED or (number in self.outlet.held and not unknown):
                continue
            message = self.inlet.at(number)
            if message.whole and not unknown:
                continue
            accepted = status is ACCEPTED or number in wanted
            if (accepted or unknown) and message.due_us < 0:
                self.inlet.notice(message, self.now_us, 0 if message.packets else 1)
            if message.due_us < 0 or message.due_us > self.now_us:
                continue
            ranges = self.inlet.missing(message, accepted or unknown)
            if unknown:
                ranges = [(number, WHOLE, WHOLE), *ranges]
            target = self._target(message, unknown)
            self.inlet.asked(message, self.now_us)
            if target is not None and ranges:
                asks.setdefault(target, []).extend(ranges)
        for target, ranges in asks.items():
            self.door.count("nak", len(ranges))
            room = self.packet_octets_max - ENVELOPE_OCTETS - HEADER_OCTETS - 2
            some = tuple(ranges[: min(NAK_RANGES_MAX, room // 16)])
            body = Nak(NO_HEADER, some).body(self.header_octets())
            out.append(Send((target,), [self.door.seal(Kind.NAK, body)]))

    def _target(self, message: Incoming, unknown: bool) -> Address | None:
        """Whom to ask: the producer, and when that does not help, the master or its replicas."""
        # Deviates [MTP 3.3]: the master retains what it accepted until every member has it, and
        # answers where the producer is gone or denies; the paper asks the producer alone.
        origin = self.web.members.get(message.origin)
        targets: list[Address] = []
        if origin is not None and message.origin not in message.denied and not unknown:
            targets += [origin.address, origin.address]
        if self.master is not None and not self.leads:
            targets.append(self.master.address)
        elif self.council.rank:
            targets += self.council.addresses()
        targets = [address for address in targets if address != self.me.address]
        return targets[message.tries % len(targets)] if targets else None

    def repair(self, packet: Nak, out: list[Effect]) -> None:
        """Answer a NAK: again, or that we cannot."""
        denied: list[int] = []
        source = self.web.members.get(packet.header.sender)
        to = source.address if source is not None else self.source
        for number, first, last in packet.ranges:
            status = self.status(number)
            if status is REJECTED or (first == WHOLE and status is ACCEPTED):
                base = min(number + self.consumer.t, self.known_next)
                body = Empty(NO_HEADER).body(self.header_octets(base))
                out.append(Send((to,), [self.door.seal(Kind.EMPTY, body)]))
            elif number in self.outlet.held:
                self.outlet.asked(number, first, last, to, self.now_us)
            elif number < self.consumer.next_out:
                denied.append(number)
        if denied:
            self.door.count("deny", len(denied))
            body = Deny(NO_HEADER, tuple(denied)).body(self.header_octets())
            out.append(Send((to,), [self.door.seal(Kind.DENY, body)]))

    def denied(self, packet: Deny) -> None:
        """[MTP 3.3] A consumer that cannot do without it rejoins."""
        sender = packet.header.sender
        for number in packet.numbers:
            message = self.inlet.incoming.get(number)
            if message is None or number < self.consumer.next_out:
                continue
            message.denied.add(sender)
            by_master = self.master is not None and sender == key_of(self.master)
            if by_master and self.status(number) is PENDING and number == self.consumer.next_out:
                self.doom(f"the status of message {number} cannot be had any more")

    def _forget(self, stable: int) -> None:
        """Drop what everybody has and what was kept long enough."""
        keep_us = self.pace.heartbeat_us * self.pace.retention
        keeps_all = bool(self.council.rank)
        for number in list(self.outlet.held):
            held = self.outlet.held[number]
            old = self.now_us - held.sent_us >= keep_us and held.sent == len(held.slices)
            settled = number < self.consumer.next_out
            if settled and old and (number < stable or not keeps_all):
                self.outlet.drop(number)

    # -- time --------------------------------------------------------------------------------------

    def heartbeat(self, out: list[Effect]) -> None:
        """The window opens again; what is not settled is advertised, asked for and said again."""
        self._beating = False
        self._quiet = min(self._quiet + 1, 16)
        self._forget(self.chair.stable if self.leads else 0)
        rare = self._quiet & (self._quiet - 1) == 0  # At 1, 2, 4, 8 and 16 heartbeats of quiet.
        if rare:
            self._advertise(out)
            if self.leads and self.chair.busy():
                self.chair.remind(out)
                self.chair.advertise(out)
            self.council.insist(out)
        if self.machine.state is LEAVING and self._quiet % 4 == 1:
            self.entrance.insist(out)

    def _advertise(self, out: list[Effect]) -> None:
        """[MTP 3.3] A token holder whose message is not settled says how far it is."""
        for number, _ in self.producer.flights:
            held = self.outlet.held.get(number)
            if held is not None and held.sent:
                ended = held.sent == len(held.slices)
                body = Empty(NO_HEADER, number, held.sent, ended).body(self.header_octets())
                out.append(Send(held.audience or EVERYONE, [self.door.seal(Kind.EMPTY, body)]))

    def pressure(self) -> Pressure:
        """[MTP 4] What this consumer wants of the parameters, since it was last asked."""
        losses, self._losses = self.inlet.losses - self._losses, self.inlet.losses
        limit = self.pace.window * self.pace.retention * self._slice_octets
        if self.congested or self.inlet.octets > limit:
            return Pressure.FULL
        return Pressure.LOSING if losses else Pressure.CALM

    def _report_early(self, out: list[Effect]) -> None:
        """Who has taken much says so before the next beat: the master may be waiting for it."""
        taken = self.consumer.next_out
        if not self.leads and taken >= self._reported + max(1, self.consumer.t // 2):
            self._report(out, Pressure.CALM)

    def _report(self, out: list[Effect], pressure: Pressure) -> None:
        self._reported = self.consumer.next_out
        suspects = sorted(
            {m.origin for m in self.inlet.incoming.values() if m.tries > 4 and m.origin}
        )[:16]
        body = Report(NO_HEADER, pressure, tuple(suspects)).body(self.header_octets())
        self.to_master(Kind.REPORT, body, out)

    def beat(self, out: list[Effect]) -> None:
        """Nobody is silent for longer than this."""
        out.append(Arm(Timer.BEAT, self.parameters.beat_us))
        slept = self.now_us - self._ticked_us > 3 * self.parameters.beat_us
        if slept and self._ticked_us:
            self._master_us = self.council.heard_us = self.now_us
        self._ticked_us = self.now_us
        inside = self.machine.state in INSIDE
        if self.council.rank and self.council.count > 1:
            self.council.greet(out)
            if inside and self.council.may_stand():
                self.council.stand(out)
        if not inside:
            if self.council.is_stranded():
                self.council.abandon()
            return
        if self.leads:
            self._master_us = self.council.heard_us = self.now_us
            self.chair.beat(out)
            self.chair.advertise(out)
        else:
            self._report(out, self.pressure())
            self._look_for_master()
        if self.council.count > 1 and (self.council.has_ended() or self.council.is_forgotten()):
            self.doom("most of the web's masters have forgotten it")
        self._forget(self.chair.stable if self.leads else 0)

    def _look_for_master(self) -> None:
        """A member that the master has left behind gives up; a replica waits for its council."""
        silent_us = self.now_us - self._master_us
        if self._another_web() and silent_us > self.parameters.detect_us:
            self.doom("the web has ended, and another goes on")
        elif silent_us > self.parameters.lost_us and not self.council.accepted:
            self.doom("the master is silent")

    def _another_web(self) -> bool:
        """Whether the master of another web was heard lately."""
        heard_us = self._foreign_us
        return heard_us is not None and self.now_us - heard_us < self.parameters.detect_us

    def be_supported(self, packet: Support) -> None:
        """[MTP 5.2] A majority supports us: we take over, and reject what is pending."""
        if self.council.supported(packet):
            try:
                self.chair.take_over(self.council.value)
            except BadPacket:
                self.doom("the council's value is not one")
                return
            self.follow(self.me, self.council.ballot)
