"""Coming and going: the request to join, the answer at the token, the state, and the leave."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from unisono.core import Adopt, Captured, Cause, Effect
from unisono.model import Address, Member
from unisono.parts.state_transfer import StateReceiver, StateSender
from unisono.protocols.ring.codes import Code, Timer
from unisono.protocols.ring.packets import (
    HEADER_BYTES,
    LOST_REASON,
    NO_VERSION,
    STALE_REASON,
    STATE,
    STATE_BYTES,
    Bits,
    Control,
    MemberRecord,
    StatePiece,
    StateRequest,
    TurnPacket,
    Version,
    key_of,
)
from unisono.protocols.ring.parameters import ROUNDS_MAX
from unisono.wire import ENVELOPE_BYTES, Writer

if TYPE_CHECKING:
    from unisono.protocols.ring.core import Site

JOINERS_MAX: Final = 64
PATIENCE: Final = 8
"""A request to join or to leave counts for so many T_REFORM."""
ASKS_MAX: Final = 64
LEAVE_ROUNDS: Final = 60
BLOCKED_ROUNDS: Final = 10
"""Who wants to leave and is in no ring waits so many T_REFORM for one."""


class Membership:
    """Who wants in, who wants out, and what a newcomer is given."""

    def __init__(self, core: Site, seed: int, with_state: bool) -> None:
        self._core = core
        self._dice = Random(seed)
        self._with_state = with_state
        self.target: Member | None = None
        """The coordinator of a ring that goes on without us."""
        self._asked = 0
        self._joiners: dict[str, tuple[MemberRecord, int]] = {}
        self._namesakes: dict[str, tuple[Member, int]] = {}
        """Those who asked under a name that is on the ring, and since when."""
        self._leavers: dict[str, tuple[Member, int]] = {}
        self._left: dict[int, Member] = {}
        """Those who left with the last change, by key."""
        self._absent_us: dict[str, int] = {}
        self._giver: StateSender | None = None
        self._giver_of = NO_VERSION
        self._taker: StateReceiver | None = None
        self.has_quit = False
        """Everything of ours is with everyone, and we said goodbye."""
        self._quit_us = 0
        self._quit_rounds = 0
        self._blocked_rounds = 0

    def look(self, source: Address, out: list[Effect]) -> None:
        """Somebody has other options than we have: one of us is at the wrong door."""
        core = self._core
        size = len(core.ring.seats) if core.delivery.has_view else 0
        if reason := core.admission.look(source, core.now_us, size, out):
            core.doom(reason, Cause.REFUSED)

    # -- wanting in --------------------------------------------------------------------------------

    @property
    def wants_state(self) -> bool:
        return self._with_state and not self._core.memory

    def wait(self, out: list[Effect]) -> None:
        """[T_REFORM] Listen for a ring, or for somebody who forms one."""
        core = self._core
        core.disarm(Timer.T_REF_RT, out)
        if self.target is not None or not core.memory:
            self._say_join(out)
        self._arm(out)

    def _arm(self, out: list[Effect]) -> None:
        base = self._core.parameters.t_reform_us
        self._core.arm(Timer.T_REFORM, base + self._dice.randrange(base), out)

    def jitter(self, wait_us: int) -> int:
        """A little more, so that two that compete do not go on in step."""
        return wait_us + self._dice.randrange(1 + wait_us // 4)

    def may_ask_again(self) -> bool:
        return self.target is not None and self._asked < ROUNDS_MAX

    def ask(self, out: list[Effect]) -> None:
        self._asked += 1
        self._say_join(out)
        self._arm(out)

    def _say_join(self, out: list[Effect]) -> None:
        """[MEMBER_JOIN] To everyone: the coordinator is among them, whoever it is."""
        # Deviates [RNG Join]: the paper asks the coordinator that a packet named. It may be dead or
        # leaving, so the first on the ring that stays lets in.
        core = self._core
        bits = Bits.MEMORY * core.memory | Bits.STATE * self.wants_state
        packet = core.person(Code.MEMBER_JOIN, 0, bits)
        core.everyone(Code.MEMBER_JOIN, packet.body(), out)

    def hear_of(self, packet: MemberRecord | TurnPacket, out: list[Effect]) -> None:
        """A ring goes on, and we are not on it: ask to join."""
        core = self._core
        if not isinstance(packet, MemberRecord):
            behind = packet.header.version < core.version and not core.reform.is_later(packet)
        else:
            behind = packet.rank < core.rank
        if behind:
            if isinstance(packet, MemberRecord) and self.target == core.me:
                self.target = None  # It goes on, but ours goes before it: it waits for us.
            return
        if isinstance(packet, MemberRecord):
            leader = packet.other or packet.member
        else:
            leader = None
        fresh = self.target is None
        self._asked = 0
        if leader is not None:
            self.target = leader
        elif fresh:
            self.target = core.me  # Known to exist; who leads it will answer.
        if fresh and core.reformation_waits():
            self._say_join(out)
            self._arm(out)

    def settled(self, out: list[Effect]) -> None:
        """Somebody invited, or we do."""
        self.target = None
        self._asked = 0
        self._core.disarm(Timer.T_REFORM, out)

    # -- letting in --------------------------------------------------------------------------------

    def _is_usher(self) -> bool:
        """The first on the ring that is not leaving."""
        core = self._core
        for seat in core.ring.seats:
            if seat.member.name not in self._leavers:
                return seat.member == core.me
        return core.ring.seats[0].member == core.me if core.ring.seats else False

    def note_join(self, packet: MemberRecord, out: list[Effect]) -> None:
        """[RNG-14] Kept in mind until the token is here; answered with version and S."""
        core = self._core
        member = packet.member
        if member.name == core.me.name:
            core.refuse(member, f"the name {member.name} is taken by {core.me}", out)
            return
        for known in core.ring.members:
            if known.name != member.name:
                continue
            if known == member:
                if packet.header.version == core.ring.version:
                    core.to(member, Code.RESUME, b"", out)  # It never heard that.
                break
            elsewhere = known.address.host != member.address.host
            if elsewhere or known.incarnation == member.incarnation:
                if self._is_usher():
                    core.refuse(member, f"the name {member.name} is taken", out)
                return
            if known.incarnation > member.incarnation:
                reason = "a later life of this member has come"
                core.tell(member, Code.STALE, reason, out, known.incarnation)
                return
            if not self._is_certain(member):
                return
            core.reform.suspects.add(key_of(known))
        if not self._is_usher():
            return
        if packet.rank[0] > core.rank[0] and core.ring.trunk > NO_VERSION:
            # A majority had gone on before we were let go on: they are to form the next ring.
            self._say_info(member, out)
            self.target, self._asked = member, 0
            core.push(Code.E_REFSTART)
            core.push(Code.E_INIT)
            return
        behind = packet.has(Bits.MEMORY) and packet.rank < core.rank
        if behind and not core.reform.can_go_on(packet):
            anew = core.parameters.sites and core.ring.began_after(packet.header.version)
            core.tell(member, Code.STALE, LOST_REASON if anew else STALE_REASON, out)
            return
        if len(core.ring.seats) + len(self._joiners) >= core.parameters.members_count_max:
            if member.name not in {m.name for m in core.ring.members}:
                most = core.parameters.members_count_max
                core.refuse(member, f"the group is full: members_count_max={most}", out)
                return
        fresh = not self.has_changes()
        if len(self._joiners) < JOINERS_MAX or member.name in self._joiners:
            self._joiners[member.name] = (packet, core.now_us)
        self._say_info(member, out)
        self._wake(fresh, out)

    def _say_info(self, member: Member, out: list[Effect]) -> None:
        """[RING_INFO] There is a ring, and this is how far it has come."""
        answer = self._core.person(Code.RING_INFO, 0, Bits.IN_FORCE, self._core.ring.leader)
        self._core.to(member, Code.RING_INFO, answer.body(), out)

    def _is_certain(self, member: Member) -> bool:
        """It has the name of one on the ring. If that one lives it has refused the name by now; if
        not, this one asks again."""
        known, since_us = self._namesakes.get(member.name, (None, 0))
        if known != member:
            if len(self._namesakes) >= JOINERS_MAX:
                self._namesakes.clear()
            self._namesakes[member.name] = member, self._core.now_us
            return False
        return self._core.now_us - since_us >= self._core.parameters.t_reform_us // 2

    def _wake(self, fresh: bool, out: list[Effect]) -> None:
        core = self._core
        if core.token.is_here():
            core.push(Code.E_SENDABLE)
        elif fresh or core.token.wait_us() > 0:
            core.token.forward(out)

    def has_changes(self) -> bool:
        if not (self._joiners or self._leavers or self._absent_us) or not self._is_usher():
            return False
        self._tidy()
        return bool(self._joiners or self._leavers or self.forgotten())

    def _tidy(self) -> None:
        core = self._core
        oldest_us = core.now_us - PATIENCE * core.parameters.t_reform_us
        for name in [n for n, (_, when_us) in self._joiners.items() if when_us < oldest_us]:
            del self._joiners[name]
        for name in [n for n, (_, when_us) in self._leavers.items() if when_us < oldest_us]:
            del self._leavers[name]

    def expected(self) -> set[str]:
        """Names that are to answer an invitation, beside those on the ring."""
        return set(self._joiners)

    # -- who is gone -------------------------------------------------------------------------------

    def left_names(self) -> set[str]:
        """Who said goodbye and answers no more is not missed."""
        return set(self._leavers)

    def forgotten(self) -> set[str]:
        """Members without whom rings have worked so long that they are no longer counted."""
        core = self._core
        after_us = core.parameters.forget_us
        if core.parameters.sites or not after_us:
            return set()
        limit_us = core.token.working_us() - after_us
        return {name for name, since_us in self._absent_us.items() if since_us < limit_us}

    def note_quit(self, packet: MemberRecord, out: list[Effect]) -> None:
        """[RNG-15] It leaves, and the ring closes without it."""
        core = self._core
        waiting, _ = self._joiners.get(packet.member.name, (None, 0))
        if waiting is not None and waiting.member == packet.member:
            del self._joiners[packet.member.name]  # It gave up.
        if core.ring.member(packet.header.sender) is None:
            return
        fresh = not self.has_changes()
        self._leavers[packet.member.name] = (packet.member, core.now_us)
        if self._is_usher():
            self._wake(fresh, out)

    def leaver(self, packet: Control) -> Member | None:
        """One that left with this ring and did not hear that it is in force."""
        return self._left.get(packet.header.sender)

    def new_ring(self, out: list[Effect]) -> None:
        """A ring is in force: whom it holds has come, whom it lacks is absent."""
        core = self._core
        names = {member.name for member in core.ring.members}
        self._joiners.clear()  # Who did not come along asks again if it lives.
        self._left = {key_of(m): m for n, (m, _) in self._leavers.items() if n not in names}
        self._leavers = {n: j for n, j in self._leavers.items() if n in names}
        if not self.is_giver():
            self._giver = None
        absent, worked_us = {seat.member.name for seat in core.ring.absent}, core.token.worked_us
        self._absent_us = {n: self._absent_us.get(n, worked_us) for n in sorted(absent)}
        self.settled(out)
        core.admission.entered(core.now_us)
        seat = core.my_seat()
        if seat is not None and seat.waits:
            self._taker = StateReceiver()
            self.ask_state(out)

    def forget_state(self) -> None:
        """What was on its way is of an earlier place."""
        self._taker = None

    # -- wanting out -------------------------------------------------------------------------------

    def leave(self, out: list[Effect]) -> None:
        core = self._core
        core.leaving = True
        if not core.delivery.has_view and not self._is_counted_on():
            core.everyone(Code.QUIT, core.person(Code.QUIT, 0, 0).body(), out)
            core.released = True
            return
        core.arm(Timer.LEAVE, core.parameters.t_reform_us, out)
        self.quit(out)

    def _is_counted_on(self) -> bool:
        """A ring holds us, or may: others need our word to close it without us. Who is not on one
        yet, and gives up, comes in first and then leaves."""
        core = self._core
        promised = core.reform.promised > core.ring.version and core.reform.leader != core.me
        return promised or core.my_seat() is not None

    def quit(self, out: list[Effect]) -> None:
        """[QUIT] Once everything of ours is with everyone."""
        # Deviates [RNG Member leave]: the paper's member says so and is gone. Here it stays until a
        # ring without it is in force, or it is released.
        core = self._core
        if not core.send_queue.is_settled() or not core.is_normal():
            return
        if core.now_us - self._quit_us < core.parameters.t_reform_us // 2 and self.has_quit:
            return
        self._quit_us = core.now_us
        self.has_quit = True
        if len(core.ring.seats) == 1:
            core.released = len(core.delivery) == 0
            return
        self._leavers[core.me.name] = (core.me, core.now_us)
        packet = core.person(Code.QUIT, 0, 0)
        core.everyone(Code.QUIT, packet.body(), out)

    def insist(self, out: list[Effect]) -> None:
        core = self._core
        self._quit_rounds += 1
        self._blocked_rounds = 0 if core.is_normal() else self._blocked_rounds + 1
        if self._quit_rounds > LEAVE_ROUNDS or self._blocked_rounds > BLOCKED_ROUNDS:
            core.doom("left before the others had taken over")
            return
        core.arm(Timer.LEAVE, core.parameters.t_reform_us, out)
        self.quit(out)

    def be_released(self, packet: Control) -> None:
        """[RELEASE] Too few remain for a ring, but they have everything."""
        core = self._core
        if self.has_quit and packet.header.s == core.ordering.S:
            self.depart()

    def depart(self) -> None:
        """Those who stay have all that we have, but no ring that could say so: what more comes to
        light when they form one, we shall not hear."""
        core = self._core
        if {member.name for member in core.ring.members} <= self._leavers.keys():
            core.ordering.safe = max(core.ordering.safe, core.ordering.S)
            core.released = True  # Nobody stays.
        else:
            core.doom("left when too few remained for the ring to go on")

    # -- the state ---------------------------------------------------------------------------------

    def is_giver(self) -> bool:
        """[RNG-16] The first on the ring that was there before hands over the state."""
        core = self._core
        if not any(seat.waits for seat in core.ring.seats):
            return False
        for seat in core.ring.seats:
            if seat.old:
                return seat.member == core.me
        return False

    def keep_state(self, event: Captured) -> None:
        if isinstance(event.key, Version):
            octets = self._core.packet_bytes_max - ENVELOPE_BYTES - HEADER_BYTES - STATE_BYTES
            self._giver, self._giver_of = StateSender(event.state, octets), event.key

    def ask_state(self, out: list[Effect]) -> None:
        """Ask for what has not come; also when nothing comes."""
        core = self._core
        if self._taker is None:
            return
        for offset, count in self._taker.ask_again():
            self._ask(offset, count, out)
        core.arm(Timer.REPAIR, core.parameters.t_rt_us, out)

    def _ask(self, offset: int, count: int, out: list[Effect]) -> None:
        core = self._core
        for seat in core.ring.seats:
            if seat.old:
                body = Writer().u64(offset).u16(min(count, ASKS_MAX)).done()
                core.to(seat.member, Code.STATE_ASK, body, out)
                return

    def give_state(self, packet: StateRequest, out: list[Effect]) -> None:
        core = self._core
        member = core.ring.member(packet.header.sender)
        if self._giver is None or self._giver_of != packet.header.version or member is None:
            return
        pieces = self._giver.pieces(packet.offset, min(packet.pieces, ASKS_MAX))
        if not pieces and not self._giver.octets:
            pieces = [(0, memoryview(b""))]
        bodies = [STATE.pack(self._giver.octets, at) + bytes(piece) for at, piece in pieces]
        core.to_many(member, Code.STATE, bodies, out)

    def take_state(self, packet: StatePiece, out: list[Effect]) -> None:
        core = self._core
        if self._taker is None or packet.header.version != core.ring.version:
            return
        self._taker.take(packet.total, packet.offset, packet.piece)
        if self._taker.is_done():
            state = self._taker.state()
            self._taker = None
            core.memory = True
            core.keep(out, votes=True)
            out.append(Adopt(state))
            return
        ahead = self._taker.ask_ahead()
        if ahead is not None:
            self._ask(*ahead, out)
        elif self._taker.has_run_dry:
            self.ask_state(out)

    def waits_for_state(self) -> bool:
        return self._taker is not None
