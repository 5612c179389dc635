"""The site process: composes the parts, routes events to the four machines, and gathers effects.

[RNG-20] Internal events come first, then timers, then packets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from unisono.core import (
    Answer,
    Captured,
    Cause,
    Congested,
    CoreConfig,
    Depart,
    Disarm,
    Effect,
    Event,
    Expired,
    Join,
    Leave,
    Multicast,
    Received,
    Request,
    Restart,
    Unreachable,
)
from unisono.fsa import Machine
from unisono.model import Address, Member
from unisono.parts.admission import Admission, Terms
from unisono.parts.codec import PacketCodec
from unisono.protocols.ring.agenda import Agenda
from unisono.protocols.ring.codes import KINDS, OF_SEND, OF_SEVERAL, T_RT, T_SEND, Code, Timer
from unisono.protocols.ring.coordinator import Coordinator
from unisono.protocols.ring.delivery import DeliveryQueue
from unisono.protocols.ring.election import Election
from unisono.protocols.ring.fault_detection import FaultDetection
from unisono.protocols.ring.figures import COORDINATOR, RECEIVE, REFORMATION, SEND
from unisono.protocols.ring.installation import Installation
from unisono.protocols.ring.leaving import Leaving
from unisono.protocols.ring.lifecycle import Lifecycle
from unisono.protocols.ring.ordering import Ordering
from unisono.protocols.ring.packet_builder import PacketBuilder
from unisono.protocols.ring.packets import (
    ALIKE_BYTES,
    PROTOCOL,
    Control,
    Delegate,
    MemberRecord,
    Packet,
    Rejection,
    RingPart,
    StatePiece,
    StateRequest,
    TurnPacket,
    code_of,
    count_of,
    read_packets,
)
from unisono.protocols.ring.parameters import DEFAULTS, Parameters
from unisono.protocols.ring.receiver import Receiver
from unisono.protocols.ring.reformation import Reformation
from unisono.protocols.ring.repair import Repair
from unisono.protocols.ring.requests import MembershipRequests
from unisono.protocols.ring.ring_search import RingSearch
from unisono.protocols.ring.send_queue import SendQueue
from unisono.protocols.ring.state import RingState
from unisono.protocols.ring.state_transfer import StateTransfer
from unisono.protocols.ring.states import CoordinatorState, ReceiveState
from unisono.protocols.ring.token import TokenPosition
from unisono.protocols.ring.token_passing import TokenPassing
from unisono.protocols.ring.token_policy import TokenPolicy
from unisono.protocols.ring.turn_reader import TurnReader
from unisono.requests import GoOn

STEPS_MAX: Final = 10_000
"""Internal events after one event of the world: more is a machine that never settles."""
_AT_REST: Final = CoordinatorState.INIT
_STOPPED: Final = ReceiveState.INIT


class Site:
    """A member of a ring: see the README beside this file for the paper."""

    def __init__(self, setting: CoreConfig) -> None:
        self.parameters = p = Parameters.of(setting.options)
        terms = Terms.of(setting, "ring", {**DEFAULTS, **setting.options})
        self.codec = codec = PacketCodec(PROTOCOL, KINDS, terms)
        self._admission = Admission(codec, terms)
        self.agenda = agenda = Agenda()
        self.lifecycle = end = Lifecycle()
        self.state = state = RingState(setting, p.sites, codec.drop)
        self.ordering = ordering = Ordering(state.key, setting.message_bytes_max, codec.drop)
        self.delivery = delivery = DeliveryQueue(state, ordering)
        self.send_queue = queue = SendQueue(setting, state.key, p.turn_packets)
        self.policy = policy = TokenPolicy(p.t_send_us, p.idle_us)
        self.token = token = TokenPosition(state, ordering)
        self.detection = detection = FaultDetection(state, agenda, p.detect_us, p.look_us)
        size = setting.packet_bytes_max
        self._builder = builder = PacketBuilder(codec, state, ordering, size)
        self.election = election = Election(p, state, agenda, end, ordering, delivery, builder)
        self.search = search = RingSearch(p, state, agenda, election, setting.seed)
        self.requests = requests = MembershipRequests(p, state, agenda, election, search, builder)
        self.repair = repair = Repair(p, state, agenda, ordering, queue, builder)
        self.transfer = transfer = StateTransfer(p, state, agenda, builder)
        self.leaving = leaving = Leaving(
            p, state, agenda, end, ordering, queue, delivery, builder, election, requests
        )
        self.installation = installation = Installation(
            state, agenda, end, self._admission, ordering, policy, queue, delivery, election,
            search, requests, repair, transfer,
        )  # fmt: skip
        self.reader = reader = TurnReader(
            state, agenda, end, ordering, token, policy, queue, delivery, builder,
            installation.show_ring,
        )  # fmt: skip
        self.passing = TokenPassing(
            p, state, agenda, ordering, token, policy, queue, delivery, builder, detection,
            requests, repair, reader,
        )  # fmt: skip
        self.receiver = receiver = Receiver(
            p, state, agenda, ordering, token, queue, builder, detection, election, requests,
            repair, reader, self.passing,
        )  # fmt: skip
        self.reform = Reformation(
            p, state, agenda, end, ordering, delivery, builder, election, search, repair,
            installation, leaving, receiver, transfer,
        )  # fmt: skip
        self.lead = Coordinator(
            p, state, agenda, end, ordering, delivery, builder, detection, election, search,
            requests, repair, installation, leaving,
        )  # fmt: skip
        self._walked: dict[str, int] = {}
        self.send = Machine(SEND, self.passing, walked=self._walked)
        self.receive = Machine(
            RECEIVE, receiver, repair, ordering, election, state, walked=self._walked
        )
        self.reformation = Machine(
            REFORMATION, self.reform, election, search, state, installation, receiver,
            walked=self._walked,
        )  # fmt: skip
        self.coordinator = Machine(COORDINATOR, self.lead, election, state, walked=self._walked)
        self._joined = self._over = False

    # -- the contract ----------------------------------------------------------------------------

    @property
    def me(self) -> Member:
        return self.state.me

    @property
    def counts(self) -> dict[str, int]:
        return self.codec.counts

    def send_credit(self) -> int:
        """None while the application takes no messages, which include its own, and none without a
        ring in force: it may exclude this member."""
        if self.lifecycle.leaving or self.delivery.congested:
            return 0
        if not self.state.memory or not self.state.in_force:
            return 0
        return self.send_queue.send_credit()

    def held(self) -> Mapping[Member, int]:
        return self.delivery.marks() | self.state.ring.marks(self.ordering.locals)

    def transition_counts(self) -> Mapping[str, int]:
        return self._walked

    def step(self, now_us: int, event: Event) -> list[Effect]:
        out: list[Effect] = []
        if self._over:
            return out
        agenda = self.agenda
        agenda.tick(now_us)
        kind = type(event)
        if kind is Received:
            if not self._receive(event, out):  # type: ignore[arg-type]
                return out
        elif kind is Expired:
            agenda.note_expired(event.timer)  # type: ignore[union-attr, arg-type]
            self._expire(event.timer, out)  # type: ignore[union-attr]
        else:
            self._obey(event, out)
        if agenda.pending:
            self._settle(out)
        self._conclude(out)
        return out

    # -- events of the application ---------------------------------------------------------------

    def _obey(self, event: Event, out: list[Effect]) -> None:
        if isinstance(event, Multicast):
            # Behind messages that wait on a busy ring there is nothing to do for it.
            queue = self.send_queue
            waits = self.state.in_force and queue.has_own() and not self.passing.wait_us()
            queue.add(event.messages, event.service)
            if not waits:
                self.agenda.push(Code.RB_DATA_RQU)
        elif isinstance(event, Join) and not self._joined:
            self._joined = True
            self.agenda.push(Code.E_INIT)
        elif isinstance(event, Restart):
            self.state.restore(event.stable)
        elif isinstance(event, Leave) and not self.lifecycle.leaving:
            self.leaving.leave(out)
        elif isinstance(event, Congested):
            self.delivery.hold_back(event.on)
        elif isinstance(event, Captured):
            self.transfer.keep(event)
        elif isinstance(event, Unreachable):
            self.detection.note_unreachable(event.address)
        elif isinstance(event, Request) and isinstance(event.what, GoOn):
            cause = None if self.state.let_go_on() else Cause.REFUSED
            out.append(Answer(GoOn.NAME, cause, key=event.key))

    # -- internal events -------------------------------------------------------------------------

    def _settle(self, out: list[Effect]) -> None:
        agenda = self.agenda
        for _ in range(STEPS_MAX):
            if not agenda.pending:
                return
            code, packet = agenda.pop()
            if code in OF_SEND:
                self.send.take(code, packet, out)
            elif code in OF_SEVERAL:
                self._signal_several(code, packet, out)
            else:
                self._route(code, packet, out)
        raise AssertionError("the machines never settle")

    def _signal_several(self, code: Code, packet: Any, out: list[Effect]) -> None:
        """A ring starts or stops, or is to be formed."""
        state = self.state
        if code is Code.E_REFEND or code is Code.E_REFSTART:
            if code is Code.E_REFSTART:
                state.suspend()
                self.detection.watch_ring()
            else:
                self.detection.detector.rest_all()
            self._take_receive(code, packet, out)
            self.send.take(code, packet, out)
        elif code is Code.E_COORDINATOR:
            if not state.is_normal:
                self.coordinator.take(code, packet, out)
        elif code is Code.E_ABORT_REF:
            again = code if state.was_in_force else Code.E_INIT
            self.reformation.take(again, packet, out)
        elif not state.is_normal:
            self.reformation.take(code, packet, out)

    # -- timers ----------------------------------------------------------------------------------

    def _expire(self, timer: Any, out: list[Effect]) -> None:
        self.detection.detector.look(self.agenda.now_us)
        if timer is T_SEND:
            self.send.take(timer, None, out)
        elif timer is Timer.LEAVE:
            self.leaving.insist(out)
        elif timer is Timer.REPAIR and self.transfer.is_waiting():
            self.transfer.request(out)
            self.repair.request(timer, out)
        elif timer is T_RT or (timer is Timer.REPAIR and self.state.in_force):
            self._take_receive(timer, None, out)
        elif timer is Timer.T_TS:
            self.coordinator.take(timer, None, out)
        else:
            self.reformation.take(timer, None, out)

    def _expire_overdue(self, out: list[Effect]) -> bool:
        """[RNG-20] Timers before packets. Whether there were any."""
        due = self.agenda.overdue()
        for timer in due:
            if self.agenda.disarm(timer, out):
                self._expire(timer, out)
                self._settle(out)
        return bool(due)

    # -- packets ---------------------------------------------------------------------------------

    def _receive(self, event: Received, out: list[Effect]) -> bool:
        """A burst; whether anything but packets from the middle of a turn happened."""
        state, ordering, agenda = self.state, self.ordering, self.agenda
        news = agenda.due_us <= agenda.now_us and self._expire_overdue(out)
        for opened in self.codec.admit_batch(event.packets, ALIKE_BYTES):
            for packet in read_packets(opened, self.codec.drop):
                if (
                    type(packet) is TurnPacket
                    and packet.of > 1
                    and state.in_force
                    and not self.detection.is_waiting
                    and ordering.extends_turn(packet)
                ):
                    continue
                news = True
                self._take(packet, out)
                if agenda.pending:
                    self._settle(out)
        if self.codec.odd:
            news = True
            self._check_terms(event.source, out)
        return news

    def _take(self, packet: Packet, out: list[Effect]) -> None:
        """A turn or a control packet is neither refused by what it holds nor taken outside the
        machines; nearly all packets are one of them."""
        state, header = self.state, packet.header
        if self.lifecycle.released:
            return
        if header.sender == state.key:
            self.codec.drop("own", count_of(packet))
            return
        if header.version.number > state.seen and not state.note_seen(header.version.number):
            self.codec.drop("version", count_of(packet))
            return
        kind = type(packet)
        is_usual = kind is TurnPacket or kind is Control
        if not is_usual and not self._is_acceptable(packet):
            return
        if state.in_force:
            if header.version == state.ring.version:
                self.receiver.note_sender(packet, out)
        else:
            self.detection.detector.hear(header.sender, self.agenda.now_us)
        if is_usual or not self._take_special(packet, out):
            self._route(code_of(packet), packet, out)

    def _is_acceptable(self, packet: Packet) -> bool:
        """Rejections, and records of earlier incarnations, go no further."""
        state = self.state
        if isinstance(packet, Rejection):
            self.reform.note_rejection(packet)
            return False
        if isinstance(packet, MemberRecord):
            if not state.note_seen(max(packet.attempt, packet.seen)):
                self.codec.drop("version")
                return False
            if packet.header.sender == self.election.distrusted:
                self.codec.drop("distrusted")
                return False
            if state.is_former(packet.member):
                self.codec.drop("former")
                return False
        return True

    def _take_special(self, packet: Packet, out: list[Effect]) -> bool:
        """Packets that do not depend on the phase; whether it was one."""
        if isinstance(packet, StateRequest):
            self.transfer.answer(packet, out)
        elif isinstance(packet, StatePiece):
            self.transfer.take(packet, out)
        elif isinstance(packet, Delegate):
            self.send.take(Code.DATA_BC_RQU, packet, out)
        else:
            if isinstance(packet, RingPart):
                self.reform.gather(packet)
            return False
        return True

    def _route(self, code: Code, packet: Any, out: list[Effect]) -> None:
        """To the machine of the phase."""
        if self.coordinator.state is not _AT_REST:
            self.coordinator.take(code, packet, out)
        elif self.state.receiving:
            self._take_receive(code, packet, out)
        else:
            self.reformation.take(code, packet, out)

    def _take_receive(self, on: Any, packet: Any, out: list[Effect]) -> None:
        self.receive.take(on, packet, out)
        receiving = self.receive.state is not _STOPPED
        if receiving is not self.state.receiving:
            self.state.receive(receiving)

    def _check_terms(self, source: Address, out: list[Effect]) -> None:
        """A member with other options wants to be in the group, or is in it."""
        size = len(self.state.ring.seats) if self.delivery.has_view else 0
        if reason := self._admission.look(source, self.agenda.now_us, size, out):
            self.lifecycle.fail(reason, Cause.REFUSED)

    # -- the end of a step -----------------------------------------------------------------------

    def _conclude(self, out: list[Effect]) -> None:
        if self.state.in_force and self.ordering.is_unsettled:
            self.ordering.settle()
        self.send_queue.settle(self.ordering.safe)
        self.delivery.deliver(out)
        end = self.lifecycle
        if end.leaving and not end.released:
            self.leaving.quit(out)
        if end.verdict is not None:
            self._end(end.verdict, out)
        elif end.released and not self.delivery.congested:
            self._end(Depart(end.successor), out)

    def _end(self, effect: Effect, out: list[Effect]) -> None:
        self._over = True
        out.extend(Disarm(timer) for timer in self.agenda.deadlines)
        out.append(effect)
