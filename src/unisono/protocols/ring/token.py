"""The virtual token: whose turn it is, how long a holder waits, and whether it still lives.

[RNG-2] There is no token packet. Who has turn S knows that member (S+1) mod n holds the token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unisono.core import EVERYONE, Effect, Send
from unisono.errors import BadPacket
from unisono.model import Member
from unisono.protocols.ring.codes import (
    E_ACK,
    E_SENDABLE,
    FAST_ACK,
    T_RT,
    T_SEND,
    TOKEN_BC,
    Code,
    Timer,
)
from unisono.protocols.ring.packets import (
    NO_VERSION,
    Control,
    Delegate,
    Flag,
    Header,
    MemberRecord,
    Packet,
    TurnPacket,
)
from unisono.protocols.ring.turn import Turn

if TYPE_CHECKING:
    from unisono.protocols.ring.core import Site

ASK_ALL: Final = 4
"""Of so many times that the holder is asked, once everyone is."""
REST_STEPS: Final = 4
"""So often is T_SEND doubled for the one with whom the token rests, before the first round."""
LONE_TIMES: Final = 2
"""So many times T_SEND must nobody have spoken before a lone message."""
BACKLOG_BYTES: Final = 4 << 20
"""A member whose application is so far behind keeps the token until it has caught up."""


class TokenWork:
    """What one member does with the token, and while it waits for it."""

    def __init__(self, core: Site) -> None:
        self._core = core
        self.worked_us = 0
        """How long this member was on rings that worked, up to the last stop."""
        self._began_us = 0
        self.idle = 0
        """Turns in a row in which nobody said anything."""
        self.tries = 0
        """How often the holder was asked, in vain, since it was last heard."""
        self._wanted = False
        self._quiet = 0
        """Turns in a row in which nobody had more to say than the turn could carry."""
        self._speaker: Member | None = None
        """The last whose message was ordered: the token rests there."""
        self._spoken_us = 0
        """When somebody last spoke."""
        self._lone = False
        """It was a lone message."""
        self._safe_turn = 0
        """The last turn that asked to be safe."""
        self._ack_turn = 0
        """The last turn that all were to acknowledge to its next holder."""
        self._passed = 0
        """The last turn that we passed early, on this ring."""

    # -- whose turn ------------------------------------------------------------------------------

    def is_here(self) -> bool:
        core = self._core
        if not core.in_force:
            return False
        ring = core.ring
        return ring.index.get(core.key) == (core.ordering.window.received + 1) % len(ring.seats)

    def holder(self) -> Member:
        core = self._core
        return core.ring.seats[core.ring.holder(core.ordering.S)].member

    def holder_key(self) -> int:
        ring = self._core.ring
        return ring.keys[ring.holder(self._core.ordering.S)]

    def new_ring(self) -> None:
        """Who comes does not know who spoke before, so the token rests with nobody yet."""
        self._speaker = None
        self._lone = False
        self._passed = self._safe_turn = self._ack_turn = 0

    def begin(self, out: list[Effect]) -> None:
        """A new ring, or the old one goes on."""
        self._began_us = self._core.now_us
        self.idle = 0
        self._quiet = len(self._core.ring.seats)
        self.tries = 0
        self.look(out)

    def stop(self, out: list[Effect]) -> None:
        self.worked_us += self._core.now_us - self._began_us
        for timer in (T_SEND, T_RT, Timer.REPAIR):
            self._core.disarm(timer, out)
        self._core.repair.stop()

    def working_us(self) -> int:
        core = self._core
        return self.worked_us + (core.now_us - self._began_us if core.in_force else 0)

    def look(self, out: list[Effect]) -> None:
        """A turn was taken: the token is at the next."""
        core = self._core
        self._heard()
        if self.is_here():
            core.disarm(T_RT, out)
            if len(core.ring.seats) == 1 and core.send_queue.has_any():
                core.arm(T_SEND, 0, out)  # Alone: one turn a step, and the world in between.
            else:
                core.push(E_SENDABLE)
        else:
            core.disarm(T_SEND, out)
            self._wanted = False
            self._expect(out)
            self.forward(out)

    def _heard(self) -> None:
        """The holder spoke: nobody is waited for, until the next is late."""
        if self.tries:
            self.tries = 0
            self._core.detector.rest_all()

    def note(self, turn: Turn) -> None:
        """What a turn tells about the pace."""
        wanted = turn.flags & Flag.WANTED
        self.idle = 0 if turn.content or wanted else self.idle + 1
        if turn.content or wanted:
            self._spoken_us = self._core.now_us
            self._lone = bool(turn.flags & Flag.LONE)
        self._quiet = 0 if wanted else self._quiet + 1
        if turn.flags & Flag.SAFE:
            self._safe_turn = turn.s
        if turn.flags & Flag.ACK:
            self._ack_turn = turn.s

    def spoke(self, member: Member) -> None:
        """The last whose message was ordered."""
        self._speaker = member

    def hear_from(self, packet: Packet, out: list[Effect]) -> None:
        """A packet of our ring: what its sender has, and that it lives."""
        core, header = self._core, packet.header
        if not isinstance(packet, TurnPacket):
            core.ordering.note(header.sender, header.s, header.k)
        elif core.ring.index.get(header.sender) == header.s % len(core.ring.seats):
            if not packet.again:
                early = packet.flags & Flag.EARLY
                has = min(header.local, header.s) if early else header.s
                core.ordering.note(header.sender, has, header.k)
        if self.tries and not isinstance(packet, MemberRecord):
            if self.holder_key() == header.sender:
                self.tries = 0
                core.detector.hear(header.sender, core.now_us)
        if isinstance(packet, Control) and packet.code is FAST_ACK:
            self.acked(out)

    # -- how long --------------------------------------------------------------------------------

    def wait_us(self) -> int:
        """How long the holder waits when it has nothing to say.

        Not at all for a round after somebody spoke, so that it knows what all have, and for two
        where something asks to be safe, so that all know. After a lone message the
        first NULL waits for half of T_SEND: nobody waits for the token then, and whom a NULL wakes
        is in the way of those that still deliver. Then the token rests where it was last used, for
        who spoke is likely to speak again: round by round twice as long, up to `idle_us`.
        """
        # Deviates [RNG T_SEND]: the paper always waits T_SEND, and admits that NULL messages waste
        # the network. Here a quiet ring slows down step by step, and any wish wakes it.
        core = self._core
        count = len(core.ring.seats)
        if self._safe_turn + count > core.ordering.S:
            return 0
        if self.idle < count - 1:
            return core.parameters.t_send_us // 2 if self._lone and not self.idle else 0
        steps = max(0, self.idle // count - 1)
        if self._speaker in core.ring.members:
            if self._speaker != self.holder():
                return 0
            steps += REST_STEPS
        return min(core.parameters.idle_us, core.parameters.t_send_us << min(steps, 30))

    def _is_lone(self) -> bool:
        """What we say now comes after a silence. Not where we wait for all to have it, as one does
        who leaves or has filled half of its window."""
        core = self._core
        silence_us = core.now_us - self._spoken_us
        waits = core.leaving or 2 * core.send_queue.send_credit() < core.send_queue.window_bytes
        return silence_us > LONE_TIMES * core.parameters.t_send_us and not waits

    def is_awaited(self) -> bool:
        """The token is here, and somebody had more to say than its last turn could carry."""
        return (
            self._quiet < len(self._core.ring.seats)
            and len(self._core.ring.seats) > 1
            and self.is_here()
            and not self._is_far_behind()
        )

    def comes_here(self) -> bool:
        """The turn after all that was heard of is ours, and we wait for no more than the rest of
        one."""
        core = self._core
        ordering, ring = core.ordering, core.ring
        mine = ring.index.get(core.key) == ring.holder(ordering.highest)
        return mine and ordering.highest > ordering.S and ordering.is_coming()

    def may_pass_early(self) -> bool:
        """Somebody waits for the token that comes to us, and we have nothing to say. So we need not
        have the rest of the turn at hand: the next one can begin while we still hear it."""
        # Deviates [RNG Ordered]: in the paper a site sends when it has all up to S. What says
        # nothing depends on nothing, so here a NULL may be early, if it tells so.
        core = self._core
        quiet = not core.send_queue.has_any() and not core.membership.has_changes()
        return core.in_force and quiet and not self._is_far_behind() and self.comes_here()

    def was_passed(self) -> bool:
        """The turn at hand is NULL, and others may have it: it was passed before the ring stood
        still."""
        return self._passed > self._core.ordering.S

    def may_speak(self) -> bool:
        core = self._core
        return self.is_here() and core.send_queue.has_any() and not self._is_far_behind()

    def _is_far_behind(self) -> bool:
        """The application does not read: who holds the token stops all others by keeping it."""
        core = self._core
        return core.delivery.octets > BACKLOG_BYTES and (core.congested or not core.memory)

    def _awaits_acks(self) -> bool:
        """[RNG-8] Acks are on their way to us: what we say next will tell everyone k."""
        ordering = self._core.ordering
        return self._ack_turn == ordering.S and ordering.safe < ordering.S

    def wait(self, out: list[Effect]) -> None:
        """The token is here, and nothing to say."""
        core = self._core
        wait_us = self.wait_us()
        if self._is_far_behind():
            wait_us = core.parameters.t_rt_us
        elif self._wanted:
            wait_us = 0
        elif self._awaits_acks():
            wait_us = max(wait_us, core.parameters.t_send_us)
        core.arm(T_SEND, wait_us, out)

    def acked(self, out: list[Effect]) -> None:
        """An acknowledgment came: with the last one everyone is told."""
        core = self._core
        if self._ack_turn == core.ordering.S and self.is_here():
            core.ordering.settle()
            if not self._awaits_acks():
                core.arm(T_SEND, 0, out)

    # -- the turn --------------------------------------------------------------------------------

    def speak(self, out: list[Effect]) -> None:
        """[RNG-2, RNG-3] One ordered multicast, NULL if there is nothing, and S is one more."""
        core = self._core
        core.disarm(T_SEND, out)
        if self._is_far_behind():
            core.arm(T_SEND, core.parameters.t_rt_us, out)
            core.push(E_ACK)
            return
        core.ordering.settle()
        s = core.ordering.S + 1
        if self.was_passed():
            self._say(Flag.EARLY, b"", s, s - 1, out)
        else:
            content, safe, more = core.send_queue.gather()
            flags = Flag.WANTED * (more or self._wanted) | Flag.SAFE * safe
            if safe and not more and len(core.ring.seats) > 2:
                flags |= Flag.ACK
            if content and not flags and self._is_lone():
                flags |= Flag.LONE
            self._wanted = False
            self._say(flags, content, s, core.send_queue.ordered, out)
            core.send_queue.said(s)
        core.advance(out)
        if len(core.ring.seats) > 1:
            self._expect(out)

    def pass_early(self, out: list[Effect]) -> None:
        """[RNG-3] NULL, before all that comes before it is here."""
        ordering = self._core.ordering
        s = ordering.highest + 1
        self._passed = max(self._passed, s)
        self._say(Flag.EARLY, b"", s, ordering.S, out)

    def _say(self, flags: int, content: bytes, s: int, local: int, out: list[Effect]) -> None:
        core = self._core
        flags |= Flag.PARTED * (core.ring.trunk > NO_VERSION)
        turn = Turn(s, core.key, flags, content, core.send_queue.piece_bytes)
        header = Header(core.ring.version, core.key, core.key, local, s, core.ordering.safe)
        packets = core.turn_packets(TOKEN_BC, header, turn, range(turn.count))
        out.append(Send(EVERYONE, packets))
        core.ordering.say(turn)

    def _expect(self, out: list[Effect]) -> None:
        """[T_RT] The next turn should come by then."""
        core = self._core
        self._heard()
        core.arm(T_RT, core.parameters.t_rt_us + self.wait_us(), out)

    # -- for others ------------------------------------------------------------------------------

    def forward(self, out: list[Effect]) -> None:
        """[RNG-4] When the ring is quiet, what we have to say goes to the holder at once."""
        # Deviates [RNG Fast]: the paper forwards what its application calls urgent. Here everything
        # is urgent on a quiet ring, and on a busy one the token comes soon enough.
        core = self._core
        if not core.in_force or self.is_here():
            return
        wants = core.membership.has_changes()
        if (core.send_queue.has_own() or wants) and self.wait_us() > 0:
            body = core.send_queue.delegate()
            core.to(self.holder(), Code.DATA_BC_RQU, body, out)

    def entrust(self, packet: Delegate) -> None:
        """Somebody asks the holder, us, to multicast; or only to pass the token on."""
        core = self._core
        if packet.header.version != core.ring.version:
            core.codec.drop("version")
            return
        try:
            core.send_queue.entrust(packet)
        except BadPacket as bad:
            core.codec.drop(bad.reason)
            return
        self._wanted = True
        core.push(E_SENDABLE)

    def acknowledge(self, turn: Turn, mine: bool, out: list[Effect]) -> None:
        """[RNG-8] To the next holder; and to everyone where a message of ours was said for us, for
        nobody delivers it before we are known to have it."""
        core = self._core
        if self.is_here():
            return  # Our own turn follows, and says so.
        if mine:
            core.everyone(FAST_ACK, b"", out)
        elif turn.s == core.ordering.S:
            core.to(self.holder(), FAST_ACK, b"", out)

    # -- is it alive -----------------------------------------------------------------------------

    def is_silent(self) -> bool:
        """The holder was asked for long enough."""
        return self._core.detector.is_silent(self.holder_key())

    def ping(self, out: list[Effect]) -> None:
        """[RNG T_RT] The turn did not come: ask its holder, and after that anyone, for some may
        have it."""
        core = self._core
        self.tries += 1
        core.arm(T_RT, core.parameters.t_rt_us, out)
        asked = [self.holder()]
        core.detector.watch(self.holder_key(), core.now_us)
        if self.tries > 1:
            core.probe(asked, out)
        if self.tries % ASK_ALL == 2:
            asked = [member for member in core.ring.members if member != core.me]
        core.to_all(asked, Code.TS_ALIVE_RQU, b"", out)
        if core.send_queue.has_own():
            body = core.send_queue.delegate()
            core.to(self.holder(), Code.DATA_BC_RQU, body, out)
