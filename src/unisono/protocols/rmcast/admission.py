"""Admission, which [RMC II] leaves open: the oldest member, the sponsor, admits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from unisono.core import Effect, Send
from unisono.layout import encode
from unisono.model import Member
from unisono.parts.codec import PacketCodec
from unisono.parts.core_clock import CoreClock
from unisono.protocols.rmcast.control import Add, write_control
from unisono.protocols.rmcast.failure import Failures
from unisono.protocols.rmcast.merging import Merging
from unisono.protocols.rmcast.packets import (
    MEMBER,
    WELCOME_FRONT_BYTES,
    PacketKind,
    Refuse,
    Seek,
    Welcome,
    key_of,
    welcome_parts,
)
from unisono.protocols.rmcast.parameters import Parameters
from unisono.protocols.rmcast.roster import Roster
from unisono.protocols.rmcast.send_queue import SendQueue
from unisono.protocols.rmcast.state_transfer import StateTransfer
from unisono.protocols.rmcast.views import Views
from unisono.wire import ENVELOPE_BYTES, NO_LIFE

SPONSORED_COUNT_MAX: Final = 8
"""Joiners that receive the state at once; the next is admitted when one of them has it."""
ROSTER_COUNT_MAX: Final = 2
"""Times `members_count_max`: members, and failed ones not yet settled by all."""


@dataclass(eq=False)
class Sponsor:
    """Answers requests to join."""

    _parameters: Parameters
    _roster: Roster
    _codec: PacketCodec
    _send_queue: SendQueue
    _views: Views
    _failures: Failures
    _merging: Merging
    _transfer: StateTransfer
    _clock: CoreClock
    _packet_bytes: int
    _with_state: bool

    def __post_init__(self) -> None:
        self._welcomes: dict[int, list[bytes]] = {}
        """By joiner, the packets of its welcome, until its first packet comes."""

    def consider(self, packet: Seek, out: list[Effect]) -> None:
        """The sponsor admits; the others forward the request to it."""
        seeker, key = packet.member, key_of(packet.member)
        if (later := self._later_incarnation(seeker)) and not packet.withdrawn:
            reason = (
                f"a later incarnation of {seeker.name} is known; join again as a new incarnation"
            )
            self._refuse(Refuse(key, reason, True, later), seeker, out)
            return
        if self._roster.sponsor().key != self._roster.key:
            self._forward(packet, out)
            return
        self._expel_former(packet)
        known = self._roster.peers.get(key)
        is_member = known is not None and known.status is MEMBER
        if known is not None and is_member and known.row:
            return  # It is in already: this request is late.
        if packet.withdrawn:
            if known is not None:
                self._failures.suspect(known)
            return
        if is_member and key in self._welcomes:
            out.append(Send((seeker.address,), self._welcomes[key]))
            return
        refusal = self._objection(seeker, key)
        if refusal is not None:
            self._refuse(refusal, seeker, out)
        elif self._is_busy(packet):
            return  # It requests again.
        elif self._failures.is_recent(packet.echo):
            self._admit(packet, key, out)
        else:
            # A late request may be of a dead process: the seeker must echo this announcement.
            out.append(Send((seeker.address,), [self._merging.announcement()]))

    def _forward(self, packet: Seek, out: list[Effect]) -> None:
        sponsor = self._roster.sponsor().member
        if not packet.forwarded:
            body = encode(packet._replace(forwarded=True))
            sealed = self._codec.seal(PacketKind.SEEK, body, life=NO_LIFE)
            out.append(Send((sponsor.address,), [sealed]))
        if self._stands_in() and not packet.withdrawn:
            out.append(Send((packet.member.address,), [self._merging.pointer(sponsor)]))
        self._expel_former(packet)

    def _is_busy(self, packet: Seek) -> bool:
        """One change at a time: removed members are settled first, and no view lists two members of
        one name."""
        return (
            self._transfer.is_running()
            or self._send_queue.farewell > 0
            or self._roster.unsettled()
            or self._roster.namesake_lingers(packet.member)
            or (packet.wants_state and self._transfer.count() >= SPONSORED_COUNT_MAX)
        )

    def _refuse(self, refusal: Refuse, seeker: Member, out: list[Effect]) -> None:
        sealed = self._codec.seal(PacketKind.REFUSE, encode(refusal))
        out.append(Send((seeker.address,), [sealed]))

    def _later_incarnation(self, seeker: Member) -> int:
        """The incarnation of a member that is the same process with a higher number: its clock was
        set back. Any member may answer so; a late request has no reader."""
        namesake = self._roster.find(seeker.name)
        if namesake is None or namesake.member.address != seeker.address:
            return 0
        later = namesake.member.incarnation
        return later if later > seeker.incarnation else 0

    def _stands_in(self) -> bool:
        """Whether we are the oldest member that sent lately, the sponsor aside: it may have died
        just now. Until it is removed no member admits, and a seeker must not found a second group
        meanwhile."""
        quiet = self._failures.quiet()
        oldest = next(peer for peer in self._roster.group()[1:] if peer not in quiet)
        return oldest.key == self._roster.key

    def _expel_former(self, packet: Seek) -> None:
        """A process that restarted is a new incarnation: its old one is removed at once."""
        former = self._roster.find(packet.member.name)
        if former is not None and former.member.address == packet.member.address:
            if former.member.incarnation < packet.member.incarnation:
                self._failures.suspect(former)

    def _objection(self, seeker: Member, key: int) -> Refuse | None:
        roster = self._roster
        known = roster.peers.get(key)
        if key in roster.tombs or (known is not None and known.status is not MEMBER):
            reason = f"{seeker} was a member before; join again as a new incarnation"
            return Refuse(key, reason, True, seeker.incarnation)
        namesake = roster.find(seeker.name)
        if namesake is not None and namesake.key != key:
            other = f"{namesake.member} at {namesake.member.address}"
            return Refuse(key, f"the name {seeker.name} is taken by {other}")
        limit, most = self._parameters.members_count_max, roster.entries_max
        if known is None and len(roster.group()) >= limit:
            return Refuse(key, f"the group is full (members_count_max={limit})")
        if known is None and len(roster.group()) >= most:
            reason = f"packet_bytes_max={self._packet_bytes} is enough for {most} members"
            return Refuse(key, f"the group is full ({reason})")
        if known is None and len(roster.peers) >= min(ROSTER_COUNT_MAX * limit, most):
            return Refuse(key, "the group has too many lost members to settle first")
        return None

    def _admit(self, packet: Seek, key: int, out: list[Effect]) -> None:
        """[RMC-9] An addition is a message in the causal order: a member that has delivered it
        counts the newcomer in, and the newcomer begins where its sponsor was when it sent it."""
        # Deviates [RMC II]: the paper has no additions, and no leaving but by silence.
        roster = self._roster
        known = roster.peers.get(key)
        rank = 1 + roster.rank_last if known is None else known.rank
        self._send_queue.append_control(write_control(Add(packet.member, rank)))
        if known is None:
            roster.add(packet.member, rank, self._clock.now_us)
        gives = self._with_state and packet.wants_state
        packets = self._welcomes[key] = self._welcome(key, gives)
        self._views.install(out)
        if gives:
            self._transfer.capture(key, out)
        out.append(Send((packet.member.address,), packets))

    def _welcome(self, key: int, gives: bool) -> list[bytes]:
        roster = self._roster
        tombs = tuple(value for pair in roster.tombs.items() for value in pair)
        welcome = Welcome(key, roster.key, roster.changes, gives, roster.lines(), tombs)
        bytes_max = self._packet_bytes - ENVELOPE_BYTES - WELCOME_FRONT_BYTES
        parts = welcome_parts(welcome, bytes_max)
        return [self._codec.seal(PacketKind.WELCOME, part) for part in parts]

    def tick(self, out: list[Effect]) -> None:
        """Once a heartbeat: forget the welcomes of joiners that have sent, or are gone."""
        for key in list(self._welcomes):
            peer = self._roster.peers.get(key)
            if peer is None or peer.status is not MEMBER or peer.row:
                del self._welcomes[key]
