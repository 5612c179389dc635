"""R1 to R3, and what is promised: which member may form the next ring.

A *version* is promised, then accepted, then in force. A member that promised one answers no lower
one; the coordinator has the highest version and S of all that answer; and a ring is in force when
the majority of the group before it has accepted it. So no two rings are in force at once, and
whatever everyone had is in the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from unisono.core import Effect
from unisono.layout import encode
from unisono.model import Member
from unisono.protocols.ring.agenda import Agenda
from unisono.protocols.ring.codes import Code
from unisono.protocols.ring.delivery import DeliveryQueue
from unisono.protocols.ring.lifecycle import Lifecycle
from unisono.protocols.ring.ordering import Ordering
from unisono.protocols.ring.packet_builder import PacketBuilder
from unisono.protocols.ring.packets import (
    NO_VERSION,
    Bits,
    Flag,
    MemberRecord,
    Rank,
    TurnPacket,
    Version,
)
from unisono.protocols.ring.parameters import ROUNDS_MAX, Parameters
from unisono.protocols.ring.state import RingState

PATIENT_TIMES: Final = 2
"""A coordinator is given this many times `detect_us` to gather its ring."""

Key = tuple[Rank, bool, int, Member]
"""What R1, R2 and R3 compare."""


@dataclass(eq=False)
class Election:
    """The promise of one member, and its suspects."""

    _parameters: Parameters
    _state: RingState
    _agenda: Agenda
    _lifecycle: Lifecycle
    _ordering: Ordering
    _delivery: DeliveryQueue
    _builder: PacketBuilder

    def __post_init__(self) -> None:
        self.promised = NO_VERSION
        """[REF_INV_BC] The version promised last, while it may still come into force."""
        self.repeated = 0
        """How often it was promised again."""
        self._pledged_us = 0
        self.leader: Member | None = None
        """The member that is to form it."""
        self.suspects: set[int] = set()
        self.distrusted = 0
        """A member that lives and holds up the ring: it has no say in the next one."""

    def suspect(self, *keys: int) -> None:
        self.suspects.update(keys)

    def suspect_only(self, key: int) -> None:
        self.suspects = {key}

    def trust(self, key: int) -> None:
        """It answers."""
        self.suspects.discard(key)

    def distrust(self, key: int) -> None:
        self.distrusted = key

    def trust_all(self) -> None:
        self.suspects.clear()
        self.distrusted = 0

    # -- R1 to R3 --------------------------------------------------------------------------------

    def my_key(self) -> Key:
        state = self._state
        return state.rank, state.memory, self._ordering.S if state.memory else 0, state.me

    @staticmethod
    def key(packet: MemberRecord) -> Key:
        """[RNG-10] R1: the higher version; R2: then the higher S; R3: then the higher site id.
        Between R1 and R2: a member that has the messages of a version, then one that lost them."""
        # Deviates [RNG R2]: in the paper nobody comes back without its memory.
        memory = packet.has(Bits.MEMORY)
        return packet.rank, memory, packet.header.s if memory else 0, packet.member

    def is_better(self, packet: MemberRecord) -> bool:
        return self.key(packet) > self.my_key()

    def knows_enough(self, packet: MemberRecord) -> bool:
        """R1 and R2: it has all that we have. R3 decides between two that both invite."""
        # Deviates [RNG R3]: in the paper it decides here too, so that only the highest site id of
        # those that know the same could ever coordinate.
        return self.key(packet)[:3] >= self.my_key()[:3]

    def knows_less(self, packet: MemberRecord) -> bool:
        """An inviter of our version that lacks something we have."""
        return packet.header.version == self._state.version and not self.knows_enough(packet)

    # -- promises --------------------------------------------------------------------------------

    def is_worthy(self, packet: MemberRecord) -> bool:
        """The invitation may be answered with a promise."""
        attempt = Version(packet.attempt, packet.header.sender)
        if attempt == self.promised:
            patient = self.repeated <= ROUNDS_MAX or self._is_early()
            fresh = attempt > self._state.ring.version
            return patient and fresh and self.knows_enough(packet)
        return attempt > self._state.record.pledged and self.knows_enough(packet)

    def _is_early(self) -> bool:
        """The coordinator may still wait for a slow member."""
        waited_us = self._agenda.now_us - self._pledged_us
        return waited_us < PATIENT_TIMES * self._parameters.detect_us

    def promise(self, attempt: Version, leader: Member, out: list[Effect]) -> None:
        """A version that another member is to form, perhaps again."""
        if attempt != self.promised:
            self.pledge(attempt, leader, out)
        self.repeated += 1

    def pledge(self, attempt: Version, leader: Member, out: list[Effect]) -> None:
        """From now on no lower version is promised, not even by a later incarnation."""
        self.promised, self.leader = attempt, leader
        self.repeated = 0
        self._pledged_us = self._agenda.now_us
        self._state.checkpoint(out, pledged=attempt)
        self._ordering.stop()

    def release_promise(self) -> None:
        """The promised ring will not come into force; lower ones are still not promised."""
        self.promised, self.leader = self._state.ring.version, None

    def standing(self) -> MemberRecord:
        """[RSP_POS] What a member reports of itself to its coordinator."""
        state = self._state
        bits = Bits.MEMORY * state.memory | Bits.STATE * state.wants_state
        bits |= Bits.LEAVING * self._lifecycle.has_quit | Bits.OVERRIDE * state.override
        bits |= Bits.VOTES * state.record.votes | Bits.IN_FORCE * state.was_in_force
        bits |= Bits.INSIDE * (self._delivery.has_view and state.memory)
        return self._builder.member_record(Code.RSP_POS, self.promised.number, bits)

    def deny(self, packet: MemberRecord, out: list[Effect]) -> None:
        """[RSP_NEG] While no ring is in force here, or this member is about to invite."""
        bits = Bits.MEMORY * self._state.memory
        answer = self._builder.member_record(Code.RSP_NEG, packet.attempt, bits, self.leader)
        self._builder.to(packet.member, Code.RSP_NEG, encode(answer), out)

    # -- other rings -----------------------------------------------------------------------------

    def is_later(self, packet: TurnPacket | MemberRecord) -> bool:
        """Another ring is in force and precedes ours. The turns of one that was let go on without a
        majority do not carry its trunk: a ring in force ignores them, a blocked member asks it."""
        state, version = self._state, packet.header.version
        if isinstance(packet, MemberRecord):
            return packet.rank > state.rank
        if packet.flags & Flag.PARTED:
            parted = state.ring.trunk > NO_VERSION or not state.in_force
            return version > state.version and parted
        return (version, version) > state.rank

    def can_go_on(self, packet: MemberRecord) -> bool:
        """All that the member has is in our order, and all it lacks is here and of its own ring."""
        # Deviates [RNG Merge]: the paper sends again whatever a returning process lacks, and does
        # not ask whether it has what the others never had.
        state, ordering, header = self._state, self._ordering, packet.header
        if not state.memory or header.sender not in ordering.locals:
            return False
        ends = state.ring.ends(header.version)
        if ends is None or header.s > min(ends, ordering.S):
            return False
        own = header.version == state.ring.version or ends == ordering.S
        return own and ordering.has_from(header.s)
