"""NAKs: what to ask for and whom, what to send again, and what may be forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unisono.core import Effect, Send
from unisono.model import Address
from unisono.protocols.mtp.agreement import ACCEPTED, PENDING, REJECTED
from unisono.protocols.mtp.packets import (
    HEADER_BYTES,
    RANGE_BYTES,
    WHOLE,
    Deny,
    Empty,
    Nak,
    PacketKind,
    Range,
)
from unisono.protocols.mtp.replicas import NO_HEADER
from unisono.protocols.mtp.transport import IncomingMessage
from unisono.wire import ENVELOPE_BYTES

if TYPE_CHECKING:
    from unisono.protocols.mtp.core import Mtp


NAKS_MAX: Final = 4
"""Packets in which one member is asked at once; what they have no room for is asked for later."""


class Repair:
    """How this member has gaps filled, and fills those of others."""

    def __init__(self, core: Mtp) -> None:
        self._core = core

    def ask(self, out: list[Effect]) -> None:
        """[MTP 3.3] Ask for what is missing and due."""
        core = self._core
        first, t = core.receiver.here(), core.consumer.t
        asks: dict[Address, list[Range]] = {}
        wanted = core.receiver.accepted_in(core.replicas.owed_value())
        if wanted:
            core.know(max(wanted) + 1)
        if first >= core.known_next:
            return
        for number in range(first, min(core.known_next, first + 256)):
            status = core.receiver.status(number)
            unknown = status is PENDING and core.known_next - number > t
            unknown = unknown and (not core.leads or not core.coordinator.ready)
            if status is REJECTED or (number in core.outbound.held and not unknown):
                continue
            message = core.inbound.at(number)
            if message.whole and not unknown:
                continue
            accepted = status is ACCEPTED or number in wanted
            if (accepted or unknown) and message.due_us < 0:
                # The data may be on its way by another socket than what told us of it.
                core.inbound.notice(message, core.now_us, 1)
            if message.due_us < 0 or message.due_us > core.now_us:
                continue
            if core.inbound.is_coming(message, core.now_us):
                continue
            ranges = core.inbound.missing(message, accepted or unknown, core.now_us)
            if unknown:
                ranges = [(number, WHOLE, WHOLE), *ranges]
            target = self._target(message, unknown)
            core.inbound.asked(message, core.now_us)
            if target is not None and ranges:
                asks.setdefault(target, []).extend(ranges)
        fit = (core.packet_bytes_max - ENVELOPE_BYTES - HEADER_BYTES - 2) // RANGE_BYTES
        for target, ranges in asks.items():
            core.codec.count("nak", len(ranges))
            bodies = (
                Nak(NO_HEADER, tuple(ranges[at : at + fit])).body(core.header_bytes())
                for at in range(0, min(len(ranges), fit * NAKS_MAX), fit)
            )
            out.append(Send((target,), [core.codec.seal(PacketKind.NAK, body) for body in bodies]))

    def _target(self, message: IncomingMessage, unknown: bool) -> Address | None:
        """Whom to ask: the producer, and when that does not help, the master or its replicas."""
        core = self._core
        # Deviates [MTP 3.3]: the master retains what it accepted until every member has it, and
        # answers where the producer is gone or denies; the paper asks the producer alone.
        origin = core.web.members.get(message.origin)
        targets: list[Address] = []
        if origin is not None and message.origin not in message.denied and not unknown:
            targets += [origin.address, origin.address]
        if core.master is not None and not core.leads:
            targets.append(core.master.address)
        if core.replicas.rank:
            targets += core.replicas.addresses()
        targets = [address for address in targets if address != core.me.address]
        return targets[message.tries % len(targets)] if targets else None

    def repair(self, packet: Nak, out: list[Effect]) -> None:
        """Answer a NAK: again, or that we cannot."""
        core = self._core
        denied: list[int] = []
        source = core.web.members.get(packet.header.sender)
        to = source.address if source is not None else core.source
        for number, first, last in packet.ranges:
            status = core.receiver.status(number)
            if status is REJECTED or (first == WHOLE and status is ACCEPTED):
                base = min(number + core.consumer.t, core.known_next)
                body = Empty(NO_HEADER).body(core.header_bytes(base))
                out.append(Send((to,), [core.codec.seal(PacketKind.EMPTY, body)]))
            elif number in core.outbound.held and first != WHOLE:
                core.outbound.asked(number, first, last, to, core.now_us)
            elif number < core.consumer.next_out:
                denied.append(number)
        if denied:
            core.codec.count("deny", len(denied))
            body = Deny(NO_HEADER, tuple(denied)).body(core.header_bytes())
            out.append(Send((to,), [core.codec.seal(PacketKind.DENY, body)]))

    def denied(self, packet: Deny) -> None:
        """[MTP 3.3] A consumer that cannot do without it rejoins."""
        core = self._core
        sender = packet.header.sender
        for number in packet.numbers:
            message = core.inbound.incoming.get(number)
            if message is None or number < core.consumer.next_out:
                continue
            message.denied.add(sender)
            if number != core.consumer.next_out:
                continue
            if core.leads and sender in core.replicas.others():
                core.doom(f"message {number} cannot be had from the other masters any more")
            elif sender == core.master_key:
                if core.receiver.status(number) is PENDING:
                    core.doom(f"the status of message {number} cannot be had any more")

    def forget(self, stable: int) -> None:
        """Drop what everybody has and what was kept long enough."""
        core = self._core
        keep_us = core.pace.heartbeat_us * core.pace.retention
        keeps_all = bool(core.replicas.rank)
        for number in list(core.outbound.held):
            held = core.outbound.held[number]
            old = core.now_us - held.sent_us >= keep_us and held.sent == len(held.slices)
            settled = number < core.consumer.next_out
            if settled and old and (number < stable or not keeps_all):
                core.outbound.drop(number)
