"""The site process: takes events, lets the four machines at them, and gathers what follows.

[RNG-20] Internal events come first, then timers, then packets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from unisono.core import (
    GO_ON,
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
    Fail,
    Join,
    Leave,
    Multicast,
    Received,
    Request,
    Restart,
    Unreachable,
)
from unisono.fsa import Machine
from unisono.model import Member
from unisono.protocols.ring.codes import E_ACK, OF_SEND, OF_SEVERAL, T_RT, T_SEND, Code, Timer
from unisono.protocols.ring.delivery import DeliveryQueue
from unisono.protocols.ring.figures import COORDINATOR, RECEIVE, REFORMATION, SEND
from unisono.protocols.ring.leading import Leading
from unisono.protocols.ring.membership import Membership
from unisono.protocols.ring.packet_builder import PacketBuilder
from unisono.protocols.ring.packets import (
    ALIKE_BYTES,
    NO_VERSION,
    Delegate,
    Flag,
    Header,
    MemberRecord,
    Packet,
    Rejection,
    RingPart,
    StatePiece,
    StateRequest,
    TurnPacket,
    code_of,
    count_of,
    heard,
)
from unisono.protocols.ring.repair import Repair
from unisono.protocols.ring.ring import Ring
from unisono.protocols.ring.send_queue import SendQueue
from unisono.protocols.ring.states import CoordinatorState, ReceiveState, ReformationState
from unisono.protocols.ring.token import TokenWork
from unisono.protocols.ring.turn import Turn

STEPS_MAX: Final = 10_000
"""Internal events after one of the world's: more is a machine that never settles."""
BEFORE_MAX: Final = 8


