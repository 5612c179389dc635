"""The member: takes events, runs the figure, and gathers what each burst leads to."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from unisono.core import (
    Arm,
    Cause,
    CoreConfig,
    Deliver,
    Depart,
    Disarm,
    Effect,
    Event,
    Expired,
    Fail,
    Install,
    Multicast,
    Probe,
    Received,
    Send,
)
from unisono.errors import BadPacket
from unisono.fsa import Machine
from unisono.layout import encode
from unisono.model import Address, Member, Service
from unisono.parts.admission import Admission, Terms
from unisono.parts.codec import PacketCodec
from unisono.protocols.rmcast.control import Add, Bye, read_control
from unisono.protocols.rmcast.failure import Failures
from unisono.protocols.rmcast.figure import FIGURE, INSIDE, MemberState, Timer
from unisono.protocols.rmcast.membership import Membership
from unisono.protocols.rmcast.merging import Merging
from unisono.protocols.rmcast.ordering import REPORT_BYTES, Ordering, entries_max
from unisono.protocols.rmcast.packets import (
    ASK_BYTES,
    BEAT_BYTES,
    KINDS,
    NO_HEADER,
    PROTOCOL,
    Announce,
    Ask,
    Beat,
    FromMember,
    Header,
    MessagePart,
    Packet,
    PacketKind,
    Refuse,
    Seek,
    StreamStatus,
    Welcome,
    WelcomePart,
    additions,
    key_of,
    read,
    write_header,
)
from unisono.protocols.rmcast.parameters import DEFAULTS, Parameters
from unisono.protocols.rmcast.roster import PeerState, Roster
from unisono.wire import ENVELOPE_BYTES, Envelope, read_once

_FROM_OUTSIDE = (Seek, Announce, Refuse)
_GONE = (StreamStatus.FAILED, StreamStatus.CLOSED)


class Rmcast:
    """A member of an rmcast group: see the README beside this file for the paper."""

    def __init__(self, setting: CoreConfig) -> None:
        self.me = setting.me
        self.packet_bytes_max = setting.packet_bytes_max
        self.parameters = Parameters.of(setting.options)
        terms = Terms.of(setting, "rmcast", {**DEFAULTS, **setting.options})
        self.codec = PacketCodec(PROTOCOL, KINDS, terms)
        self.admission = Admission(self.codec, terms)
        self.roster = Roster(setting.me, entries_max(setting.packet_bytes_max))
        self.ordering = Ordering(setting, self.roster, self.codec)
        self.detector = Failures(self.parameters, self.roster, self.ordering)
        self.random = Random(setting.seed)
        self.membership = Membership(self, setting.with_state)
        self.merging = Merging(self)
        self.machine = Machine(FIGURE, self)
        self.now_us = 0
        self.incoming_life = 0
        self.asking = False
        self.probing = False
        self.congested = False
        self.leaving = False
        self._changed = False
        """Somebody came or left, and the application has not seen it yet."""
        self._removed = False
        """Likewise, somebody failed."""

    # -- the contract ----------------------------------------------------------------------------

    @property
    def counts(self) -> dict[str, int]:
        return self.codec.counts

    def send_credit(self) -> int:
        """While the application cannot take more, it may not say more: it would hear it too."""
        if self.machine.state is not MemberState.MEMBER or self.congested:
            return 0
        return self.ordering.send_credit()

    def held(self) -> Mapping[Member, int]:
        return self.ordering.held()

    def transition_counts(self) -> Mapping[str, int]:
        return self.machine.walked

    def step(self, now_us: int, event: Event) -> list[Effect]:
        self.now_us = now_us
        if self.roster.leavers:
            self.detector.part(now_us)
        out: list[Effect] = []
        if isinstance(event, Received):
            for envelope in self.codec.admit(event.packets):
                packet = self._open(envelope, event.source, out)
                if packet is not None:
                    self.machine.fire(packet, out)
            if self.codec.odd:
                self._look_at_odd(event.source, out)
        else:
            self.machine.fire(event, out)
        if self.machine.state in INSIDE and not self._may_rest(event):
            self._conclude(event, out)
        return out

    def _may_rest(self, event: Event) -> bool:
        """Whether nothing follows: most heartbeats tell what was told before."""
        routine = type(event) is Received or type(event) is Expired
        return routine and self.roster.is_at_rest() and self.detector.verdict is None

    def about(self, period_us: int) -> int:
        """Not all at once."""
        return period_us + self.random.randrange(period_us // 4 + 1)

    def is_recent(self, stamp: int) -> bool:
        """Whether we gave this stamp lately."""
        age_us = self.now_us - stamp
        return bool(stamp) and 0 <= age_us <= self.parameters.detect_us // 2

    # -- what came in ----------------------------------------------------------------------------

    def _open(
        self, envelope: Envelope, source: Address, out: list[Effect]
    ) -> Packet | Welcome | None:
        """The packet, if its life and its sender are right."""
        try:
            packet = read_once(read, envelope.kind, envelope.body)
            if isinstance(packet, WelcomePart):
                self.incoming_life = envelope.life
                return self.membership.assemble(packet, envelope.life)
        except BadPacket as bad:
            self.codec.drop(bad.reason)
            return None
        if isinstance(packet, _FROM_OUTSIDE):
            if type(packet) is Seek and packet.member == self.me:
                self.codec.drop("own")
                return None
            return packet
        if envelope.life != self.codec.life:
            self.codec.drop("life")
            return None
        header = packet.header
        if header.sender == self.roster.key:
            self.codec.drop("own")
            return None
        peer = self.roster.peers.get(header.sender)
        if peer is None or peer.status in _GONE:
            self._turn_away(packet, source, out)
            return None
        if isinstance(packet, Beat) and packet.expels:
            if packet.expels != self.roster.key:
                self.codec.drop("former")  # It is for one that lived here before.
                return None
            self.detector.stop(f"{peer.member} holds this member for failed")
        self.detector.hear(peer, header, self.now_us)
        return packet

    def _look_at_odd(self, source: Address, out: list[Effect]) -> None:
        """Somebody has other options than we have: one of us is at the wrong door."""
        inside = self.machine.state in INSIDE
        size = len(self.roster.group()) if inside else 0
        reason = self.admission.look(source, self.now_us, size, out)
        if reason and inside:
            self.detector.stop(reason, Cause.REFUSED)
        elif reason:
            self.machine.fire(Refuse(self.roster.key, reason, final=True), out)

    def _turn_away(self, packet: FromMember, source: Address, out: list[Effect]) -> None:
        """[RMC A3.12] Only members are listened to. One that was removed is told so."""
        key = packet.header.sender
        if key not in self.roster.peers and key not in self.roster.tombs:
            self.codec.drop("stranger")
            return
        self.codec.drop("removed")
        theirs = {k for k, e in packet.header.entries.items() if e.status is StreamStatus.MEMBER}
        ours = {peer.key for peer in self.roster.group()}
        if len(theirs - ours) > len(ours):
            # Perhaps it was we who were cut off, and those we removed go on and are more; perhaps
            # this packet is late. Their announcement will tell.
            return
        told_us = self.detector.expelled.get(key, -self.parameters.beat_us)
        if self.now_us - told_us < self.parameters.beat_us:
            return
        if not (isinstance(packet, Beat) and packet.expels):
            self.detector.expelled[key] = self.now_us
            body = self.header_bytes() + encode(Beat(NO_HEADER, expels=key))
            out.append(Send((source,), [self.codec.seal(PacketKind.BEAT, body)]))

    # -- what follows from a burst ---------------------------------------------------------------

    def _conclude(self, event: Event, out: list[Effect]) -> None:
        """Once a burst: deliver, settle, clean up, ask, send."""
        moved = self.congested or self.leaving or self.membership.catching_up()
        if not self.congested and not self.membership.catching_up():
            moved = self._deliver(out) or moved
        audience = self.roster.audience()
        news = not audience
        for peer in audience:
            news |= peer.promote()
        if self.leaving:
            self.membership.note_answers()
        self._removed |= self.detector.close()
        # One view for all who fail together: it waits for the last of them.
        if self._removed and not self.roster.unsettled() and not self.membership.catching_up():
            self.install(out)
        if news:
            self.ordering.clean_up(audience)
        self._send_own(out)
        self._report(out)
        self._ask(out)
        if not (moved or self._removed or self.ordering.waiting):
            self.roster.rest()
        self.machine.settle(event, out)

    def _deliver(self, out: list[Effect]) -> bool:
        """Whether there was anything to deliver or to obey."""
        moved = False
        while True:
            if self._changed:
                self.install(out)
            messages, control = self.ordering.deliverable()
            if messages:
                out.append(Deliver(messages))
            moved = moved or bool(messages) or control is not None
            if control is None:
                return moved
            self._obey(*control)

    def _obey(self, peer: PeerState, chunk: MessagePart) -> None:
        """A control message, at its place in the causal order."""
        try:
            order = read_control(chunk.payload)
        except BadPacket as bad:
            self.codec.drop(bad.reason)
            return
        if isinstance(order, Add):
            key = key_of(order.member)
            if key not in self.roster.peers and key not in self.roster.tombs:
                self.roster.add(order.member, order.rank, self.now_us)
                self._changed = True
                self.membership.check_size()
        elif isinstance(order, Bye) and peer.status in (StreamStatus.MEMBER, StreamStatus.FAILED):
            self.roster.mark(peer, StreamStatus.LEFT)
            self._changed = True
            peer.unreported = REPORT_BYTES  # It waits to hear that we know.

    def install(self, out: list[Effect], cut: bool = False) -> None:
        """Show the application who is listening, if that has changed."""
        before = self.roster.shown
        view = self.roster.view(cut=cut)
        self._changed = self._removed = False
        if view.members != before:
            self.ordering.view = view.id
            self.admission.entered(self.now_us)
            out.append(Install(view))

    # -- what goes out ---------------------------------------------------------------------------

    def header_bytes(self) -> bytes:
        return write_header(self.roster.header(self.ordering.sent))

    def bare_header(self) -> bytes:
        """For packets that leave no room for its lines."""
        return write_header(Header(self.roster.key, {}))

    def multicast(self, event: Multicast, out: list[Effect]) -> None:
        """Algorithm 1. Our own copies are delivered before anything leaves."""
        # Deviates [RMC A1.9]: messages said together share packets and one header, and at most
        # FLIGHT_BYTES are under way; the paper sends each by itself.
        service = event.service if isinstance(event.service, Service) else Service.CAUSAL
        out.append(Deliver(self.ordering.say(event.messages, service)))

    def _send_own(self, out: list[Effect]) -> None:
        packets = self.ordering.pump()
        if packets:
            self._to_others(packets, out)

    def _to_others(self, packets: list[bytes], out: list[Effect]) -> None:
        peers = self.roster.audience() if self.leaving else self.roster.others()
        for peer in peers:
            peer.sent_us, peer.unreported = self.now_us, 0
        if peers:
            out.append(Send(tuple(peer.member.address for peer in peers), packets))

    def _report(self, out: list[Effect]) -> None:
        """Who sends much hears from us before the next heartbeat: it may be waiting for room."""
        peers = [p for p in self.roster.peers.values() if p.unreported >= REPORT_BYTES]
        if peers:
            for peer in peers:
                peer.unreported = 0
            body = self.header_bytes() + encode(Beat(NO_HEADER))
            to = tuple(peer.member.address for peer in peers)
            out.append(Send(to, [self.codec.seal(PacketKind.BEAT, body)]))

    def answer(self, packet: Beat, out: list[Effect]) -> None:
        peer = self.roster.peers[packet.header.sender]
        packets = self.ordering.answer(packet.asks, packet.round)
        if packet.probes:
            body = self.header_bytes() + encode(Beat(NO_HEADER))
            packets.append(self.codec.seal(PacketKind.BEAT, body))
        if packets:
            out.append(Send((peer.member.address,), packets))

    def _ask(self, out: list[Effect]) -> None:
        """[RMC A3.47] Ask everyone who is known to have what we lack."""
        asks, rounds, holders = self.ordering.gaps(self.now_us, self.parameters.ask_us)
        if asks and holders:
            self.codec.count("nak", len(asks))
            body = self._beat_with(asks, rounds)
            to = tuple(peer.member.address for peer in holders)
            out.append(Send(to, [self.codec.seal(PacketKind.BEAT, body)]))
        if self.ordering.waiting and not self.asking:
            self.asking = True
            out.append(Arm(Timer.ASK, self.parameters.ask_us))

    def _beat_with(self, asks: tuple[Ask, ...], rounds: int) -> bytes:
        """A heartbeat with as many requests as fit; the others come with the next."""
        header = self.header_bytes()
        room = self.packet_bytes_max - ENVELOPE_BYTES - len(header) - BEAT_BYTES
        fitting = asks[: max(0, room // ASK_BYTES)]
        return header + encode(Beat(NO_HEADER, min(rounds, 255), asks=fitting))

    def beat(self, out: list[Effect]) -> None:
        """Algorithm 2: remove the silent; to those not written to lately, a heartbeat, and with it
        every request that is open."""
        out.append(Arm(Timer.BEAT, self.parameters.beat_us))
        self.detector.look(self.now_us)
        due = self.now_us - self.parameters.beat_us // 2
        peers = [peer for peer in self.roster.others() if peer.sent_us <= due]
        leavers, coming = self.roster.leavers, self._coming()
        asks, rounds, _ = self.ordering.gaps(self.now_us, 0)
        if asks:
            self.codec.count("nak", len(asks))
        if peers or leavers or coming:
            for peer in peers:
                peer.sent_us, peer.unreported = self.now_us, 0
            body = self._beat_with(asks, rounds)
            to = *(peer.member.address for peer in (*peers, *leavers)), *coming
            out.append(Send(to, [self.codec.seal(PacketKind.BEAT, body)]))
        self.membership.tick(out)
        if not self.probing:
            self.probe(out)

    def _coming(self) -> list[Address]:
        """While nothing can be delivered, an addition waits in its stream, but the newcomer counts
        us in already: without a sign of life from us it would have us removed."""
        if not (self.congested or self.membership.catching_up()):
            return []
        peers, tombs = self.roster.peers, self.roster.tombs
        named = [member for peer in peers.values() for member in additions(peer.undelivered())]
        return [each.address for each in named if key_of(each) not in {*peers, *tombs}]

    def probe(self, out: list[Effect]) -> None:
        """Whoever was not heard for some heartbeats is asked for a sign, and often: each pair must
        hear each other, and where packets are lost a few heartbeats in a row are too."""
        # Deviates [RMC A2.4]: the paper removes whoever did not send in time.
        quiet = self.detector.quiet(self.now_us)
        self.probing = bool(quiet)
        if quiet:
            out.append(Arm(Timer.PROBE, self.parameters.ask_us))
            body = self.header_bytes() + encode(Beat(NO_HEADER, probes=True))
            to = tuple(peer.member.address for peer in quiet)
            out.append(Probe(to))
            out.append(Send(to, [self.codec.seal(PacketKind.BEAT, body)]))

    # -- the end ---------------------------------------------------------------------------------

    def depart(self, out: list[Effect]) -> None:
        self._tell_end(StreamStatus.LEFT, out)
        self._disarm(out)
        out.append(Depart())

    def abandon(self, out: list[Effect]) -> None:
        """Gone before it was really here."""
        self._tell_end(StreamStatus.FAILED, out)
        self._disarm(out)
        out.append(Depart())

    def stop(self, reason: str, cause: Cause, out: list[Effect], known: int = 0) -> None:
        """[RMC A3.21] quit(), with a reason that the application sees."""
        self._tell_end(StreamStatus.FAILED, out)
        self._disarm(out)
        out.append(Fail(reason, cause, known))

    def _tell_end(self, how: StreamStatus, out: list[Effect]) -> None:
        """Our last header says of ourselves that we failed or left: nobody waits to find out."""
        if self.roster.key in self.roster.peers:
            to = tuple(peer.member.address for peer in self.roster.audience())
            self.roster.mark(self.roster.mine(), how)
            body = self.header_bytes() + encode(Beat(NO_HEADER))
            if to:
                out.append(Send(to, [self.codec.seal(PacketKind.BEAT, body)]))

    def _disarm(self, out: list[Effect]) -> None:
        out.extend(Disarm(timer) for timer in Timer)
