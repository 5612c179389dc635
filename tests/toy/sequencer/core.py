"""A member of the sequencer protocol.

Members submit their messages to the sequencer, which numbers them and sends them to all; a view is
an entry of the same order. When the sequencer is lost, every member stops.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import auto
from random import Random
from typing import Any, Final

from tests.toy.sequencer.packets import (
    BYE,
    PACKETS,
    VIEW,
    JoinRequest,
    Roster,
    RosterEntry,
    Stop,
    Welcome,
)
from unisono import core
from unisono.core import EVERYONE, Arm, Cause, CoreConfig, Effect, Fail
from unisono.fsa import Arrow, Figure, Machine, Named, always, discarded, stay
from unisono.layout import decode, encode, size_of
from unisono.model import Address, Member, Message, Service, View
from unisono.parts.admission import Admission, Terms
from unisono.parts.codec import PacketCodec
from unisono.parts.fragment_stream import FragmentStream
from unisono.parts.identity import key_of
from unisono.parts.links import LinkBeat, LinkChunk, LinkData, Links
from unisono.parts.options import checked
from unisono.parts.state_transfer import StateReceiver, StateServer, TransferPiece, TransferRequest
from unisono.parts.views import next_view
from unisono.wire import ENVELOPE_BYTES, NO_LIFE

DEFAULTS: Final = {"sequencer": 0, "detect_us": 1_000_000, "members_count_max": 32}
BOUNDS: Final = {
    "sequencer": (0, 1),
    "detect_us": (20_000, 3_600_000_000),
    "members_count_max": (1, 256),
}


class State(Named):
    OUTSIDE = auto()
    SEEKING = auto()
    CATCHING_UP = auto()
    MEMBER = auto()
    LEAVING = auto()
    DONE = auto()


class Timer(Named):
    BEAT = auto()


OUTSIDE, SEEKING, CATCHING_UP, MEMBER, LEAVING, DONE = State
INSIDE: Final = (CATCHING_UP, MEMBER, LEAVING)


class Sequencer:
    """One process: the sequencer, or a member that submits to it."""

    def __init__(self, config: CoreConfig) -> None:
        options = checked("sequencer", DEFAULTS, config.options, BOUNDS)
        terms = Terms.of(config, "sequencer", {k: options[k] for k in options if k != "sequencer"})
        self.me, self.key = config.me, key_of(config.me)
        self._config, self._options = config, options
        self._random = Random(config.seed)
        self._codec = PacketCodec(PACKETS.protocol, PACKETS.names, terms)
        self._admission = Admission(self._codec, terms)
        self._links = Links(config, self._codec, PACKETS, options["detect_us"])
        self._machine = Machine(FIGURE, self, self._links)
        self._sequences = bool(options["sequencer"])
        self._now_us = 0
        self._congested = False
        self._end: Effect | None = None
        # The order, and the application's stream as of the last delivery.
        self._order: FragmentStream[LinkChunk] = FragmentStream()
        self._view = View(())
        self._members: dict[int, Member] = {}
        self._numbers: dict[int, int] = {}
        self._seq = self._number = 0
        # The sequencer's: the same as of the last chunk ordered.
        self._roster: dict[int, RosterEntry] = {}
        self._ordered = 0
        self._left: dict[int, int] = {}
        """By member that left, the last chunk of the view without it."""
        self._former: deque[int] = deque(maxlen=1024)
        piece = config.packet_bytes_max - ENVELOPE_BYTES - size_of(TransferPiece)
        self._states: StateServer[int] = StateServer(piece)
        self._state: StateReceiver | None = None

    # -- the contract -----------------------------------------------------------------------------

    @property
    def counts(self) -> dict[str, int]:
        return self._codec.counts

    def transition_counts(self) -> Mapping[str, int]:
        return self._machine.walked

    def held(self) -> Mapping[Member, int]:
        return {self._members[key]: number for key, number in self._numbers.items()}

    def send_credit(self) -> int:
        may_send = self._machine.state is MEMBER and not self._congested
        return max(0, self._config.window_bytes_max - self._links.own.nbytes) if may_send else 0

    def step(self, now_us: int, event: core.Event) -> list[Effect]:
        self._now_us = now_us
        self._links.tick(now_us)
        out: list[Effect] = []
        if isinstance(event, core.Received):
            for packet, life in PACKETS.opened(self._codec, event.packets):
                if self._is_for_us(packet, life, event.source, out):
                    self._machine.fire(packet, out)
            if self._codec.odd:
                self._refuse_terms(event.source, out)
        else:
            self._machine.fire(event, out)
        if self._machine.state in INSIDE:
            if self._sequences and self._machine.state is MEMBER:
                self._order_submissions()
            if self._state is None:
                self._deliver(out)
            retain = self._order.delivered if self._sequences else self._links.own.end
            self._links.conclude(retain, out)
            self._machine.settle(event, out)
        return out

    def _is_for_us(self, packet: Any, life: int, source: Address, out: list[Effect]) -> bool:
        match packet:
            case JoinRequest():
                return self._sequences and packet.member != self.me
            case Welcome(joiner=key) | Stop(key=key) | TransferPiece(joiner=key):
                if key == self.key and self._machine.state is SEEKING:
                    self._codec.enter(life)
                return key == self.key and life == self._codec.life
        sender = packet.joiner if isinstance(packet, TransferRequest) else packet.sender
        if life != self._codec.life or sender == self.key or self._links.hear(sender):
            return life == self._codec.life and sender != self.key
        if self._sequences and self._machine.state in INSIDE:
            stop = Stop(sender, "the sequencer has removed this member")
            self._links.send((source,), [stop], out)
        return False

    def _refuse_terms(self, source: Address, out: list[Effect]) -> None:
        """A process has other options: one of us cannot be in this group."""
        size = len(self._view.members) if self._machine.state in INSIDE else 0
        if reason := self._admission.look(source, self._now_us, size, out):
            self._end = Fail(reason, Cause.REFUSED)
            self._machine.settle(None, out)

    # -- joining ----------------------------------------------------------------------------------

    def leads(self, event: core.Join) -> bool:
        return self._sequences

    def found(self, event: core.Join, out: list[Effect]) -> None:
        self._codec.enter(self._random.getrandbits(64) | 1)
        self._order.window = self._links.own.window
        self._roster[self.key] = RosterEntry(self.me, 0)
        self._order_view()
        out.append(Arm(Timer.BEAT, self._links.beat_us))

    def seek(self, event: object, out: list[Effect]) -> None:
        beat_us = self._links.beat_us
        out.append(Arm(Timer.BEAT, beat_us + self._random.randrange(beat_us)))
        self._links.send(EVERYONE, [JoinRequest(self.me)], out, NO_LIFE)

    def brings_state(self, packet: Welcome) -> bool:
        return packet.with_state

    def enter(self, packet: Welcome, out: list[Effect]) -> None:
        self._order = self._links.add(packet.sequencer, packet.first - 1).stream
        if packet.with_state:
            self._state = StateReceiver()
            self._request_state(self._state.ask(), out)

    def is_superseded(self, packet: Stop) -> bool:
        return packet.superseded_by > 0

    def give_up(self, packet: Stop, out: list[Effect]) -> None:
        cause = Cause.SUPERSEDED if packet.superseded_by else Cause.EXCLUDED
        self._end = Fail(packet.reason, cause, packet.superseded_by)

    def admit(self, packet: JoinRequest, out: list[Effect]) -> None:
        """The sequencer alone admits: a view that adds the joiner, which begins there."""
        joiner, key = packet.member, key_of(packet.member)
        answer: Welcome | Stop | None = None
        if key not in self._links.peers and (answer := self._objection(joiner, key)) is None:
            self._links.add(joiner, taken=self._links.own.end)
            self._roster[key] = RosterEntry(joiner, 0)
            self._order_view()
        if answer is None:
            first = self._links.peers[key].taken + 1
            answer = Welcome(key, self.me, first, self._config.with_state)
        self._links.send((joiner.address,), [answer], out)

    def _objection(self, joiner: Member, key: int) -> Stop | None:
        """A later incarnation replaces the one that is known; a namesake elsewhere waits."""
        if key in self._former:
            return Stop(key, f"{joiner} was a member before", joiner.incarnation)
        for other_key, (other, _) in list(self._roster.items()):
            if other.name == joiner.name and other.address == joiner.address:
                if other.incarnation > joiner.incarnation:
                    return Stop(key, f"{other} is a member", other.incarnation)
                self._remove(other_key)
            elif other.name == joiner.name:
                return Stop(key, f"the name {joiner.name} is taken by {other.address}")
        if len(self._roster) >= self._options["members_count_max"]:
            return Stop(key, "the group is full (members_count_max)")
        return None

    # -- the state --------------------------------------------------------------------------------

    def _request_state(self, what: tuple[int, int] | None, out: list[Effect]) -> None:
        if what is not None:
            self._links.send(self._links.addresses(), [TransferRequest(self.key, *what)], out)

    def serve_state(self, packet: TransferRequest, out: list[Effect]) -> None:
        if packet.pieces == 0:
            self._states.forget(packet.joiner)
        pieces = self._states.pieces(packet.joiner, packet.offset, packet.pieces)
        to = (self._links.peers[packet.joiner].member.address,)
        self._links.send(to, [TransferPiece(packet.joiner, *piece) for piece in pieces], out)

    def keep_state(self, event: core.Captured, out: list[Effect]) -> None:
        assert isinstance(event.key, int)
        self._states.keep_expected(event.key, event.state)

    def take_state(self, packet: TransferPiece, out: list[Effect]) -> None:
        assert self._state is not None
        self._state.take(packet.total, packet.offset, packet.piece)
        self._request_state(self._state.ask_ahead(), out)

    def has_state(self, event: object) -> bool:
        return self._state is not None and self._state.is_done()

    def adopt(self, event: object, out: list[Effect]) -> None:
        assert self._state is not None
        out.append(core.Adopt(self._state.state()))
        self._request_state((0, 0), out)
        self._state = None

    # -- messages ---------------------------------------------------------------------------------

    def multicast(self, event: core.Multicast, out: list[Effect]) -> None:
        service = event.service if isinstance(event.service, Service) else Service.AGREED
        for payload in event.messages:
            self._number += 1
            self._append(payload, 0, self.key, self._number, service)

    def _append(self, payload: bytes, flags: int, origin: int, number: int, service: int) -> None:
        """At the end of what we send: the order, or what we submit to it."""
        self._links.append(payload, flags, origin, number, service)
        if self._sequences and not flags:
            self._ordered += 1
            self._roster[origin] = self._roster[origin]._replace(number=number)

    def _order_view(self, *left: int) -> None:
        roster = Roster(self._ordered, tuple(self._roster.values()), left)
        self._append(encode(roster), VIEW, self.key, 0, 0)

    def _order_submissions(self) -> None:
        """What a member submitted enters the order once all of it is here."""
        own = self._links.own
        for key, link in list(self._links.peers.items()):
            while own.nbytes < self._config.window_bytes_max and key in self._roster:
                if (found := self._links.next_message(link.stream)) is None:
                    break
                first, payload = found
                if first.flags & BYE:
                    del self._roster[key]
                    self._order_view(key)
                    self._left[key] = own.end
                else:
                    self._append(payload, 0, key, first.number, first.service)
            if link.taken >= self._left.get(key, link.taken + 1):
                self._drop(key)

    def hold_back(self, event: core.Congested, out: list[Effect]) -> None:
        self._congested = event.on

    def _deliver(self, out: list[Effect]) -> None:
        messages: list[Message] = []
        while not self._congested and self._end is None:
            found = self._links.next_message(self._order)
            if messages and (found is None or found[0].flags & VIEW):
                out.append(core.Deliver(messages))
                messages = []
            if found is None:
                return
            first, payload = found
            if first.flags & VIEW:
                self._install(decode(Roster, payload), out)
                continue
            self._seq += 1
            self._numbers[first.origin] = first.number
            place = (self._view.id, self._seq, Service(first.service))
            messages.append(Message(self._members[first.origin], payload, first.number, *place))

    def _install(self, roster: Roster, out: list[Effect]) -> None:
        before, keys = self._view.members, {key_of(member): member for member, _ in roster.members}
        if self.key not in keys:
            left = self.key in roster.left
            removed = Fail("the sequencer removed us", Cause.EXCLUDED)
            self._end = core.Depart() if left else removed
            return
        if not self._sequences and not self._links.peers.keys() & keys.keys():
            self._end = Fail("the sequencer left", Cause.STOPPED)
            return
        left_now = [member for member in before if key_of(member) in roster.left]
        cut = () if before or self._sequences else roster.members
        name = f"{self._order.delivered}-{self._codec.life & 0xFFFFFF:06x}"
        founded = self._sequences and not before
        self._view = next_view(self.me, before, keys.values(), name, left_now, cut, founded)
        self._members, self._seq = keys, roster.seq
        self._numbers = {key_of(member): number for member, number in roster.members}
        out.append(core.Install(self._view))
        for member in self._view.joined:
            if self._sequences and self._config.with_state and member != self.me:
                self._states.expect(key_of(member))
                out.append(core.Capture(key_of(member)))

    # -- failures, and the end --------------------------------------------------------------------

    def beat(self, event: object, out: list[Effect]) -> None:
        out.append(Arm(Timer.BEAT, self._links.beat_us))
        self._links.report(out)
        if self._state is not None:
            self._request_state(self._state.ask_if_stalled(), out)
        for key in self._links.silent():
            if self._sequences:
                self._remove(key)
            else:
                self._end = Fail("the sequencer is silent", Cause.STOPPED)

    def _remove(self, key: int) -> None:
        self._drop(key)
        if self._roster.pop(key, None) is not None and self._machine.state is MEMBER:
            self._order_view()

    def _drop(self, key: int) -> None:
        self._links.drop(key)
        self._states.forget(key)
        self._left.pop(key, None)
        self._former.append(key)

    def leave(self, event: core.Leave, out: list[Effect]) -> None:
        if self._sequences:
            del self._roster[self.key]
            self._order_view(self.key)
        else:
            self._append(b"", BYE, self.key, self._number, 0)

    def all_have_the_order(self, event: object) -> bool:
        """Nobody needs the sequencer any more."""
        end = self._links.own.end
        done = self._sequences and self._order.delivered == end
        return done and all(link.taken >= end for link in self._links.peers.values())

    def has_ended(self, event: object) -> bool:
        return self._end is not None

    def end(self, event: object, out: list[Effect]) -> None:
        self._links.report(out)
        out += [core.Disarm(Timer.BEAT), self._end or core.Depart()]


S, L = Sequencer, Links
# fmt: off
ARROWS: Final = (
    #     from                on               when                  do              to
    Arrow(OUTSIDE,            core.Join,       S.leads,              S.found,        MEMBER),
    Arrow(OUTSIDE,            core.Join,       always,               S.seek,         SEEKING),
    Arrow((OUTSIDE, SEEKING, CATCHING_UP), core.Leave, always,       S.end,          DONE),
    Arrow(SEEKING,            Timer.BEAT,      always,               S.seek,         SEEKING),
    Arrow(SEEKING,            Welcome,         S.brings_state,       S.enter,        CATCHING_UP),
    Arrow(SEEKING,            Welcome,         always,               S.enter,        MEMBER),
    Arrow(SEEKING,            Stop,            S.is_superseded,      S.give_up,      SEEKING),
    Arrow(SEEKING,            Stop,            always,               stay,           SEEKING),

    Arrow((SEEKING, *INSIDE), None,            S.has_ended,          S.end,          DONE),
    Arrow(CATCHING_UP,        TransferPiece,   always,               S.take_state,   CATCHING_UP),
    Arrow(CATCHING_UP,        None,            S.has_state,          S.adopt,        MEMBER),
    Arrow(MEMBER,             core.Multicast,  always,               S.multicast,    MEMBER),
    Arrow(MEMBER,             JoinRequest,     always,               S.admit,        MEMBER),
    Arrow(MEMBER,             core.Leave,      always,               S.leave,        LEAVING),
    Arrow(LEAVING,            None,            S.all_have_the_order, S.end,          DONE),

    Arrow(INSIDE,             LinkData,        always,               L.take,         None),
    Arrow(INSIDE,             LinkBeat,        always,               L.answer,       None),
    Arrow(INSIDE,             Stop,            always,               S.give_up,      None),
    Arrow(INSIDE,             TransferRequest, always,               S.serve_state,  None),
    Arrow(INSIDE,             core.Captured,   always,               S.keep_state,   None),
    Arrow(INSIDE,             core.Congested,  always,               S.hold_back,    None),
    Arrow(INSIDE,             Timer.BEAT,      always,               S.beat,         None),
)
# fmt: on
REST: Final = (core.Join, core.Leave, core.Multicast, core.Congested, core.Captured, core.Restart)
EVENTS: Final = (*PACKETS.records, *REST, core.Unreachable, *Timer)
FIGURE: Final = Figure(
    "sequencer", start=OUTSIDE, arrows=(*ARROWS, *discarded(ARROWS, State, EVENTS))
)
