"""Figure 3 at work: takes data, learns statuses, and delivers in the order of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Final

from unisono.core import Cause, Deliver, Effect, Install
from unisono.errors import BadPacket
from unisono.model import Buffer, Message, Service
from unisono.parts.message_runs import MessageRun, MessageRuns
from unisono.protocols.mtp.agreement import ACCEPTED, PENDING, REJECTED, MessageStatus, Next
from unisono.protocols.mtp.agreement import DataStatus as Whereabouts
from unisono.protocols.mtp.batch import (
    Content,
    MembershipChange,
    MessageBatch,
    MixedBatch,
    Said,
    read_content,
)
from unisono.protocols.mtp.decision import machine_of
from unisono.protocols.mtp.figure import CATCHING_UP, INSIDE, LEAVING
from unisono.protocols.mtp.membership import ROSTER
from unisono.protocols.mtp.packets import Data, Empty, key_of
from unisono.protocols.mtp.transport import AHEAD_COUNT_MAX, Held

if TYPE_CHECKING:
    from unisono.protocols.mtp.core import Mtp

HISTORY_MAX: Final = 65_536
"""Statuses of delivered messages that are remembered for those who ask."""

DELIVER_COUNT_MAX: Final = 4096
"""Messages that one step delivers, before the application may say that it is full."""
SPOOL_BYTES_MAX: Final = 64 << 20
"""A joiner that waits for the state takes on so much of what is said; then the web waits for it."""
SERVICES: Final = {int(service): service for service in Service}
"""An enumeration looks its members up far more slowly."""

_message = partial(tuple.__new__, Message)


class Receiver:
    """The consumer of one member."""

    def __init__(self, core: Mtp) -> None:
        self._core = core
        self._history: dict[int, MessageStatus] = {}
        self._here = 1
        self.more = False
        """This step has delivered enough; the rest follows in the next."""

    def take(self, packet: Data) -> None:
        """A packet (m, p)."""
        core = self._core
        number = packet.number
        if number < core.consumer.next_out or self.status(number) is REJECTED:
            core.codec.drop("late", len(packet.pieces))
            return
        if number >= core.consumer.next_out + AHEAD_COUNT_MAX or number in core.outbound.held:
            reason = "window" if number not in core.outbound.held else "duplicate"
            core.codec.drop(reason, len(packet.pieces))
            return
        core.know(number + 1)
        if core.machine.state is CATCHING_UP:
            # It is kept for long, and must not keep the buffer that it came in with the state.
            packet = packet._replace(pieces=list(map(bytes, packet.pieces)))
        whole = core.inbound.take(packet, core.now_us)
        if whole is not None and core.replicas.rank:
            slices = whole.slices()
            held = Held(whole.origin, number, slices, len(slices), core.now_us)
            core.outbound.hold(held)

    def hear_empty(self, packet: Empty) -> None:
        """[MTP 3.3] How far a token holder is; or the master's word."""
        core = self._core
        if packet.master is not None:
            core.follow(packet.master, packet.ballot)
            core.repair.forget(packet.stable)
        number = packet.number
        if number >= core.consumer.next_out and number < core.known_next:
            if number not in core.outbound.held and self.status(number) is not REJECTED:
                origin, count = packet.header.sender, packet.packets
                core.inbound.hear_of(number, origin, count, packet.ended, core.now_us)

    def status(self, number: int) -> MessageStatus:
        core = self._core
        found = core.consumer.status.get(number)
        return found if found is not None else self._history.get(number, PENDING)

    def here(self) -> int:
        """Settled and here is all below this number."""
        core = self._core
        number, known = max(self._here, core.consumer.next_out), core.known_next
        while number < known:
            status = self.status(number)
            if status is PENDING or (
                status is ACCEPTED and self._whereabouts(number) is not Whereabouts.HERE
            ):
                break
            number += 1
        self._here = number
        return number

    def taken(self) -> int:
        """The master need not keep what is below this number for us: it is delivered or skipped, or
        held until the state has come, so that the web need not wait for that."""
        core = self._core
        if core.machine.state is CATCHING_UP and core.inbound.octets < SPOOL_BYTES_MAX:
            return self.here()
        return core.consumer.next_out

    def slices_of(self, number: int) -> list[Buffer] | None:
        """The message's data, if it is all here."""
        core = self._core
        held = core.outbound.held.get(number)
        if held is not None:
            return held.slices
        message = core.inbound.incoming.get(number)
        return message.slices() if message is not None and message.whole else None

    def _whereabouts(self, number: int) -> Whereabouts:
        core = self._core
        if number in core.outbound.held:
            return Whereabouts.HERE
        message = core.inbound.incoming.get(number)
        if message is None:
            return Whereabouts.COMING
        if message.whole:
            return Whereabouts.HERE
        lost = core.master_key in message.denied
        return Whereabouts.LOST if lost else Whereabouts.COMING

    def deliver(self, out: list[Effect]) -> None:
        core = self._core
        if core.congested or core.machine.state is CATCHING_UP:
            return
        if core.verdict is not None or core.membership.gone() or self.more:
            return
        heard: list[Sequence[Message]] = []
        count = 0
        while not self.more:
            number = core.consumer.next_out
            due = core.consumer.due(self._whereabouts)
            if due is Next.SKIP:
                self._step_on(number, REJECTED)
                core.outbound.drop(number)
            elif due is Next.DELIVER:
                origin = self._origin(number)
                content = self._content(number)
                self._step_on(number, ACCEPTED)
                if isinstance(content, MessageBatch | MixedBatch):
                    self._append(origin, content, heard)
                    count += content.count
                    self.more = count >= DELIVER_COUNT_MAX
                elif isinstance(content, MembershipChange):
                    out += map(Deliver, heard)
                    heard, count = [], 0
                    if not self._change(number, content, out):
                        break
            else:
                # Deviates [MTP 3.4]: who missed a status asks the master for it, and gives up when
                # that is denied; Figure 3 rejoins at once, also for a packet that is only late.
                if due is Next.REJOIN and self.status(number) is ACCEPTED:
                    core.doom(f"message {number} was accepted and cannot be had")
                break
        out += map(Deliver, heard)

    def _content(self, number: int) -> Content | None:
        core = self._core
        held = core.outbound.held.get(number)
        if held is not None and held.content is not None:
            return held.content
        slices = self.slices_of(number)
        assert slices is not None
        size = len(slices[0])
        core.inbound.drop(number)  # So that its packets go as they are read.
        try:
            content = read_content(slices)
        except BadPacket as bad:
            core.codec.drop(bad.reason)
            return None
        if held is not None and not slices[0]:
            held.slices, held.content = content.slices(size), content
        return content

    def _step_on(self, number: int, status: MessageStatus) -> None:
        core = self._core
        self._history[number] = status
        if len(self._history) > HISTORY_MAX:
            del self._history[next(iter(self._history))]
        core.consumer.step_on()
        core.inbound.drop(number)
        core.quiet = 0

    def _origin(self, number: int) -> int:
        core = self._core
        held = core.outbound.held.get(number)
        if held is not None:
            return held.origin
        message = core.inbound.incoming.get(number)
        return message.origin if message is not None else 0

    def _append(self, origin: int, batch: Said, heard: list[Sequence[Message]]) -> None:
        core = self._core
        web = core.web
        sender = web.members.get(origin)
        count = batch.count
        if sender is None or not count:
            if count:
                core.codec.drop("stranger")
            return
        view, place, n = web.view, web.place + 1, batch.first
        web.place += count
        web.upto[origin] = n + count - 1
        if isinstance(batch, MixedBatch):
            levels = map(SERVICES.__getitem__, batch.services)
            numbers, places = range(n, n + count), range(place, place + count)
            rows = zip(repeat(sender), batch.payloads, numbers, repeat(view), places, levels)
            heard.append(list(map(_message, rows)))
            return
        spans: list[MessageRun] = []
        for times, length, service, octets, start in batch.groups:
            level = SERVICES[service]
            spans.append(MessageRun(sender, octets, start, length, times, n, view, place, level))
            place += times
            n += times
        heard.append(MessageRuns(spans))

    def _change(self, number: int, change: MembershipChange, out: list[Effect]) -> bool:
        """[MTP 5.3] The members change at this place. False when that is the end of us."""
        core = self._core
        gone = {each.key: each.left for each in change.gone}
        if core.key in gone or change.ends:
            mine = gone.get(core.key) or (change.ends and core.leads)
            if core.machine.state is LEAVING and mine:
                core.membership.ended(number, change.ends)
                if core.leads:
                    core.web.apply(core.codec.life, number, change)
                    core.coordinator.admission.note(number, change)
                    core.coordinator.admission.changed(number, change, out)
                return False
            core.doom(
                "the master ended the web"
                if change.ends
                else "the master holds this member for failed",
                Cause.STOPPED if change.ends else Cause.EXCLUDED,
            )
            return False
        before = core.web.members.copy()
        view = core.web.apply(core.codec.life, number, change)
        for key in before.keys() - core.web.members.keys():
            core.membership.forget(key)
        if core.web.members != before:
            out.append(Install(view))
        if core.replicas.rank:
            core.replicas.note(gone)
            core.coordinator.admission.note(number, change)
            for member, _ in change.joined:
                core.membership.offer(key_of(member), ROSTER, core.web.roster())
        if core.leads:
            core.coordinator.admission.changed(number, change, out)
        return True

    def accepted_in(self, value: bytes) -> list[int]:
        """The messages that a value accepts and we have not delivered."""
        core = self._core
        if not value:
            return []
        try:
            machine = machine_of(value, core.parameters.tokens)
        except BadPacket:
            return []
        first = core.consumer.next_out
        return [n for n, its in machine.status.items() if its is ACCEPTED and n >= first]

    def holds(self, value: bytes) -> bool:
        """Whether a cohort has the data of all that a value accepts; who is no consumer yet is
        only a witness."""
        core = self._core
        if core.machine.state not in INSIDE:
            return True
        return all(self.slices_of(number) is not None for number in self.accepted_in(value))
