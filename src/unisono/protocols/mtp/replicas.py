"""[MTP 5.2] The replicated master: what the master decides, held by a majority of its replicas.

The decisions are one small value, the whole of Figure 1's state, with a version that rises. The
coordinator proposes the next version; it is *committed* when a majority of all replicas holds it,
and only then does it show outside. When the coordinator is silent a cohort stands under a higher
ballot, a majority supports it with what they hold, and it continues from the newest of that.

A replica that restarts remembers nothing. It takes no part until the other replicas have stated the
ballot and the version that count, and the coordinator has sent it the value; or until most replicas
remember nothing, when they found a new web. With one replica there is nothing to agree on.
"""

# Deviates [MTP 5.2]: the paper assumes replicas that cannot be cut apart, and broadcasts to all of
# them. Here a majority decides, so replicas that are cut off neither decide nor delay the others.

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

from unisono.core import EVERYONE, Effect, Send
from unisono.layout import encode
from unisono.model import Address, Member
from unisono.parts.codec import PacketCodec
from unisono.protocols.mtp.agreement import Consumer
from unisono.protocols.mtp.clock import StepClock
from unisono.protocols.mtp.packet_writer import NO_HEADER, PacketWriter
from unisono.protocols.mtp.packets import (
    BALLOTS_AHEAD_MAX,
    FORGOTTEN_BITS,
    FORGOTTEN_MAX,
    Ack,
    Expel,
    PacketKind,
    Propose,
    ReplicaSeat,
    Stand,
    Support,
)
from unisono.protocols.mtp.parameters import Parameters
from unisono.protocols.mtp.seats import ReplicaReport, ReplicaSeats
from unisono.protocols.mtp.web import Web
from unisono.wire import NO_LIFE

WAITING_MAX: Final = 64
"""Proposals that wait for data; the coordinator insists on its last one."""


class PendingProposal(NamedTuple):
    """A proposal under the present ballot."""

    version: int
    value: bytes
    source: Address


