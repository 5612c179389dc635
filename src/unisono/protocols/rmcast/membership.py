"""Membership, which [RMC II] leaves open: seek, found, admit, transfer the state, leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unisono.core import (
    EVERYONE,
    Adopt,
    Arm,
    Capture,
    Captured,
    Cause,
    Disarm,
    Effect,
    Send,
    Target,
)
from unisono.layout import decode, encode
from unisono.model import Buffer, Member, Service
from unisono.parts.state_transfer import StateReceiver, StateSender
from unisono.protocols.rmcast.control import Add, Bye, write_control
from unisono.protocols.rmcast.figure import Timer
from unisono.protocols.rmcast.packets import (
    CONTROL,
    HEADER_BYTES,
    NO_HEADER,
    STATE_FRONT_BYTES,
    WELCOME_FRONT_BYTES,
    AckEntry,
    Announce,
    PacketKind,
    Refuse,
    Seek,
    StatePiece,
    StateRequest,
    StreamStatus,
    Welcome,
    WelcomePart,
    key_of,
    welcome_parts,
)
from unisono.protocols.rmcast.roster import ENDED, UNKNOWN
from unisono.wire import ENVELOPE_BYTES, NO_LIFE

if TYPE_CHECKING:
    from unisono.protocols.rmcast.core import Rmcast

REFUSALS_MAX: Final = 64
"""A seeker that was refused so often gives up; until then what stands in its way may go."""
STATE_BYTES_MAX: Final = 1 << 30
SPONSORED_COUNT_MAX: Final = 8
"""Newcomers that take the state at once; the next one is admitted when one of them has it."""
ROSTER_COUNT_MAX: Final = 2
"""Times `members_count_max`: members, and failed ones not yet settled by all."""


class Membership:
    """Joins, leaves and state transfers of one member."""

    def __init__(self, core: Rmcast, with_state: bool) -> None:
        self._core = core
        self._with_state = with_state
        self._refusals = 0
        self._echo = 0
        self._taker: StateReceiver | None = None
        self._giver_key = 0
        self._welcomes: dict[int, list[bytes]] = {}
        self._parts: dict[int, Buffer] = {}
        self._parts_of = (0, 0, 0)
        self._givers: dict[int, StateSender | None] = {}
        self._given_at: dict[int, int] = {}
        self._stood_at = -1
        self._taken_over = 0
        self._answered: dict[int, dict[int, AckEntry]] = {}

    # -- outside ---------------------------------------------------------------------------------

    def seek(self, out: list[Effect], first: bool) -> None:
        core = self._core
        self._cry(EVERYONE, out)
        out.append(Arm(Timer.SEEK, core.about(core.parameters.seek_us)))
        if first:
            out.append(Arm(Timer.FOUND, core.about(core.parameters.found_us)))

    def withdraw(self, out: list[Effect]) -> None:
        """We gave up; if somebody has let us in meanwhile, it need not wait for us."""
        self._cry(EVERYONE, out, withdrawn=True)

    def _cry(self, to: Target, out: list[Effect], withdrawn: bool = False) -> None:
        seek = Seek(self._core.me, self._with_state, echo=self._echo, withdrawn=withdrawn)
        body = encode(seek)
        out.append(Send(to, [self._core.codec.seal(PacketKind.SEEK, body, life=NO_LIFE)]))

    def wait(self, packet: Seek | Announce, out: list[Effect]) -> None:
        """Somebody else will found the group, or has."""
        out.append(Arm(Timer.FOUND, self._core.about(self._core.parameters.found_us)))
        if isinstance(packet, Announce) and packet.stamp:
            self._echo = packet.stamp
            self._cry((packet.sponsor.address,), out)

    def found(self, out: list[Effect]) -> None:
        core = self._core
        core.codec.life = core.random.getrandbits(64) | 1
        core.roster.add(core.me, 0, core.now_us)
        self._begin(out)
        core.install(out)
        out.append(
            Send(EVERYONE, [self._core.merging.announcement()])
        )  # Before others found it too.

    def assemble(self, part: WelcomePart, life: int) -> Welcome | None:
        """The welcome, once all its parts are here."""
        if part.joiner != self._core.roster.key:
            return None
        if self._parts_of != (life, part.stamp, part.parts):
            self._parts_of = (life, part.stamp, part.parts)
            self._parts = {}
        self._parts[part.part] = part.piece
        if len(self._parts) < part.parts:
            return None
        whole = b"".join(self._parts[index] for index in range(part.parts))
        self._parts = {}
        return decode(Welcome, whole)

    def is_for_me(self, packet: Welcome) -> bool:
        if packet.joiner != self._core.roster.key:
            return False
        mine = [line for line in packet.lines if line.member == self._core.me]
        if [(line.status, line.delivered, line.message) for line in mine] == [
            (StreamStatus.MEMBER, 0, 0)
        ]:
            return True
        self._core.codec.drop("malformed")
        return False

    def refused_enough(self, packet: Refuse) -> bool:
        if packet.joiner != self._core.roster.key:
            return False
        self._refusals += REFUSALS_MAX if packet.final else 1
        return self._refusals >= REFUSALS_MAX

    def enter(self, packet: Welcome, out: list[Effect]) -> None:
        core = self._core
        core.codec.life = core.incoming_life
        core.roster.enter(packet.lines, packet.changes, core.now_us)
        tombs = packet.tombs
        core.roster.tombs = dict(zip(tombs[::2], tombs[1::2], strict=True))
        self._begin(out)
        self.check_size()
        if packet.with_state:
            self._taker = StateReceiver()
            self._giver_key = packet.sponsor
            self._ask_state(self._taker.ask(), out)
        else:
            core.install(out, cut=True)

    def check_size(self) -> None:
        """Every packet must hold a line of each member: the sponsor counts by its own packets, and
        ours may be smaller."""
        core = self._core
        most = core.roster.entries_max
        count = sum(peer.status not in ENDED for peer in core.roster.peers.values())
        if count > most:
            core.detector.stop(
                f"the group has {count} members, and packets of {core.packet_bytes_max} octets"
                f" are enough for {most}: raise packet_bytes_max, at all members alike"
            )

    def _begin(self, out: list[Effect]) -> None:
        core = self._core
        core.detector.awake(core.now_us)
        out.append(Disarm(Timer.SEEK))
        out.append(Disarm(Timer.FOUND))
        out.append(Arm(Timer.BEAT, core.parameters.beat_us))
        out.append(Arm(Timer.ANNOUNCE, core.about(core.parameters.announce_us)))

    # -- the group's state -----------------------------------------------------------------------

    def _ask_state(self, what: tuple[int, int], out: list[Effect]) -> None:
        core = self._core
        giver = core.roster.peers.get(self._giver_key)
        if giver is None or giver.status not in (StreamStatus.MEMBER, StreamStatus.LEFT):
            core.detector.stop("lost the sponsor before its state had come", Cause.STOPPED)
            return
        body = core.bare_header() + encode(StateRequest(NO_HEADER, *what))
        out.append(Send((giver.member.address,), [core.codec.seal(PacketKind.STATE_ASK, body)]))

    def take(self, packet: StatePiece, out: list[Effect]) -> None:
        taker = self._taker
        if taker is None or packet.header.sender != self._giver_key:
            return
        if packet.joiner != self._core.roster.key:
            self._core.codec.drop("former")
            return
        if packet.total > STATE_BYTES_MAX:
            self._core.detector.stop(
                f"the group's state has {packet.total} octets, over the limit of {STATE_BYTES_MAX}"
            )
            return
        taker.take(packet.total, packet.offset, packet.piece)
        ahead = taker.ask_ahead()
        if ahead is not None:
            self._ask_state(ahead, out)

    def tick(self, out: list[Effect]) -> None:
        """Once a heartbeat: ask for the state where it stands still, and let go of what newcomers
        have taken."""
        if self._taker is not None:
            if self._taker.at == self._stood_at:
                self._ask_state(self._taker.ask(), out)
            self._stood_at = self._taker.at
        for kept in (self._welcomes, self._givers):
            for key in [key for key in kept if not self._still_needs(key, kept)]:
                del kept[key]

    def _still_needs(self, key: int, kept: object) -> bool:
        peer = self._core.roster.peers.get(key)
        if peer is None or peer.status is not StreamStatus.MEMBER:
            return False
        if kept is self._welcomes:
            return not peer.row
        return peer.row.get(self._core.roster.key, UNKNOWN).delivered <= self._given_at.get(key, 0)

    def state_is_here(self) -> bool:
        return self._taker is not None and self._taker.is_done()

    def adopt(self, out: list[Effect]) -> None:
        assert self._taker is not None
        state = self._taker.state()
        self._ask_state((len(state), 0), out)  # So the sponsor hears that it is here.
        self._taker = None
        out.append(Adopt(state))
        self._core.install(out, cut=True)

    def catching_up(self) -> bool:
        return self._taker is not None

    def keep(self, event: Captured) -> None:
        if isinstance(event.key, int) and event.key in self._givers:
            front = ENVELOPE_BYTES + HEADER_BYTES + STATE_FRONT_BYTES
            octets = self._core.packet_bytes_max - front
            self._givers[event.key] = StateSender(event.state, octets)

    def give(self, packet: StateRequest, out: list[Effect]) -> None:
        giver = self._givers.get(packet.header.sender)
        peer = self._core.roster.peers.get(packet.header.sender)
        if giver is None or peer is None:
            return
        if packet.pieces == 0:
            del self._givers[packet.header.sender]
            return
        pieces = giver.pieces(packet.offset, min(packet.pieces, 64))
        if not pieces and giver.octets == 0:
            pieces = [(0, memoryview(b""))]
        header = self._core.bare_header()
        sealed = [
            self._core.codec.seal(
                PacketKind.STATE,
                header + encode(StatePiece(NO_HEADER, peer.key, giver.octets, at, piece)),
            )
            for at, piece in pieces
        ]
        if sealed:
            out.append(Send((peer.member.address,), sealed))

    # -- admitting -------------------------------------------------------------------------------

    def consider(self, packet: Seek, out: list[Effect]) -> None:
        """The oldest member admits; the others pass the request on to it."""
        core = self._core
        seeker, key = packet.member, key_of(packet.member)
        sponsor = core.roster.sponsor()
        if (later := self._later_life(seeker)) and not packet.withdrawn:
            words = f"a later life of {seeker.name} is known; join again as a new incarnation"
            self._refuse(Refuse(key, words, True, later), seeker, out)
            return
        if sponsor.key != core.roster.key:
            if not packet.forwarded:
                body = encode(packet._replace(forwarded=True))
                sealed = core.codec.seal(PacketKind.SEEK, body, life=NO_LIFE)
                out.append(Send((sponsor.member.address,), [sealed]))
            if self._stands_in() and not packet.withdrawn:
                out.append(Send((seeker.address,), [core.merging.pointer(sponsor.member)]))
            self._expel_former(packet)
            return
        self._expel_former(packet)
        known = core.roster.peers.get(key)
        if known is not None and known.status is StreamStatus.MEMBER and known.row:
            return  # It is in already: this request is late.
        if packet.withdrawn:
            if known is not None:
                core.detector.suspect(known)
            return
        welcome = self._welcomes.get(key)
        if known is not None and welcome is not None and known.status is StreamStatus.MEMBER:
            out.append(Send((seeker.address,), welcome))
            return
        refusal = self._objection(seeker, key)
        if refusal is not None:
            self._refuse(refusal, seeker, out)
        elif self.catching_up() or core.leaving or core.roster.unsettled():
            return  # It asks again. Who is removed is settled first: one change at a time.
        elif core.roster.namesake_lingers(seeker):
            return  # Likewise: no view holds both.
        elif packet.wants_state and len(self._givers) >= SPONSORED_COUNT_MAX:
            return
        elif self._is_fresh(packet):
            self._admit(packet, key, out)
        else:
            out.append(Send((seeker.address,), [self._core.merging.announcement()]))

    def _refuse(self, refusal: Refuse, seeker: Member, out: list[Effect]) -> None:
        sealed = self._core.codec.seal(PacketKind.REFUSE, encode(refusal))
        out.append(Send((seeker.address,), [sealed]))

    def _later_life(self, seeker: Member) -> int:
        """The incarnation of a member that is the same process, with a higher number: its clock was
        set back. Any member may say so; where the request is late, nobody listens."""
        namesake = self._core.roster.find(seeker.name)
        if namesake is None or namesake.member.address != seeker.address:
            return 0
        later = namesake.member.incarnation
        return later if later > seeker.incarnation else 0

    def _stands_in(self) -> bool:
        """We are the oldest member that has been heard lately. Until the others are found to have
        failed nobody admits, and a seeker must not found a second group meanwhile."""
        quiet = self._core.detector.quiet(self._core.now_us)
        oldest = next(peer for peer in self._core.roster.group() if peer not in quiet)
        return oldest.key == self._core.roster.key

    def _is_fresh(self, packet: Seek) -> bool:
        """Whether the seeker heard from us lately. A request that waited, for us to wake or on the
        way, may be a dead one's: to admit it would be to wait for a ghost."""
        return self._core.is_recent(packet.echo)

    def _expel_former(self, packet: Seek) -> None:
        """A process that came back is a new incarnation: its old one is removed on sight."""
        former = self._core.roster.find(packet.member.name)
        if former is not None and former.member.address == packet.member.address:
            if former.member.incarnation < packet.member.incarnation:
                self._core.detector.suspect(former)

    def _objection(self, seeker: Member, key: int) -> Refuse | None:
        core = self._core
        known = core.roster.peers.get(key)
        if key in core.roster.tombs or (
            known is not None and known.status is not StreamStatus.MEMBER
        ):
            words = f"{seeker} was a member before; join again as a new incarnation"
            return Refuse(key, words, True, seeker.incarnation)
        namesake = core.roster.find(seeker.name)
        if namesake is not None and namesake.key != key:
            who = f"{namesake.member} at {namesake.member.address}"
            return Refuse(key, f"the name {seeker.name} is taken by {who}")
        limit, most = core.parameters.members_count_max, core.roster.entries_max
        if known is None and len(core.roster.group()) >= limit:
            return Refuse(key, f"the group is full (members_count_max={limit})")
        if known is None and len(core.roster.group()) >= most:
            words = f"packet_bytes_max={core.packet_bytes_max} is enough for {most} members"
            return Refuse(key, f"the group is full ({words})")
        if known is None and len(core.roster.peers) >= min(ROSTER_COUNT_MAX * limit, most):
            return Refuse(key, "the group has too many lost members to settle first")
        return None

    def _admit(self, packet: Seek, key: int, out: list[Effect]) -> None:
        """[RMC-9] An addition is a message in the causal order: who has delivered it counts the
        newcomer in, and the newcomer begins where its sponsor stood when it said so."""
        # Deviates [RMC II]: the paper has no additions, and no leaving but by silence.
        core = self._core
        known = core.roster.peers.get(key)
        rank = 1 + core.roster.rank_last if known is None else known.rank
        core.ordering.say([write_control(Add(packet.member, rank))], Service.CAUSAL, CONTROL)
        if known is None:
            core.roster.add(packet.member, rank, core.now_us)
        gives = self._with_state and packet.wants_state
        packets = self._welcome(key, gives)
        self._welcomes[key] = packets
        core.install(out)
        if gives:
            self._givers[key] = None
            self._given_at[key] = core.roster.mine().delivered
            out.append(Capture(key))
        out.append(Send((packet.member.address,), packets))

    def _welcome(self, key: int, gives: bool) -> list[bytes]:
        roster = self._core.roster
        tombs = tuple(value for pair in roster.tombs.items() for value in pair)
        welcome = Welcome(key, roster.key, roster.changes, gives, roster.lines(), tombs)
        bytes_max = self._core.packet_bytes_max - ENVELOPE_BYTES - WELCOME_FRONT_BYTES
        parts = welcome_parts(welcome, bytes_max)
        return [self._core.codec.seal(PacketKind.WELCOME, part) for part in parts]

    # -- leaving ---------------------------------------------------------------------------------

    def leave(self, out: list[Effect]) -> None:
        """The goodbye is the last message of our stream. We hear what is said by those that do not
        know of it yet, hand over what we have, and go."""
        core = self._core
        core.ordering.say([write_control(Bye())], Service.CAUSAL, CONTROL)
        core.ordering.goodbye = core.roster.mine().delivered
        core.leaving = True
        self._taken_over = self._taken()
        self.wait_on(out)

    def wait_on(self, out: list[Effect]) -> None:
        out.append(Arm(Timer.LEAVE, self._core.parameters.leave_us))

    def _taken(self) -> int:
        """How much of our stream the others have, all told."""
        key = self._core.roster.key
        return sum(p.row.get(key, UNKNOWN).received for p in self._core.roster.others())

    def progressed(self) -> bool:
        """Whether the others have taken more since we last looked."""
        before, self._taken_over = self._taken_over, self._taken()
        return self._taken_over > before

    def note_answers(self) -> None:
        """The first header of a member that has our goodbye says what it delivered before it."""
        roster = self._core.roster
        for peer in roster.others():
            mine = peer.row.get(roster.key, UNKNOWN).delivered
            if peer.key not in self._answered and mine >= self._core.ordering.goodbye:
                self._answered[peer.key] = peer.row

    def handed_over(self) -> bool:
        """Everyone has our goodbye; what anyone delivered without knowing of it is delivered here;
        and what we delivered is delivered by all, those that leave with us included."""
        core, roster = self._core, self._core.roster
        others, leavers = roster.others(), roster.leavers
        if roster.unsettled() or any(peer.key not in self._answered for peer in others):
            return False
        theirs = [*(self._answered[p.key] for p in others), *(p.row for p in leavers)]
        for key, stream in roster.peers.items():
            target = max((row.get(key, UNKNOWN).delivered for row in theirs), default=0)
            if stream.delivered < target and not core.ordering.is_over(stream):
                return False
            ended = stream.status is not StreamStatus.MEMBER
            for peer in (*others, *leavers):
                entry = peer.row.get(key)
                if entry is None and ended:
                    continue  # It has settled and forgotten it.
                if entry is None or entry.delivered < stream.delivered:
                    return False
        return True
