"""R1 to R3, and what is promised: who may form the next ring.

A *version* is promised, then accepted, then in force. Who has promised one answers no lower one;
who leads has the highest version and S of all that answer; and a ring is in force when the majority
of the group before it has accepted it. So no two can be in force at once, and whatever everyone had
is in the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unisono.core import Effect
from unisono.model import Member
from unisono.protocols.ring.codes import Code
from unisono.protocols.ring.packets import (
    NO_VERSION,
    Bits,
    CoordRequest,
    MemberRecord,
    Rank,
    Version,
)
from unisono.protocols.ring.parameters import ROUNDS_MAX
from unisono.wire import Writer

if TYPE_CHECKING:
    from unisono.protocols.ring.core import Site

PATIENT_TIMES: Final = 2
"""So many times `detect_us` is one that leads given for gathering its ring."""

Key = tuple[Rank, bool, int, Member]
"""What R1, R2 and R3 compare."""


class Election:
    """Whom one member follows, and whether it should lead."""

    def __init__(self, core: Site) -> None:
        self._core = core
        self.promised = NO_VERSION
        """[REF_INV_BC] The version that was promised last, while it may still come about."""
        self.repeated = 0
        """How often it was promised again."""
        self._pledged_us = 0
        self.leader: Member | None = None
        """Who is to form it."""
        self.at_token = False
        """The reformation is begun as the holder: nobody failed."""
        self.suspects: set[int] = set()

    # -- R1 to R3 ----------------------------------------------------------------------------------

    def my_key(self) -> Key:
        core = self._core
        return core.rank, core.memory, core.ordering.S if core.memory else 0, core.me

    @staticmethod
    def key(packet: MemberRecord) -> Key:
        """[RNG-10] R1: the higher version; R2: then the higher S; R3: then the higher site id.
        Between R1 and R2: who has the messages of a version before who has forgotten them."""
        # Deviates [RNG R2]: in the paper nobody comes back without its memory.
        memory = packet.has(Bits.MEMORY)
        return packet.rank, memory, packet.header.s if memory else 0, packet.member

    def is_better(self, packet: MemberRecord) -> bool:
        return self.key(packet) > self.my_key()

    def should_win(self, packet: MemberRecord) -> bool:
        """One that denies and has what it speaks of. Who only has heard of more is not waited for:
        it is the majority that must agree."""
        core = self._core
        equal = packet.header.version == core.version or not core.memory
        return (equal or packet.has(Bits.MEMORY)) and self.is_better(packet)

    def knows_enough(self, packet: MemberRecord) -> bool:
        """R1 and R2: it has all that we have. R3 is for two that both invite."""
        # Deviates [RNG R3]: in the paper it decides here too, so that only the highest site id of
        # those that know the same could ever coordinate.
        return self.key(packet)[:3] >= self.my_key()[:3]

    # -- somebody invites --------------------------------------------------------------------------

    def is_worthy(self, packet: MemberRecord) -> bool:
        """Whether an invitation may be answered with a promise."""
        attempt = Version(packet.attempt, packet.header.sender)
        if attempt == self.promised:
            patient = self.repeated <= ROUNDS_MAX or self._is_early()
            fresh = attempt > self._core.ring.version
            return patient and fresh and self.knows_enough(packet)
        return attempt > self._core.record.pledged and self.knows_enough(packet)

    def _is_early(self) -> bool:
        """Who leads may still wait for one that is slow."""
        core = self._core
        return core.now_us - self._pledged_us < PATIENT_TIMES * core.parameters.detect_us

    def pledge(self, attempt: Version, leader: Member, out: list[Effect]) -> None:
        """From now on no lower one is promised, not even in a later life."""
        self.promised, self.leader = attempt, leader
        self.repeated = 0
        self._pledged_us = self._core.now_us
        self._core.keep(out, pledged=attempt)
        self._core.ordering.stand_still()

    def free(self) -> None:
        """What was promised will not be; but nothing below it either."""
        self.promised, self.leader = self._core.ring.version, None

    def is_worthier(self, packet: MemberRecord) -> bool:
        """Whether we, who invite, yield to another who does."""
        return self.is_worthy(packet) and self.is_better(packet)

    def agrees(self, packet: MemberRecord) -> bool:
        """In normal operation: only if there is a reason to stop."""
        core = self._core
        if not self.is_worthy(packet):
            return False
        at = core.ring.index.get(packet.header.sender)
        if packet.header.version != core.ring.version or at is None:
            # Of another ring: our own may have been left behind, or was let go on while a majority
            # did.
            outranked = packet.rank[0] > core.rank[0] and core.ring.trunk > NO_VERSION
            return outranked or (packet.rank > core.rank and core.token.tries > 0)
        by_holder = packet.has(Bits.AT_TOKEN) and core.ring.holder(packet.header.s) == at
        return by_holder or core.token.tries > 0

    def should_lead(self, packet: MemberRecord) -> bool:
        """The inviter is right that something is wrong, and knows less than we do."""
        core = self._core
        if packet.header.version != core.version or self.knows_enough(packet):
            return False
        attempt = Version(packet.attempt, packet.header.sender)
        if core.is_normal():
            return core.token.tries > 0
        return attempt > core.record.pledged and not core.membership.target

    def deny(self, packet: MemberRecord, out: list[Effect], leads: bool = False) -> None:
        """[RSP_NEG] With what we know better. Who is about to invite itself does not tell that the
        ring goes on, or the other would return to it and deny in turn."""
        core = self._core
        normal = core.is_normal() and not leads
        other = core.ring.leader if normal else self.leader
        bits = Bits.IN_FORCE * normal | Bits.MEMORY * core.memory
        answer = core.person(Code.RSP_NEG, packet.attempt, bits, other)
        core.to(packet.member, Code.RSP_NEG, answer.body(), out)

    # -- somebody comes along ----------------------------------------------------------------------

    def can_go_on(self, packet: MemberRecord) -> bool:
        """Whether all it has is in our order, and all it lacks is here and of its own ring."""
        # Deviates [RNG Merge]: the paper sends again whatever a returning process lacks, and does
        # not ask whether it has what the others never had.
        core = self._core
        if not core.memory or packet.header.sender not in core.ordering.locals:
            return False
        ends = core.ring.ends(packet.header.version)
        if ends is None or packet.header.s > min(ends, core.ordering.S):
            return False
        own = packet.header.version == core.ring.version or ends == core.ordering.S
        return own and core.ordering.has_from(packet.header.s)

    # -- suspicion ---------------------------------------------------------------------------------

    def suspect_holder(self) -> None:
        core = self._core
        self.suspects = {core.token.holder_key()}
        self.at_token = False

    def suspect(self, out: list[Effect]) -> None:
        """[RNG-11] The process before the silent holder coordinates; we tell it."""
        core = self._core
        self.suspect_holder()
        holder = core.ring.holder(core.ordering.S)
        prior = core.ring.seats[(holder - 1) % len(core.ring.seats)].member
        core.push(Code.E_REFSTART)
        if prior == core.me:
            core.push(Code.E_COORDINATOR)
            return
        body = Writer().u64(core.token.holder_key()).done()
        core.to(prior, Code.COORD_RQU, body, out)
        core.push(Code.E_INIT)

    def confirms(self, packet: CoordRequest) -> bool:
        core = self._core
        return (
            packet.header.version == core.ring.version
            and packet.header.sender in core.ring.index
            and core.token.tries > 0
            and packet.suspect == core.token.holder_key()
        )