class Site(PacketBuilder):
    """A member of a ring: see the README beside this file for the paper."""

    def __init__(self, setting: CoreConfig) -> None:
        super().__init__(setting)
        self.send_queue = SendQueue(setting, self.key, self.parameters.turn_packets)
        self.delivery = DeliveryQueue(setting.me)
        self.token = TokenWork(self)
        self.repair = Repair(self)
        self.reform = Leading(self)
        self.membership = Membership(self, setting.seed, setting.with_state)
        self.send = Machine(SEND, self)
        self.receive = Machine(RECEIVE, self)
        self.coordinator = Machine(COORDINATOR, self)
        self.reformation = Machine(REFORMATION, self)
        self.before: tuple[Ring, ...] = ()
        """Those accepted before it since the last that is known to have been in force."""
        self.in_force = False
        """It is, and we work by it."""
        self.was_in_force = False
        """It has been."""
        self.memory = False
        """We have what was said on it."""
        self.congested = self.leaving = self.released = False
        self.taken = 0
        """Turns that were read."""
        self._taking: Header | None = None
        """Of the packets last taken, while their turn is coming in. Those of one turn that begin
        alike have the same."""
        self.verdict: Fail | None = None
        self._over = self._joined = False
        self._internal: list[tuple[Code, Any]] = []

    # -- the contract ------------------------------------------------------------------------------

    @property
    def counts(self) -> dict[str, int]:
        return self.codec.counts

    def send_credit(self) -> int:
        """While the application cannot take more, it may not say more: it would hear it too. Nor
        while there is no ring: nobody knows whether one will come that we are on."""
        if self.leaving or self.congested or not self.memory or not self.in_force:
            return 0
        return self.send_queue.send_credit()

    def held(self) -> Mapping[Member, int]:
        return self.delivery.marks() | self.ring.marks(self.ordering.locals)

    def transition_counts(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for machine in (self.send, self.receive, self.coordinator, self.reformation):
            for name, count in machine.walked.items():
                found[f"{machine.figure.name}: {name}"] = count
        return found

    def step(self, now_us: int, event: Event) -> list[Effect]:
        out: list[Effect] = []
        if self._over:
            return out
        self.now_us = now_us
        if isinstance(event, Received):
            due_us = min(self.deadlines.values(), default=now_us + 1)
            news = due_us <= now_us and self._expire_overdue(out)
            for opened in self.codec.admit_batch(event.packets, ALIKE_BYTES):
                for packet in heard(opened, self.codec.drop):
                    if self._taking is None or not self._goes_on(packet):
                        news = True
                        self._hear(packet, out)
                        if self._internal:
                            self._settle(out)
            if self.codec.odd:
                news = True
                self.membership.look(event.source, out)
            if not news:
                return out
        elif isinstance(event, Expired):
            self.deadlines.pop(event.timer, None)  # type: ignore[call-overload]
            self._expire(event.timer, out)
        else:
            self._obey(event, out)
        self._settle(out)
        self._conclude(out)
        return out

    def _obey(self, event: Event, out: list[Effect]) -> None:
        """What the application wants."""
        if isinstance(event, Multicast):
            # Behind what waits on a busy ring it waits too, and nobody needs to be told.
            waits = self.in_force and self.send_queue.has_own() and not self.token.wait_us()
            self.send_queue.say(event.messages, event.service)
            if not waits:
                self.push(Code.RB_DATA_RQU)
        elif isinstance(event, Join) and not self._joined:
            self._joined = True
            self.push(Code.E_INIT)
        elif isinstance(event, Restart):
            self.remember(event.stable)
        elif isinstance(event, Leave) and not self.leaving:
            self.membership.leave(out)
        elif isinstance(event, Congested):
            self.congested = event.on
        elif isinstance(event, Captured):
            self.membership.keep_state(event)
        elif isinstance(event, Unreachable):
            self.doubt(event.address)
        elif isinstance(event, Request) and event.what == GO_ON:
            # [RNG-13] The majority condition is changed for the part we are in.
            self.reform.override = not self.is_normal()
            out.append(Answer(GO_ON, None if self.reform.override else Cause.REFUSED))

    # -- events ------------------------------------------------------------------------------------

    def push(self, code: Code, packet: Any = None) -> None:
        """What one machine tells another; told before anything else happens."""
        # Deviates [RNG Event stack]: first in, first out. A stack would tell a machine to begin
        # before the others were told to stop.
        self._internal.append((code, packet))

    def _settle(self, out: list[Effect]) -> None:
        for _ in range(STEPS_MAX):
            if not self._internal:
                return
            code, packet = self._internal.pop(0)
            self._route(code, packet, out)
        raise AssertionError("the machines never settle")

    def _route(self, code: Code, packet: Any, out: list[Effect]) -> None:
        """The machine whose event it is."""
        if code in OF_SEND:
            self.send.take(code, packet, out)
        elif code in OF_SEVERAL:
            self._tell_several(code, packet, out)
        elif self.coordinator.state is not _AT_REST:
            self.coordinator.take(code, packet, out)
        elif self.receive.state is not _DEAF:
            self.receive.take(code, packet, out)
        else:
            self.reformation.take(code, packet, out)

    def _tell_several(self, code: Code, packet: Any, out: list[Effect]) -> None:
        """A ring begins or ends to work, or is to be formed."""
        if code is Code.E_REFEND or code is Code.E_REFSTART:
            if code is Code.E_REFSTART:
                self.in_force, self._taking = False, None
            self.watch_ring(code is Code.E_REFSTART)
            self.receive.take(code, packet, out)
            self.send.take(code, packet, out)
        elif code is Code.E_COORDINATOR:
            if not self.is_normal():
                self.coordinator.take(code, packet, out)
        elif code is Code.E_ABORT_REF:
            if self.was_in_force:
                self.reformation.take(code, packet, out)
            else:
                self.reformation.take(Code.E_INIT, packet, out)
        elif not self.is_normal():
            self.reformation.take(code, packet, out)

    def is_normal(self) -> bool:
        return self.in_force and self.receive.state is not _DEAF

    def reformation_waits(self) -> bool:
        quiet = self.coordinator.state is CoordinatorState.INIT and not self.is_normal()
        return quiet and self.reformation.state is ReformationState.INIT

    def _expire_overdue(self, out: list[Effect]) -> bool:
        """[RNG-20] Timers before packets. Whether there were any."""
        due = self.overdue()
        for timer in due:
            if self.disarm(timer, out):
                self._expire(timer, out)
                self._settle(out)
        return bool(due)

    def _expire(self, timer: Any, out: list[Effect]) -> None:
        self.detector.look(self.now_us)
        if timer is T_SEND:
            self.send.take(timer, None, out)
        elif timer is Timer.LEAVE:
            self.membership.insist(out)
        elif timer is Timer.REPAIR and self.membership.waits_for_state():
            self.membership.ask_state(out)
            self.repair.ask(out)
        elif timer is T_RT or (timer is Timer.REPAIR and self.in_force):
            self.receive.take(timer, None, out)
        elif timer is Timer.T_TS:
            self.coordinator.take(timer, None, out)
        else:
            self.reformation.take(timer, None, out)

    def _goes_on(self, packet: Packet) -> bool:
        """Packets from the middle of a turn, like those just taken, tell nothing but what they
        carry: nothing that a machine asks for has changed. They are kept, and that is all."""
        return (
            packet.header is self._taking
            and isinstance(packet, TurnPacket)
            and self.in_force
            and not self.token.tries
            and self.ordering.extends_turn(packet)
        )

    def _hear(self, packet: Packet, out: list[Effect]) -> None:
        """A packet, after what every packet tells."""
        if self.released:
            return
        header = packet.header
        if header.sender == self.key:
            self.codec.drop("own", count_of(packet))
            return
        if header.version.number > self.seen:
            self.seen = header.version.number
        if isinstance(packet, MemberRecord):
            self.seen = max(self.seen, packet.attempt, packet.seen)
            if self.is_former(packet.member):
                self.codec.drop("former")
                return
        elif isinstance(packet, Rejection):
            self.reform.told(packet)
            return
        if header.version == self.ring.version and self.in_force:
            self.token.hear_from(packet, out)
        elif not self.in_force:
            self.detector.hear(header.sender, self.now_us)
        if isinstance(packet, RingPart):
            self.reform.gather(packet)
        if isinstance(packet, StateRequest):
            self.membership.give_state(packet, out)
        elif isinstance(packet, StatePiece):
            self.membership.take_state(packet, out)
        elif isinstance(packet, Delegate):
            self.send.take(Code.DATA_BC_RQU, packet, out)
        else:
            self._route(code_of(packet), packet, out)

    # -- turns -------------------------------------------------------------------------------------

    def take(self, packet: TurnPacket, out: list[Effect]) -> None:
        """Packets of a turn, from its holder or again from another."""
        ring, s = self.ring, packet.header.s
        at = s % len(ring.seats)
        holder = ring.keys[at] if packet.again else packet.header.sender
        if not packet.again and ring.index.get(holder) != at:
            self.codec.drop("turn", count_of(packet))
            return
        if s > self.ordering.highest and not packet.flags & Flag.EARLY:
            self.repair.reveal(packet.header.sender)
        coming = self.ordering.take(packet, holder)
        self._taking = packet.header if coming and not packet.again else None
        if self.taken != self.ordering.S:
            self.advance(out)
        else:
            self.repair.look_again(out)
            if self.token.comes_here():
                self.push(Code.E_AWAITED)

    def advance(self, out: list[Effect]) -> None:
        """Read what is in order now."""
        ordering, window = self.ordering, self.ordering.window
        if self.taken == window.received:
            return
        ours = True
        if not self.was_in_force and self.taken < window.received:
            self._show_ring()  # Who said this was on the ring, and so it was in force.
        while self.taken < window.received:
            self.taken += 1
            turn = window.get(self.taken)
            assert turn is not None
            self.token.note(turn)
            if turn.content:
                self._read(turn)
            if turn.holder != self.key:
                ours = False
                self.send_queue.pace.heard(turn.count)
                mine = self.send_queue.heard(ordering.locals.get(self.key, 0), turn.s)
                if self.in_force and (mine or turn.flags & Flag.ACK):
                    self.token.acknowledge(turn, mine, out)
        if self.in_force and (not ours or len(self.ring.seats) == 1):
            self.push(E_ACK)

    def _read(self, turn: Turn) -> None:
        """What it says goes to the application."""
        told = self.ordering.hear(turn)
        if self.ordering.is_broken:
            self.doom("a message is larger than message_bytes_max allows here")
        if told.spans:
            self.token.spoke(told.spans[-1].sender)
            self.delivery.hear(told)

    def restart_reading(self) -> None:
        self.taken = self.ordering.S

    # -- rings -------------------------------------------------------------------------------------

    def accept(self, ring: Ring, out: list[Effect]) -> None:
        """[RNG Phase-2] The ring is ours, though it is not in force yet."""
        if self.ring.seats:
            before = (*self.before, self.ring)
            self.before = (before[0], *before[1:][1 - BEFORE_MAX :])
        founding = len(ring.chain) == 1
        self.ring = ring
        self.in_force = self.was_in_force = False
        names = {member.name for each in (*self.before, ring) for member in each.members}
        self.keep(out, version=ring.version, names=tuple(sorted(names)), trunk=ring.trunk)
        if not self.memory:
            self.ordering.start_anew()
        if not self.memory or not self.delivery.has_view:
            self.delivery.begin_again()
        self.ordering.enter(ring)
        self.taken = self.ordering.S
        self.send_queue.new_ring(len(ring.seats))
        self.token.new_ring()
        self.repair.forget()
        self.membership.forget_state()
        self.memory = self.memory or founding

    def forget_ring(self) -> None:
        """As if we had never accepted one."""
        self.ring, self.before = Ring(), ()
        self.record = self.record._replace(version=NO_VERSION, names=(), trunk=NO_VERSION)
        self.memory = self.was_in_force = False
        self.ordering.start_anew()
        self.restart_reading()
        self.delivery.begin_again()

    def install(self, out: list[Effect]) -> None:
        """[RESUME] The ring is in force: the application hears of it."""
        if not self.was_in_force:
            self._show_ring()
            names = tuple(member.name for member in self.ring.members)
            self.keep(out, names=names, votes=self.record.votes or self.memory)
        self.in_force = True
        self.reform.calm(out)
        self.reform.override = False
        self.reform.suspects.clear()
        self.disarm(Timer.T_REF_RT, out)
        if self.my_seat() is None:
            self.in_force = False
            self.released = True
            return
        self.membership.new_ring(out)

    def _show_ring(self) -> None:
        """[RNG-16] What was said before is committed, and the application hears of the ring."""
        # Deviates [RNG Phase-2]: the old messages are committed here, where the ring is known to be
        # in force, and not when it is received: until then another may be formed instead.
        self.was_in_force = True
        before, self.before = self.before, ()
        seat = self.my_seat()
        self.memory = self.memory or seat is None or not seat.waits
        self.ordering.safe = max(self.ordering.safe, self.ring.base)
        if seat is not None:
            self.delivery.change(self.ring, self.membership.is_giver(), before)

    # -- what follows from a burst -----------------------------------------------------------------

    def _conclude(self, out: list[Effect]) -> None:
        ordering = self.ordering
        if self.in_force:
            ordering.settle()
        self.send_queue.settle(ordering.safe)
        if not self.congested and self.memory and self.delivery.has_view:
            self.delivery.pump(ordering, out)
        if self.leaving and not self.released:
            self.membership.quit(out)
        if self.verdict is not None:
            self._end(self.verdict, out)
        elif self.released and not self.congested:
            self._end(Depart(), out)

    def doom(self, reason: str, cause: Cause = Cause.STOPPED, known: int = 0, by: str = "") -> None:
        self.verdict = self.verdict or Fail(reason, cause, known, by)

    def _end(self, effect: Effect, out: list[Effect]) -> None:
        self._over = True
        out.extend(Disarm(timer) for timer in self.deadlines)
        out.append(effect)


_AT_REST: Final = CoordinatorState.INIT
_DEAF: Final = ReceiveState.INIT
