"""NAKs: what to request and from which member, what to send again, and what may be forgotten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from unisono.core import Effect, Send
from unisono.model import Address
from unisono.protocols.mtp.agreement import ACCEPTED, PENDING, REJECTED, Consumer
from unisono.protocols.mtp.clock import StepClock
from unisono.protocols.mtp.fail_stop import FailStop
from unisono.protocols.mtp.master import MasterWatch
from unisono.protocols.mtp.message_receiver import IncomingMessage, MessageReceiver
from unisono.protocols.mtp.message_sender import MessageSender
from unisono.protocols.mtp.ordering import Ordering
from unisono.protocols.mtp.pacing import Pacing
from unisono.protocols.mtp.packet_writer import NO_HEADER, PacketWriter
from unisono.protocols.mtp.packets import (
    RANGE_BYTES,
    WHOLE,
    Deny,
    Empty,
    Nak,
    PacketKind,
    Range,
    key_of,
)
from unisono.protocols.mtp.replicas import Replicas
from unisono.protocols.mtp.token_master import TokenMaster
from unisono.protocols.mtp.web import Web

NAKS_MAX: Final = 4
"""NAKs sent to one member at once; ranges that do not fit are requested later."""
LOOK_AHEAD: Final = 256
"""Messages from the first incomplete one on that are looked at for gaps."""


@dataclass(eq=False)
class Repair:
    """How this member has gaps filled, and fills those of others."""

    _own_address: Address
    _clock: StepClock
    _pace: Pacing
    _web: Web
    _master: MasterWatch
    _consumer: Consumer
    _ordering: Ordering
    _outbound: MessageSender
    _inbound: MessageReceiver
    _packets: PacketWriter
    _replicas: Replicas
    _tokens: TokenMaster
    _fail_stop: FailStop

    def __post_init__(self) -> None:
        self._ranges_max = (self._packets.body_bytes_max - 2) // RANGE_BYTES

    # -- our gaps ----------------------------------------------------------------------------------

    def request_missing(self, out: list[Effect]) -> None:
        """[MTP 3.3] Send NAKs for what is missing and due."""
        ordering = self._ordering
        first = ordering.complete_to()
        wanted: list[int] = []
        if self._replicas.waiting:
            wanted = ordering.accepted_in(self._replicas.owed_value())
            if wanted:
                ordering.know(max(wanted) + 1, True)
        if first >= ordering.known_next:
            return
        requests: dict[Address, list[Range]] = {}
        decides = self._replicas.leads and self._tokens.ready
        for number in range(first, min(ordering.known_next, first + LOOK_AHEAD)):
            self._look_at(number, number in wanted, decides, requests)
        for target, ranges in requests.items():
            self._send_naks(target, ranges, out)

    def _look_at(
        self, number: int, wanted: bool, decides: bool, requests: dict[Address, list[Range]]
    ) -> None:
        """Add what is due for this message to the requests."""
        ordering, inbound, now_us = self._ordering, self._inbound, self._clock.now_us
        status = ordering.status(number)
        late = status is PENDING and ordering.known_next - number > self._consumer.t
        unknown = late and not decides
        if status is REJECTED or (number in self._outbound.held and not unknown):
            return
        message = inbound.at(number)
        if message.whole and not unknown:
            return
        due = status is ACCEPTED or wanted or unknown
        if due and message.due_us < 0:
            # The data may still wait in another socket than the packet that revealed it.
            inbound.notice(message, now_us, 1)
        if message.due_us < 0 or message.due_us > now_us or inbound.is_coming(message, now_us):
            return
        ranges = inbound.missing(message, due, now_us)
        if unknown:
            ranges = [(number, WHOLE, WHOLE), *ranges]
        target = self._target(message, unknown)
        inbound.requested(message, now_us)
        if target is not None and ranges:
            requests.setdefault(target, []).extend(ranges)

    def _target(self, message: IncomingMessage, unknown: bool) -> Address | None:
        """The producer twice, then the master and its replicas, in turn."""
        # Deviates [MTP 3.3]: the master retains what it accepted until every member has it, and
        # answers where the producer is gone or denies; the paper asks the producer alone.
        origin = self._web.members.get(message.origin)
        targets: list[Address] = []
        if origin is not None and message.origin not in message.denied and not unknown:
            targets += [origin.address, origin.address]
        if self._master.member is not None and not self._replicas.leads:
            targets.append(self._master.member.address)
        if self._replicas.rank:
            targets += self._replicas.seats.addresses()
        targets = [address for address in targets if address != self._own_address]
        return targets[message.tries % len(targets)] if targets else None

    def _send_naks(self, target: Address, ranges: list[Range], out: list[Effect]) -> None:
        fit = self._ranges_max
        self._packets.count("nak", len(ranges))
        naks = [
            self._packets.seal(PacketKind.NAK, Nak(NO_HEADER, tuple(ranges[at : at + fit])))
            for at in range(0, min(len(ranges), fit * NAKS_MAX), fit)
        ]
        out.append(Send((target,), naks))

    def take_denial(self, packet: Deny, out: list[Effect]) -> None:
        """[MTP 3.3] A consumer that cannot do without the message rejoins."""
        sender, next_out = packet.header.sender, self._consumer.next_out
        for number in packet.numbers:
            message = self._inbound.incoming.get(number)
            if message is None or number < next_out:
                continue
            self._inbound.note_denial(message, sender)
            if number != next_out:
                continue
            if self._replicas.leads and sender in self._replicas.seats.member_keys():
                reason = f"message {number} cannot be had from the other masters any more"
                self._fail_stop.request(reason)
            elif sender == self._master.key and self._ordering.status(number) is PENDING:
                self._fail_stop.request(f"the status of message {number} cannot be had any more")

    # -- the gaps of others ------------------------------------------------------------------------

    def answer_nak(self, packet: Nak, out: list[Effect]) -> None:
        """Queue a repair, or deny it."""
        ordering = self._ordering
        denied: list[int] = []
        source = self._web.members.get(packet.header.sender)
        to = source.address if source is not None else self._clock.source
        for number, first, last in packet.ranges[: self._ranges_max]:  # As many as fit a packet.
            status = ordering.status(number)
            if status is REJECTED or (first == WHOLE and status is ACCEPTED):
                base = min(number + self._consumer.t, ordering.known_next)
                self._packets.send(PacketKind.EMPTY, Empty(NO_HEADER), (to,), out, base)
            elif number in self._outbound.held and first != WHOLE:
                self._outbound.repair(number, first, last, to, self._clock.now_us)
            elif number < self._consumer.next_out:
                denied.append(number)
        if denied:
            self._packets.count("deny", len(denied))
            self._packets.send(PacketKind.DENY, Deny(NO_HEADER, tuple(denied)), (to,), out)

    def take_empty(self, packet: Empty, out: list[Effect]) -> None:
        """[MTP 3.3] How much a token holder has sent; or, the master and what all members have."""
        ordering, number = self._ordering, packet.number
        if packet.master is not None:
            # The master speaks for itself; its joining may be news to us.
            is_itself = key_of(packet.master) == packet.header.sender
            if not (is_itself and self._master.can_reach(packet.ballot)):
                self._packets.drop("ballot")
                return
            self._master.follow(packet.master, packet.ballot)
            self.forget(packet.stable)
        if self._consumer.next_out <= number < ordering.known_next:
            if number not in self._outbound.held and ordering.status(number) is not REJECTED:
                origin, count, now_us = packet.header.sender, packet.packets, self._clock.now_us
                self._inbound.expect(number, origin, count, packet.ended, now_us)

    def forget(self, stable: int) -> None:
        """Drop messages that every member has, or that were retained long enough."""
        held = self._outbound.held
        if not held:
            return
        until_us = self._clock.now_us - self._pace.heartbeat_us * self._pace.retention
        first = self._consumer.next_out
        if self._replicas.rank and stable < first:
            first = stable
        for number in [n for n in held if n < first]:
            message = held[number]
            if message.sent_us <= until_us and message.sent == len(message.slices):
                self._outbound.drop(number)