@dataclass(eq=False)
class Replicas:
    """One replica of the master, by its rank; at a plain member nothing happens here."""

    _me: Member
    _parameters: Parameters
    _dice: Random
    _clock: StepClock
    _codec: PacketCodec
    _members: Web
    _consumer: Consumer
    _packets: PacketWriter
    _holds: Callable[[bytes], bool]
    """Whether the data of all that a value accepts is here."""

    def __post_init__(self) -> None:
        self.rank = self._parameters.master
        self.count = self._parameters.masters
        self.majority = self.count // 2 + 1
        self.web = NO_LIFE
        """The web that we remember."""
        self.ballot = 0
        """The highest known: nothing is accepted under a lower one."""
        self.accepted = 0
        """The ballot under which we took the value; 0 is a value still to come."""
        self.version = 0
        self.value = b""
        self.committed = 0
        """The version that a majority holds, as far as we know under our own ballot."""
        self.leads = False
        self.heard_us = 0
        """When the coordinator was last heard, in listening time."""
        self.taken_by: Member | None = None
        """Another process that has our rank."""
        self._reports: dict[int, ReplicaReport] = {}
        self._offered: tuple[Propose, int, Address] | None = None
        """A new web, until its founder confirms that this is not an old proposal."""
        self._acks: dict[int, int] = {}
        self._supports: dict[int, Support] = {}
        self.waiting: deque[PendingProposal] = deque(maxlen=WAITING_MAX)
        """Proposals of the coordinator whose data has not all come. We do not hold them yet: if the
        coordinator dies, what no other replica has is to be rejected, not waited for."""
        self._stood_us = 0
        self._forgotten = 0
        self._nonce = self._dice.getrandbits(32) | 1
        """Answers to an earlier one are from before we forgot."""
        self.seats = ReplicaSeats(self._parameters, self._clock, self._nonce)

    # -- the other replicas ------------------------------------------------------------------------

    @property
    def seated(self) -> bool:
        return self.web != NO_LIFE

    @property
    def coordinator(self) -> int:
        return self._rank_of(self.ballot)

    def _rank_of(self, ballot: int) -> int:
        """Ballots belong to the ranks in turn."""
        return (ballot - 1) % self.count + 1

    def believes(self, packet: Propose | Ack | Stand | Support) -> bool:
        """Its ballot can have been reached, and its rank exists."""
        is_rank = isinstance(packet, Propose) or 1 <= packet.rank <= self.count
        return is_rank and packet.ballot <= self.ballot + BALLOTS_AHEAD_MAX

    def hear_coordinator(self) -> None:
        self.heard_us = self._clock.listened_us

    def doubt_coordinator(self, since_us: int) -> None:
        """It seems to be dead: as if it was last heard then."""
        self.heard_us = min(self.heard_us, since_us)

    def greet(self, out: list[Effect]) -> None:
        """State our web, ballot and version to the other replicas; without memory, query theirs."""
        if self.rank:
            out.append(Send(EVERYONE, [self._seat(0 if self.accepted else self._nonce, 0)]))

    def _seat(self, asks: int, echo: int) -> bytes:
        version = self.version if self.accepted else 0
        web = self.web if self.accepted and (self.committed or not self.leads) else NO_LIFE
        where = (self.rank, self.count, self._me, web, self.ballot, version, self.leads)
        seat = ReplicaSeat(*where, asks, echo, self._life())
        return self._codec.seal(PacketKind.SEAT, encode(seat), life=web)

    def _life(self) -> int:
        """Rises whenever we forget."""
        return self._me.incarnation << FORGOTTEN_BITS | min(self._forgotten, FORGOTTEN_MAX)

    def hear_seat(self, seat: ReplicaSeat, out: list[Effect]) -> None:
        """Another replica states its rank, web and ballot."""
        if seat.member == self._me or not self.rank or seat.masters != self.count:
            self._codec.drop("own" if seat.member == self._me else "seat")
            return
        if seat.rank == self.rank:
            if seat.member.address != self._me.address:
                self._hear_rival(seat, out)
            return
        known = self.seats.by_rank.get(seat.rank)
        if known is not None and seat.member.name == known.member.name and seat.life < known.life:
            if seat.member.incarnation < known.member.incarnation:
                # A member keeps its seat from a namesake at another address.
                if not seat.web or seat.member.address == known.member.address:
                    self._packets.refuse_superseded(seat.member, known.member.incarnation, out)
                now_us = self._clock.now_us
                if self.accepted and (query := self.seats.set_back.query(seat, self.web, now_us)):
                    out.append(Send((seat.member.address,), [self._seat(query, 0)]))
            return
        self.seats.record(seat)
        if not seat.web:
            self._reports.pop(seat.rank, None)
        if seat.asks and self.accepted:
            answer = self._seat(0, echo=seat.asks)
            out.append(Send((seat.member.address,), [answer]))
            if self.leads and not seat.web:  # Else it waits for the value until the next decision.
                self._send_proposal((seat.member.address,), out)
        if seat.leads and seat.web == self.web and seat.rank == self.coordinator:
            self.heard_us = self._clock.listened_us
        if seat.rank == self.coordinator and not seat.web and self.accepted:
            self.doubt_coordinator(self._clock.listened_us - self._parameters.detect_us)
        if seat.echo == self._nonce and seat.web and not self.accepted:
            self._reports[seat.rank] = ReplicaReport(seat.web, seat.ballot, seat.version)
            self._remember()
        elif seat.echo == self._nonce and seat.leads and not self.seated:
            self._take_offer(seat, out)

    def _hear_rival(self, seat: ReplicaSeat, out: list[Effect]) -> None:
        """Another process has our rank: the one that has joined stays. One of our name may be a
        former incarnation, of which packets are left; if it answers our query, it is alive."""
        me = self._me
        if seat.asks and self.accepted:
            out.append(Send((seat.member.address,), [self._seat(0, echo=seat.asks)]))
        if seat.member.name != me.name:
            sits = bool(seat.web) or seat.member < me
        else:
            sits = bool(seat.web) and seat.echo == self._nonce
        if sits and not self.accepted:
            self.taken_by = seat.member

    def _remember(self) -> None:
        """Once a majority has answered, its coordinator included, we know the least ballot and
        version to accept."""
        for web in {report.web for report in self._reports.values()}:
            reports = {rank: each for rank, each in self._reports.items() if each.web == web}
            ballot = max(each.ballot for each in reports.values())
            leader = self._rank_of(ballot)
            known = leader in reports and reports[leader].ballot == ballot
            if len(reports) >= self.majority and known:
                if web != self.web:
                    self.heard_us = self._clock.listened_us
                if (web, ballot) != (self.web, self.ballot):
                    self.waiting.clear()
                self.web, self.ballot = web, ballot
                self.version = reports[leader].version

    # -- founding ---------------------------------------------------------------------------------

    def _take_offer(self, seat: ReplicaSeat, out: list[Effect]) -> None:
        """The founder answers us, who remember nothing: its web is not founded yet."""
        if self._offered is not None and (seat.rank, seat.version) == (self._offered[0].ballot, 1):
            packet, self.web, source = self._offered
            self._offered = None
            self._consider(packet, source, out)

    def may_found(self) -> bool:
        """Most replicas remember nothing, and we are the first of those."""
        return self.is_forgotten() and all(rank > self.rank for rank in self.seats.blank_ranks())

    def is_forgotten(self) -> bool:
        """Most replicas, we among them, remember no web: whatever there was has ended."""
        if not self.rank or self.accepted or self.taken_by:
            return False
        return self.seats.are_blank(self.majority - 1)

    def has_ended(self) -> bool:
        """So many replicas have forgotten our web that no majority will ever remember it."""
        if not self.accepted:
            self.seats.keep()
            return False
        return self.seats.have_forgotten(self.web, self.count - self.majority + 1)

    def found(self, web: int, value: bytes, out: list[Effect]) -> None:
        self.web, self.ballot, self.accepted = web, self.rank, self.rank
        self.version = 0
        self.leads = True
        self._acks = {}
        self.propose(value, out)

    def abandon(self) -> None:
        """Forget a web that did not come about, as a restart would."""
        self.web, self.ballot, self.accepted, self.version = NO_LIFE, 0, 0, 0
        self.leads, self._reports, self._offered = False, {}, None
        self.waiting.clear()
        self.committed, self.value = 0, b""
        self._forgotten += 1
        self._nonce = self._dice.getrandbits(32) | 1

    def is_stranded(self) -> bool:
        """We remember a web, and its coordinator is silent."""
        silent_us = self._clock.listened_us - self.heard_us
        return self.seated and not self.leads and silent_us > self._parameters.detect_us

    # -- proposing --------------------------------------------------------------------------------

    def propose(self, value: bytes, out: list[Effect]) -> None:
        """The next version. It counts once it is committed."""
        self.version += 1
        self.value, self.accepted = value, self.ballot
        self._count_acks()
        if self.count > 1:
            self._send_proposal(self.seats.addresses(), out)

    def insist(self, out: list[Effect]) -> None:
        """Propose again to those that have not answered."""
        if self.leads and self.committed < self.version:
            seats = self.seats.by_rank
            slow = [rank for rank in seats if self._acks.get(rank, 0) < self.version]
            self._send_proposal(tuple(seats[rank].member.address for rank in slow), out)

    def _send_proposal(self, to: tuple[Address, ...], out: list[Effect]) -> None:
        if to:
            packet = Propose(NO_HEADER, self.ballot, self.version, self.value)
            self._packets.send_in(self.web, PacketKind.PROPOSE, packet, to, out)

    def hold_proposal(self, packet: Propose, out: list[Effect]) -> None:
        """A coordinator proposes; we hold it if its ballot is no lower than any we know of."""
        web, source = self._clock.web, self._clock.source
        if not self.rank:
            return
        if not self.seated:
            if packet.version == 1 and self._codec.life in (NO_LIFE, web):
                offer = packet._replace(value=bytes(packet.value)), web, source
                if offer != self._offered:  # The founder answers with it again, and so would we.
                    self._offered = offer
                    out.append(Send((source,), [self._seat(self._nonce, 0)]))
        elif web != self.web:
            self._codec.drop("life")
        else:
            self._consider(packet, source, out)

    def _consider(self, packet: Propose, source: Address, out: list[Effect]) -> None:
        if packet.ballot < self.ballot:
            self._answer(0, source, out)
            return
        if packet.ballot > self.ballot:
            self._follow(packet.ballot)
        if not self.accepted and packet.version < self.version:
            return  # What we held before we forgot may be newer.
        self.heard_us = self._clock.listened_us
        if self.accepted == packet.ballot and packet.version <= self.version:
            self._answer(self.version, source, out)
            return
        if not self.waiting or packet.version > self.waiting[-1].version:
            self.waiting.append(PendingProposal(packet.version, bytes(packet.value), source))
        self.settle(out)

    def settle(self, out: list[Effect]) -> None:
        """Hold and acknowledge what was proposed, as soon as the data that it accepts is here."""
        source = None
        while self.waiting and self._holds(self.waiting[0].value):
            self.version, self.value, source = self.waiting.popleft()
            self.accepted = self.ballot
        if source is not None:
            self._answer(self.version, source, out)

    def owed_value(self) -> bytes:
        """A value that we cannot hold before we have the data it accepts."""
        return self.waiting[-1].value if self.waiting else b""

    def _answer(self, version: int, source: Address, out: list[Effect]) -> None:
        packet = Ack(NO_HEADER, self.rank, self.ballot, version)
        self._packets.send_in(self.web, PacketKind.ACK, packet, (source,), out)

    def count_ack(self, packet: Ack, out: list[Effect]) -> None:
        if packet.ballot > self.ballot:
            self._follow(packet.ballot)
        elif self.leads and packet.ballot == self.ballot:
            self._acks[packet.rank] = max(self._acks.get(packet.rank, 0), packet.version)
            self._count_acks()

    def _count_acks(self) -> None:
        versions = sorted((self.version, *self._acks.values()), reverse=True)
        if len(versions) >= self.majority:
            held = versions[self.majority - 1]
            self.committed = max(self.committed, held)

    # -- taking over ------------------------------------------------------------------------------

    def _follow(self, ballot: int) -> None:
        """Somebody stands, or leads, under a higher ballot."""
        self.ballot = ballot
        self.leads = False
        self._supports = {}
        self.waiting.clear()
        self.heard_us = self._clock.listened_us

    def stand(self, out: list[Effect]) -> None:
        """The coordinator is silent: request support under the next ballot that is ours."""
        rounds = self.ballot // self.count
        ballot = rounds * self.count + self.rank
        self._follow(ballot if ballot > self.ballot else ballot + self.count)
        self._stood_us = self._clock.now_us
        self._supports[self.rank] = self._support()
        packet = Stand(NO_HEADER, self.rank, self.ballot)
        self._packets.send_in(self.web, PacketKind.STAND, packet, self.seats.addresses(), out)
        self._codec.count("stand")

    def may_stand(self) -> bool:
        """Only a replica that holds a value, and has a consumer to fetch what it accepts."""
        wait_us = self._parameters.detect_us + self.rank * self._parameters.beat_us
        silent = self._clock.listened_us - self.heard_us > wait_us
        silent = silent and self._clock.now_us - self._stood_us > wait_us
        return silent and not self.leads and bool(self.accepted) and self.count > 1

    def support(self, packet: Stand, out: list[Effect]) -> None:
        """[MTP 5.2] A cohort stands: support it, unless we know a higher ballot."""
        source, its, members = self._clock.source, packet.header, self._members.members
        if not self.accepted:
            return
        if members and its.sender not in members and its.taken < self._consumer.next_out:
            # It was removed, and is behind: what it lacks may be nowhere any more.
            expel = Expel(NO_HEADER, its.sender)
            self._packets.send_in(self.web, PacketKind.EXPEL, expel, (source,), out)
            return
        if packet.ballot < self.ballot:
            self._answer(0, source, out)
            return
        if packet.ballot > self.ballot:
            self._follow(packet.ballot)
        self._packets.send_in(self.web, PacketKind.SUPPORT, self._support(), (source,), out)

    def _support(self) -> Support:
        """What we hold, and the latest known life of each replica."""
        known = self.seats.lives() | {self.rank: self._life()}
        lives = tuple(known.get(rank, 0) for rank in range(1, self.count + 1))
        held = (self.ballot, self.accepted, self.version, self.value)
        return Support(NO_HEADER, self.rank, *held, lives)

    def take_support(self, packet: Support) -> bool:
        """True when this support makes us the coordinator, with the newest value of all."""
        if packet.ballot != self.ballot or self.leads or self.rank not in self._supports:
            return False
        if not 1 <= packet.rank <= self.count or len(packet.lives) != self.count:
            return False
        self._supports[packet.rank] = packet
        # A replica that has forgotten since may support another. Of those that answered its query,
        # at least one supports us and knows its new life.
        known = [support.lives for support in self._supports.values()]
        latest = [max(lives) for lives in zip(*known, strict=True)]
        for rank in [r for r, s in self._supports.items() if s.lives[r - 1] < latest[r - 1]]:
            del self._supports[rank]
        if len(self._supports) < self.majority or self.rank not in self._supports:
            return False
        newest = max(self._supports.values(), key=lambda each: (each.accepted, each.version))
        self.accepted, self.version = newest.accepted, newest.version
        self.value = bytes(newest.value)
        self.leads = True
        self.committed = 0
        self._acks, self._supports = {}, {}
        return True
