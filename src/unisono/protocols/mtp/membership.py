"""Coming in and going out: join, found, catch up with or without state, leave."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from unisono.core import EVERYONE, Adopt, Arm, Captured, Cause, Checkpoint, Effect, Install, Send
from unisono.errors import BadPacket
from unisono.parts.state_transfer import StateReceiver, StateSender
from unisono.protocols.mtp.agreement import ACCEPTED, Consumer
from unisono.protocols.mtp.decision import value_of
from unisono.protocols.mtp.figure import INSIDE, LEAVING, Timer
from unisono.protocols.mtp.packets import (
    HEADER_BYTES,
    STATE_BYTES,
    Confirm,
    JoinRequest,
    LeaveRequest,
    PacketKind,
    Refuse,
    StatePiece,
    StateRequest,
)
from unisono.protocols.mtp.replicas import NO_HEADER
from unisono.wire import ENVELOPE_BYTES, NO_LIFE

if TYPE_CHECKING:
    from unisono.protocols.mtp.core import Mtp

ROSTER, STATE = 0, 1
REFUSALS_MAX: Final = 64
GIVERS_MAX: Final = 16
"""Joiners that are given roster and state at once; the others wait outside."""
STATE_BYTES_MAX: Final = 4 << 30
FLIGHT: Final = 384
"""Pieces of state under way to one joiner."""
WEB_BYTES: Final = 8


class Membership:
    """How this member gets in and out."""

    def __init__(self, core: Mtp, with_state: bool) -> None:
        self._core = core
        self._with_state = with_state
        self.out = False
        """Our leave has come to its place in the order."""
        self.former = NO_LIFE
        """The web of a former life of this process."""
        self._since_us = 0
        self._refusals = 0
        self._taker: StateReceiver | None = None
        self._what = ROSTER
        self._gives_state = False
        self._roster = b""
        self._state: bytes | None = None
        self._progress_us = 0
        self._givers: dict[tuple[int, int], StateSender] = {}
        self._asked_us: dict[int, int] = {}
        """By joiner that is given something, when it was last heard of, in listening time."""
        self._leave_us = 0
        self._left_at = 0
        self._linger_us = 0
        self._waited = False

    def look(self, out: list[Effect]) -> None:
        """Somebody has other options than we have: one of us is at the wrong door."""
        core = self._core
        size = len(core.web.members) if core.machine.state in INSIDE else 0
        if reason := core.admission.look(core.source, core.now_us, size, out):
            core.doom(reason, Cause.REFUSED)

    # -- joining ----------------------------------------------------------------------------------

    def remember(self, records: tuple[bytes, ...]) -> None:
        """[MTP 3.4] A rejoiner can tell whether it is the same web."""
        if records and len(records[-1]) == WEB_BYTES:
            self.former = int.from_bytes(records[-1], "big")

    def ask(self, out: list[Effect], first: bool) -> None:
        core = self._core
        seek_us = core.parameters.beat_us // 2
        if first:
            self._since_us = core.now_us
            if core.replicas.rank:
                out.append(Arm(Timer.BEAT, core.parameters.beat_us))
        out.append(Arm(Timer.JOIN, seek_us + core.dice.randrange(seek_us // 4 + 1)))
        self._request(out)
        core.replicas.greet(out)
        self._maybe_found(out)

    def _request(self, out: list[Effect], withdrawn: bool = False) -> None:
        core = self._core
        body = JoinRequest(core.me, self._with_state, withdrawn).body()
        if core.replicas.count > 1 or not core.replicas.rank:
            out.append(Send(EVERYONE, [core.codec.seal(PacketKind.JOIN, body, life=NO_LIFE)]))

    def withdraw(self, out: list[Effect]) -> None:
        """We gave up; if the master has let us in meanwhile, it need not wait for us."""
        self._request(out, withdrawn=True)

    def _maybe_found(self, out: list[Effect]) -> None:
        """[MTP 3.4] Only who was told to be the master founds a web, and nobody elects itself."""
        core = self._core
        taken_by = core.replicas.taken_by
        if taken_by is not None:
            who = f"{taken_by} at {taken_by.address}"
            core.doom(f"master={core.replicas.rank} is {who} already", Cause.REFUSED)
            return
        waited_us = core.now_us - self._since_us
        if core.replicas.leads and waited_us > core.parameters.detect_us:
            core.replicas.abandon()
            self._since_us = core.now_us
        if waited_us >= 2 * core.parameters.beat_us and core.replicas.may_found():
            core.coordinator.found(out)
            web = core.dice.getrandbits(63) | 1
            core.replicas.found(web, value_of(core.coordinator.machine), out)

    def open_web(self, out: list[Effect]) -> None:
        """We are the master of a new web."""
        core = self._core
        core.codec.life = core.replicas.web
        core.follow(core.me, core.replicas.ballot)
        out.append(Checkpoint(core.codec.life.to_bytes(WEB_BYTES, "big")))
        out.append(Install(core.web.found(core.codec.life, core.me, self._told("founded the web"))))
        core.start(out)
        core.coordinator.advertise(out)

    def _told(self, otherwise: str = "") -> str:
        if self.former == NO_LIFE:
            return otherwise
        same = self.former == self._core.codec.life
        return "the same web as before" if same else "another web than before"

    def refused_enough(self, packet: Refuse) -> bool:
        self._refusals += packet.key == self._core.key
        return packet.key == self._core.key and (packet.final or self._refusals >= REFUSALS_MAX)

    def enter(self, packet: Confirm, out: list[Effect]) -> None:
        """[MTP 3.4] Confirmed: from the view at `first` on, all messages are for us."""
        core = self._core
        core.codec.life = core.incoming_life
        if core.replicas.web != core.codec.life:
            core.replicas.abandon()
        core.consumer = Consumer(packet.header.t, packet.first + 1)
        core.know(packet.header.next)
        core.follow(packet.master, packet.ballot)
        core.pace.adopt(packet.header)
        out.append(Checkpoint(core.codec.life.to_bytes(WEB_BYTES, "big")))
        self._gives_state = packet.gives_state
        self._what, self._taker = ROSTER, StateReceiver(FLIGHT)
        self._progress_us = core.listened_us
        core.start(out)
        self.pull(out)

    # -- catching up ------------------------------------------------------------------------------

    def pull(self, out: list[Effect]) -> None:
        """Ask for what is missing of roster or state; nothing for too long is the end."""
        core = self._core
        if self._taker is None:
            return
        if core.listened_us - self._progress_us > core.parameters.lost_us:
            core.doom("the master that should give the state is gone")
            return
        for offset, pieces in self._taker.ask_again():
            self._ask(offset, pieces, out)
        out.append(Arm(Timer.STATE, 4 * core.pace.heartbeat_us))

    def _ask(self, offset: int, pieces: int, out: list[Effect]) -> None:
        core = self._core
        packet = StateRequest(NO_HEADER, self._what, offset, pieces)
        core.to_master(PacketKind.STATE_ASK, packet.body(core.header_bytes()), out)

    def take(self, packet: StatePiece, out: list[Effect]) -> None:
        core, taker = self._core, self._taker
        if taker is None or packet.what != self._what or packet.total > STATE_BYTES_MAX:
            return
        if not taker.take(packet.total, packet.offset, packet.piece):
            core.codec.drop("duplicate")
            return
        self._progress_us = core.listened_us
        if not taker.is_done():
            ahead = taker.ask_ahead()
            if ahead is not None:
                self._ask(*ahead, out)
                out.append(Arm(Timer.STATE, 4 * core.pace.heartbeat_us))
            elif taker.has_run_dry:
                self.pull(out)
        elif self._what == ROSTER:
            self._roster = taker.state()
            self._taker = None
            if self._gives_state:
                self._what, self._taker = STATE, StateReceiver(FLIGHT)
                self.pull(out)
        else:
            self._state = taker.state()
            self._taker = None
            self._ask(len(self._state), 0, out)

    def all_is_here(self) -> bool:
        """A replica is in when it holds the replicas' value: from then on it counts."""
        replicas = self._core.replicas
        if not self._roster or (replicas.rank and not replicas.accepted):
            return False
        return self._state is not None or not self._gives_state

    def begin(self, out: list[Effect]) -> None:
        """We are current from here on."""
        core = self._core
        try:
            view = core.web.take_over(self._roster, core.me)
        except BadPacket:
            core.doom("the master's roster is not one")
            return
        if self._state is not None:
            out.append(Adopt(self._state))
        self._roster, self._state = b"", None
        detail = self._told(f"joined the web at message {core.consumer.next_out - 1}")
        out.append(Install(replace(view, detail=detail)))

    # -- giving -----------------------------------------------------------------------------------

    def takers(self) -> int:
        """How many joiners are being given what they need; one that is silent is done, or gone."""
        since_us = self._core.listened_us - self._core.parameters.detect_us
        return sum(asked_us >= since_us for asked_us in self._asked_us.values())

    def tidy(self) -> None:
        """Forget what nobody asks for any more: its taker is done, or gone."""
        since_us = self._core.listened_us - self._core.parameters.lost_us
        for key in [k for k, asked_us in self._asked_us.items() if asked_us < since_us]:
            self.forget(key)

    def offer(self, key: int, what: int, octets: bytes) -> None:
        """What a joiner will ask for. Of too many, the oldest is forgotten, and joins again."""
        core = self._core
        piece = core.packet_bytes_max - ENVELOPE_BYTES - HEADER_BYTES - STATE_BYTES
        self._givers[key, what] = StateSender(octets, piece)
        self._asked_us[key] = core.listened_us
        while len(self._asked_us) > 2 * GIVERS_MAX:
            self.forget(next(iter(self._asked_us)))

    def keep(self, event: Captured) -> None:
        if isinstance(event.key, int):
            for key in self._core.coordinator.admission.waiting(event.key):
                self.offer(key, STATE, event.state)

    def give(self, packet: StateRequest, out: list[Effect]) -> None:
        core, key = self._core, packet.header.sender
        member = core.web.members.get(key)
        giver = self._givers.get((key, packet.what))
        if packet.pieces == 0 or member is None:
            self.forget(key)
            return
        if giver is None:
            hopeless = packet.what == ROSTER or key not in core.coordinator.admission.captures
            if core.leads and core.coordinator.ready and hopeless:
                core.coordinator.admission.turn_away(key, member.address, out, stateless=True)
            return
        self._asked_us[key] = core.listened_us
        header = core.header_bytes()
        packets = [
            core.codec.seal(
                PacketKind.STATE,
                StatePiece(NO_HEADER, packet.what, giver.octets, offset, piece).body(header),
            )
            for offset, piece in giver.pieces(packet.offset, min(packet.pieces, FLIGHT))
        ]
        if not giver.octets:
            empty = StatePiece(NO_HEADER, packet.what, 0, 0, b"").body(header)
            packets = [core.codec.seal(PacketKind.STATE, empty)]
        if packets:
            out.append(Send((member.address,), packets))

    def forget(self, key: int) -> None:
        self._asked_us.pop(key, None)
        for what in (ROSTER, STATE):
            self._givers.pop((key, what), None)

    # -- leaving ----------------------------------------------------------------------------------

    def leave(self, out: list[Effect]) -> None:
        """[MTP 3.1] A member asks the master; a lone master ends its web."""
        core = self._core
        self._leave_us = core.now_us
        out.append(Arm(Timer.LEAVE, core.parameters.lost_us))
        self.insist(out)

    def insist(self, out: list[Effect]) -> None:
        """Each heartbeat: once all that we said is settled, ask to be let out."""
        core = self._core
        if self.out or self._left_at or core.send_queue.unsaid():
            return
        if not core.leads:
            core.to_master(PacketKind.LEAVE, LeaveRequest(NO_HEADER).body(core.header_bytes()), out)
        # Deviates [MTP 3.1]: one of several masters leaves as members do, and the web stays.
        elif core.replicas.count == 1:
            core.coordinator.admission.ending = core.coordinator.everywhere() or self._late()
        elif core.coordinator.ready and core.coordinator.alone():
            # The other masters have left, so there is no majority to ask.
            self.out = self._has_delivered_all()
        else:
            core.coordinator.admission.leavers.add(core.key)

    def _has_delivered_all(self) -> bool:
        """Nothing that was accepted waits for a slow reader."""
        return ACCEPTED not in self._core.consumer.status.values()

    def _late(self) -> bool:
        return self._core.now_us - self._leave_us > self._core.parameters.lost_us

    def ended(self, number: int, ends: bool) -> None:
        """Our leave, or the web's end, has come to its place."""
        core = self._core
        self._left_at = number
        self.out = not core.leads or core.coordinator.alone()
        core.coordinator.closed = True
        self._linger_us = core.now_us + core.parameters.beat_us * (2 if ends else 8)

    def gone(self) -> bool:
        """What follows is not for us any more."""
        return self._left_at > 0

    def web_ended(self) -> None:
        """No majority of the masters remembers the web any more, nor ever will."""
        core = self._core
        if core.machine.state is LEAVING and not core.send_queue.unsaid():
            self.out = self._has_delivered_all()
        else:
            core.doom("too few of the web's masters are left to decide anything")

    def linger(self) -> None:
        """A master goes once the others know, or will not."""
        core = self._core
        if self._left_at and not self.out:
            self.out = core.coordinator.everywhere() or core.now_us > self._linger_us

    def go_unanswered(self, out: list[Effect]) -> None:
        core = self._core
        if core.leads and not self._waited:
            self._waited = True
            out.append(Arm(Timer.LEAVE, core.parameters.lost_us))
        else:
            core.doom("left before the master had let this member out")
