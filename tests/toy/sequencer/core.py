"""A member of the sequencer protocol.

Members submit their messages to the sequencer, which numbers them and sends them to all; a view is
an entry of the same order. Each side keeps what it sent until it is acknowledged, and sends again
what the other reports missing. When the sequencer is lost, every member stops.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import auto
from random import Random
from typing import Any, Final

from tests.toy.sequencer.packets import (
    BYE,
    CHUNK_BYTES,
    DATA_BYTES,
    KIND_OF,
    KINDS,
    PROTOCOL,
    VIEW,
    Beat,
    Chunk,
    Data,
    JoinRequest,
    Packet,
    Roster,
    RosterEntry,
    Stop,
    Welcome,
    read,
)
from unisono.core import (
    EVERYONE,
    Adopt,
    Arm,
    Capture,
    Captured,
    Cause,
    Congested,
    CoreConfig,
    Deliver,
    Depart,
    Disarm,
    Effect,
    Event,
    Fail,
    Install,
    Join,
    Leave,
    Multicast,
    Received,
    Restart,
    Send,
    Target,
    Unreachable,
)
from unisono.errors import BadPacket
from unisono.fsa import Arrow, Figure, Machine, Named, always, stay
from unisono.layout import decode, encode, size_of
from unisono.model import Address, Member, Message, Service, View
from unisono.parts.admission import Admission, Terms
from unisono.parts.codec import PacketCodec
from unisono.parts.detector import Detector
from unisono.parts.fragment_stream import FragmentStream, marked
from unisono.parts.identity import key_of
from unisono.parts.nak_stream import ReceiveStream, SendStream, packet_loads
from unisono.parts.options import checked
from unisono.parts.packing import fragments
from unisono.parts.state_transfer import StateReceiver, StateServer, TransferPiece, TransferRequest
from unisono.parts.views import next_view
from unisono.wire import ENVELOPE_BYTES, NO_LIFE

DEFAULTS: Final = {"sequencer": 0, "detect_us": 1_000_000, "members_count_max": 32}
BOUNDS: Final = {
    "sequencer": (0, 1),
    "detect_us": (20_000, 3_600_000_000),
    "members_count_max": (1, 256),
}
FLIGHT_BYTES: Final = 256 << 10
REPAIR_PACKETS_MAX: Final = 32
FORMER_MAX: Final = 1024


class State(Named):
    OUTSIDE = auto()
    SEEKING = auto()
    CATCHING_UP = auto()
    MEMBER = auto()
    LEAVING = auto()
    DONE = auto()


class Timer(Named):
    SEEK = auto()
    BEAT = auto()
    NAK = auto()


OUTSIDE, SEEKING, CATCHING_UP, MEMBER, LEAVING, DONE = State
INSIDE: Final = (CATCHING_UP, MEMBER, LEAVING)


class Peer:
    """A member as the sequencer sees it; to a member, the sequencer."""

    def __init__(self, member: Member, start: int = 0, delivered: int = 0) -> None:
        self.member = member
        self.stream: ReceiveStream[Chunk] = ReceiveStream(start)
        self.delivered = delivered
        """The last chunk of ours that it reports to have delivered."""
        self.left_at = 0
        """The last chunk of the view without it, once it has left."""


class Sequencer:
    """One process: the sequencer, or a member that submits to it."""

    def __init__(self, config: CoreConfig) -> None:
        options = checked("sequencer", DEFAULTS, config.options, BOUNDS)
        terms = Terms.of(config, "sequencer", {k: options[k] for k in options if k != "sequencer"})
        self.me, self.key = config.me, key_of(config.me)
        self._config, self._options = config, options
        self._random = Random(config.seed)
        self._codec = PacketCodec(PROTOCOL, KINDS, terms)
        self._admission = Admission(self._codec, terms)
        self._machine = Machine(FIGURE, self)
        self._beat_us = options["detect_us"] // 8
        self._detector: Detector[int] = Detector(options["detect_us"], self._beat_us)
        self._sequences = bool(options["sequencer"])
        self._peers: dict[int, Peer] = {}
        self._own: SendStream[Chunk] = SendStream(FLIGHT_BYTES)
        """What we send: the order, or what we submit to it."""
        self._order: FragmentStream[Chunk] = FragmentStream()
        self._unreported = 0
        self._now_us = 0
        self._congested = self._nak_armed = False
        self._end: Effect | None = None
        # The application's stream, as of the last delivery.
        self._view = View(())
        self._members: dict[int, Member] = {}
        self._seq = 0
        self._numbers: dict[int, int] = {}
        self._number = 0
        # The same as of the last chunk ordered: the sequencer's.
        self._roster: dict[int, RosterEntry] = {}
        self._ordered = 0
        self._former: dict[int, None] = {}
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
        return max(0, self._config.window_bytes_max - self._own.nbytes) if may_send else 0

    def step(self, now_us: int, event: Event) -> list[Effect]:
        self._now_us = now_us
        out: list[Effect] = []
        if isinstance(event, Received):
            for envelope in self._codec.admit(event.packets):
                try:
                    packet = read(envelope)
                except BadPacket as bad:
                    self._codec.drop(bad.reason)
                    continue
                if self._is_for_us(packet, envelope.life, event.source, out):
                    self._machine.fire(packet, out)
            if self._codec.odd:
                self._refuse_terms(event.source, out)
        else:
            self._machine.fire(event, out)
        if self._machine.state in INSIDE:
            self._conclude(out)
            self._machine.settle(event, out)
        return out

    def _is_for_us(self, packet: Packet, life: int, source: Address, out: list[Effect]) -> bool:
        match packet:
            case JoinRequest():
                return self._sequences and packet.member != self.me
            case Welcome(joiner=key) | Stop(key=key):
                if key == self.key and self._machine.state is SEEKING:
                    self._codec.life = life
                return key == self.key and life == self._codec.life
            case TransferPiece(joiner=key):
                return key == self.key and life == self._codec.life
            case Data(sender=key) | Beat(sender=key) | TransferRequest(joiner=key):
                sender = key
        if life != self._codec.life or sender == self.key:
            return False
        if sender in self._peers:
            self._detector.hear(sender, self._now_us)
            return True
        if self._sequences and self._machine.state in INSIDE:
            self._send((source,), Stop(sender, "the sequencer has removed this member"), out=out)
        return False

    def _refuse_terms(self, source: Address, out: list[Effect]) -> None:
        """A process has other options: one of us cannot be in this group."""
        inside = self._machine.state in INSIDE
        size = len(self._view.members) if inside else 0
        if reason := self._admission.look(source, self._now_us, size, out):
            self._end = Fail(reason, Cause.REFUSED)
            self._machine.settle(None, out)

    # -- joining ----------------------------------------------------------------------------------

    def leads(self, event: Join) -> bool:
        return self._sequences

    def found(self, event: Join, out: list[Effect]) -> None:
        self._codec.life = self._random.getrandbits(64) | 1
        self._order.window = self._own.window
        self._roster[self.key] = RosterEntry(self.me, 0)
        self._order_view()
        out.append(Arm(Timer.BEAT, self._beat_us))

    def seek(self, event: object, out: list[Effect]) -> None:
        out.append(Arm(Timer.SEEK, self._beat_us + self._random.randrange(self._beat_us)))
        self._send(EVERYONE, JoinRequest(self.me), life=NO_LIFE, out=out)

    def brings_state(self, packet: Welcome) -> bool:
        return packet.with_state

    def enter(self, packet: Welcome, out: list[Effect]) -> None:
        sequencer = Peer(packet.sequencer, packet.first - 1)
        self._peers = {key_of(packet.sequencer): sequencer}
        self._order = sequencer.stream
        self._detector.keep(self._peers, self._now_us)
        if packet.with_state:
            self._state = StateReceiver()
            self._request_state(self._state.ask(), out)
        out += [Disarm(Timer.SEEK), Arm(Timer.BEAT, self._beat_us)]

    def is_superseded(self, packet: Stop) -> bool:
        return packet.superseded_by > 0

    def give_up(self, packet: Stop, out: list[Effect]) -> None:
        cause = Cause.SUPERSEDED if packet.superseded_by else Cause.EXCLUDED
        self._end = Fail(packet.reason, cause, packet.superseded_by)

    def admit(self, packet: JoinRequest, out: list[Effect]) -> None:
        """The sequencer alone admits: a view that adds the joiner, which begins there."""
        joiner, key = packet.member, key_of(packet.member)
        if (known := self._peers.get(key)) is None:
            if refusal := self._objection(joiner, key):
                self._send((joiner.address,), refusal, out=out)
                return
            known = self._peers[key] = Peer(joiner, delivered=self._own.end)
            self._roster[key] = RosterEntry(joiner, 0)
            self._detector.watch(key, self._now_us)
            self._order_view()
        welcome = Welcome(key, self.me, known.delivered + 1, self._config.with_state)
        self._send((joiner.address,), welcome, out=out)

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

    def _request_state(self, what: tuple[int, int], out: list[Effect]) -> None:
        (sequencer,) = self._peers.values()
        self._send((sequencer.member.address,), TransferRequest(self.key, *what), out=out)

    def serve_state(self, packet: TransferRequest, out: list[Effect]) -> None:
        pieces = self._states.pieces(packet.joiner, packet.offset, packet.pieces)
        to = (self._peers[packet.joiner].member.address,)
        self._send(to, *(TransferPiece(packet.joiner, *piece) for piece in pieces), out=out)

    def keep_state(self, event: Captured, out: list[Effect]) -> None:
        assert isinstance(event.key, int)
        self._states.keep(event.key, event.state)

    def take_state(self, packet: TransferPiece, out: list[Effect]) -> None:
        assert self._state is not None
        self._state.take(packet.total, packet.offset, packet.piece)
        if (request := self._state.ask_ahead()) is not None:
            self._request_state(request, out)

    def has_state(self, event: object) -> bool:
        return self._state is not None and self._state.is_done()

    def adopt(self, event: object, out: list[Effect]) -> None:
        assert self._state is not None
        out.append(Adopt(self._state.state()))
        self._request_state((0, 0), out)
        self._state = None

    # -- messages ---------------------------------------------------------------------------------

    def multicast(self, event: Multicast, out: list[Effect]) -> None:
        service = event.service if isinstance(event.service, Service) else Service.AGREED
        for payload in event.messages:
            self._number += 1
            self._append(payload, 0, self.key, self._number, service)

    def _append(self, payload: bytes, flags: int, origin: int, number: int, service: int) -> None:
        """The message in chunks, at the end of what we send."""
        room = self._config.packet_bytes_max - DATA_BYTES - CHUNK_BYTES
        pieces = marked(fragments(payload, room, room))
        self._own.append(Chunk(flags | mark, origin, number, service, p) for mark, p in pieces)
        if self._sequences and not flags & VIEW:
            self._ordered += 1
            self._roster[origin] = RosterEntry(self._roster[origin].member, number)

    def _order_view(self, *left: int) -> None:
        roster = Roster(self._ordered, tuple(self._roster.values()), left)
        self._append(encode(roster), VIEW, self.key, 0, 0)

    def _order_submissions(self) -> None:
        """What a member submitted enters the order once all of it is here."""
        for key, peer in list(self._peers.items()):
            while self._own.nbytes < self._config.window_bytes_max and key in self._roster:
                if not (last := peer.stream.complete()):
                    break
                first, payload = peer.stream.take(last)
                peer.stream.window.forget(last)
                if first.flags & BYE:
                    del self._roster[key]
                    self._order_view(key)
                    peer.left_at = self._own.end
                else:
                    self._append(payload, 0, key, first.number, first.service)

    def take(self, packet: Data, out: list[Effect]) -> None:
        if not self._peers[packet.sender].stream.put(packet.first, packet.chunks):
            self._codec.drop("duplicate")

    def answer(self, packet: Beat, out: list[Effect]) -> None:
        """Note what the sender has, and send again what it lacks."""
        peer = self._peers[packet.sender]
        peer.stream.reported = max(peer.stream.reported, packet.sent)
        peer.delivered = max(peer.delivered, min(packet.delivered, self._own.sent))
        for first, last in packet.missing:
            packets = self._packets(*self._own.again(first, last))[:REPAIR_PACKETS_MAX]
            self._codec.count("repair", len(packets))
            self._send((peer.member.address,), *packets, out=out)

    def hold_back(self, event: Congested, out: list[Effect]) -> None:
        self._congested = event.on

    # -- what follows from an event ---------------------------------------------------------------

    def _conclude(self, out: list[Effect]) -> None:
        if self._sequences and self._machine.state is MEMBER:
            self._order_submissions()
        if self._state is None:
            self._deliver(out)
        self._send(self._addresses(), *self._packets(*self._own.due()), out=out)
        if self._sequences:
            self._clean_up()
        if self._unreported >= FLIGHT_BYTES // 4:
            self._report(out)
        if not self._nak_armed:
            self._request_missing(out)

    def _deliver(self, out: list[Effect]) -> None:
        messages: list[Message] = []
        while not self._congested and self._end is None and (last := self._order.complete()):
            chunks = last - self._order.delivered
            first, payload = self._order.take(last)
            self._unreported += len(payload)
            if first.flags & VIEW:
                if messages:
                    out.append(Deliver(messages))
                    messages = []
                self._install(decode(Roster, payload), out)
                continue
            self._seq += 1
            self._numbers[first.origin] = first.number
            if first.origin == self.key and not self._sequences:
                self._own.acknowledge(self._own.window.floor + chunks)
            sender, service = self._members[first.origin], Service(first.service)
            place = (self._view.id, self._seq, service)
            messages.append(Message(sender, payload, first.number, *place))
        if messages:
            out.append(Deliver(messages))

    def _install(self, roster: Roster, out: list[Effect]) -> None:
        before, keys = self._view.members, {key_of(member): member for member, _ in roster.members}
        if self.key not in keys:
            left = self.key in roster.left
            self._end = Depart() if left else Fail("the sequencer removed us", Cause.EXCLUDED)
            return
        if not self._sequences and not self._peers.keys() & keys.keys():
            self._end = Fail("the sequencer left", Cause.STOPPED)
            return
        left_now = [member for member in before if key_of(member) in roster.left]
        cut = () if before or self._sequences else roster.members
        name = f"{self._order.delivered}-{self._codec.life & 0xFFFFFF:06x}"
        founded = self._sequences and not before
        self._view = next_view(self.me, before, keys.values(), name, left_now, cut, founded)
        self._members, self._seq = keys, roster.seq
        self._numbers = {key_of(member): number for member, number in roster.members}
        out.append(Install(self._view))
        for member in self._view.joined:
            if self._sequences and self._config.with_state and member != self.me:
                self._states.expect(key_of(member))
                out.append(Capture(key_of(member)))

    def _packets(self, first: int, chunks: list[Chunk]) -> list[Data]:
        room = self._config.packet_bytes_max - DATA_BYTES
        return [Data(self.key, *load) for load in packet_loads(first, chunks, room, CHUNK_BYTES)]

    def _clean_up(self) -> None:
        """Forget what all have delivered; a leaver is done when it has the view without it."""
        for key, peer in list(self._peers.items()):
            if peer.left_at and peer.delivered >= peer.left_at:
                self._drop(key)
        everywhere = (peer.delivered for peer in self._peers.values())
        self._own.acknowledge(min((self._order.delivered, *everywhere)))

    def _request_missing(self, out: list[Effect]) -> None:
        for peer in self._peers.values():
            if missing := peer.stream.missing():
                self._codec.count("nak", len(missing))
                beat = Beat(self.key, self._own.sent, self._order.delivered, missing)
                self._send((peer.member.address,), beat, out=out)
                self._nak_armed = True
        if self._nak_armed:
            out.append(Arm(Timer.NAK, self._beat_us // 4))

    def nak(self, event: object, out: list[Effect]) -> None:
        self._nak_armed = False

    # -- failures ---------------------------------------------------------------------------------

    def beat(self, event: object, out: list[Effect]) -> None:
        out.append(Arm(Timer.BEAT, self._beat_us))
        self._report(out)
        if self._state is not None and (request := self._state.ask_if_stalled()):
            self._request_state(request, out)
        self._detector.look(self._now_us)
        for key in [key for key in self._peers if self._detector.is_silent(key)]:
            if self._sequences:
                self._remove(key)
            else:
                self._end = Fail("the sequencer is silent", Cause.STOPPED)

    def _remove(self, key: int) -> None:
        self._drop(key)
        if self._roster.pop(key, None) is not None and self._machine.state is MEMBER:
            self._order_view()

    def _drop(self, key: int) -> None:
        del self._peers[key]
        self._detector.forget(key)
        self._states.forget(key)
        self._former[key] = None
        if len(self._former) > FORMER_MAX:
            del self._former[next(iter(self._former))]

    def _report(self, out: list[Effect]) -> None:
        self._unreported = 0
        self._send(
            self._addresses(), Beat(self.key, self._own.sent, self._order.delivered), out=out
        )

    # -- the end ----------------------------------------------------------------------------------

    def leave(self, event: Leave, out: list[Effect]) -> None:
        if self._sequences:
            del self._roster[self.key]
            self._order_view(self.key)
        else:
            self._append(b"", BYE, self.key, self._number, 0)

    def all_have_the_order(self, event: object) -> bool:
        """Nobody needs the sequencer any more."""
        done = self._sequences and self._order.delivered == self._own.end
        return done and all(p.delivered >= self._own.end for p in self._peers.values())

    def has_ended(self, event: object) -> bool:
        return self._end is not None

    def end(self, event: object, out: list[Effect]) -> None:
        self._report(out)
        out += [Disarm(timer) for timer in Timer]
        out.append(self._end or Depart())

    # -- packets ----------------------------------------------------------------------------------

    def _addresses(self) -> tuple[Address, ...]:
        return tuple(peer.member.address for peer in self._peers.values())

    def _send(self, to: Target, *packets: Any, out: list[Effect], life: int | None = None) -> None:
        if packets and to != ():
            sealed = [self._codec.seal(KIND_OF[type(p)], encode(p), life) for p in packets]
            out.append(Send(to, sealed))


PACKETS: Final = (JoinRequest, Welcome, Stop, Data, Beat, TransferRequest, TransferPiece)
LOCAL: Final = (Join, Leave, Multicast, Congested, Captured, Restart, Unreachable, *Timer)
S = Sequencer
# fmt: off
ARROWS: Final = (
    #     from                on              when                do                to
    Arrow(OUTSIDE,            Join,           S.leads,            S.found,          MEMBER),
    Arrow(OUTSIDE,            Join,           always,             S.seek,           SEEKING),
    Arrow((OUTSIDE, SEEKING, CATCHING_UP), Leave, always,         S.end,            DONE),
    Arrow(SEEKING,            Timer.SEEK,     always,             S.seek,           SEEKING),
    Arrow(SEEKING,            Welcome,        S.brings_state,     S.enter,          CATCHING_UP),
    Arrow(SEEKING,            Welcome,        always,             S.enter,          MEMBER),
    Arrow(SEEKING,            Stop,           S.is_superseded,    S.give_up,        SEEKING),
    Arrow(SEEKING,            Stop,           always,             stay,             SEEKING),

    Arrow((SEEKING, *INSIDE), None,           S.has_ended,        S.end,            DONE),
    Arrow(CATCHING_UP,        TransferPiece,     always,             S.take_state,     CATCHING_UP),
    Arrow(CATCHING_UP,        None,           S.has_state,        S.adopt,          MEMBER),
    Arrow(MEMBER,             Multicast,      always,             S.multicast,      MEMBER),
    Arrow(MEMBER,             JoinRequest,    always,             S.admit,          MEMBER),
    Arrow(MEMBER,             Leave,          always,             S.leave,          LEAVING),
    Arrow(LEAVING,            None,           S.all_have_the_order, S.end,          DONE),

    Arrow(INSIDE,             Data,           always,             S.take,           None),
    Arrow(INSIDE,             Beat,           always,             S.answer,         None),
    Arrow(INSIDE,             Stop,           always,             S.give_up,        None),
    Arrow(INSIDE,             TransferRequest,   always,             S.serve_state,    None),
    Arrow(INSIDE,             Captured,       always,             S.keep_state,     None),
    Arrow(INSIDE,             Congested,      always,             S.hold_back,      None),
    Arrow(INSIDE,             Timer.BEAT,     always,             S.beat,           None),
    Arrow(INSIDE,             Timer.NAK,      always,             S.nak,            None),
)
# fmt: on
DECIDED: Final = {
    (state, arrow.on)
    for arrow in ARROWS
    for state in (arrow.source if isinstance(arrow.source, tuple) else (arrow.source,))
}
REST: Final = (
    Arrow(state, on, always, stay, None)
    for state in State
    for on in (*PACKETS, *LOCAL)
    if (state, on) not in DECIDED
)
FIGURE: Final = Figure("sequencer", start=OUTSIDE, arrows=(*ARROWS, *REST))
