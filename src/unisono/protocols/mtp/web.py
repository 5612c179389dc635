"""The web as one member knows it: who is in, and how much of each was delivered."""

from __future__ import annotations

from collections.abc import Sequence

from unisono.errors import BadPacket
from unisono.model import Member, View, changes_of
from unisono.protocols.mtp.batch import MembershipChange, RemovedMember
from unisono.protocols.mtp.packets import NUMBER_MAX, key_of
from unisono.wire import Reader, Writer


class Web:
    """[MTP 5.3] Membership, changed only by messages in the order, so the same for all."""

    def __init__(self) -> None:
        self.members: dict[int, Member] = {}
        """By key, in the order of joining."""
        self.upto: dict[int, int] = {}
        """Of each member, the number of its last message delivered."""
        self.place = 0
        """Messages and views so far: the place of the next in the order."""
        self.view = ""
        self._me: Member | None = None

    def found(self, web: int, me: Member, detail: str) -> View:
        self._me = me
        self.members = {key_of(me): me}
        return self._view(web, 0, (me,), (), (), detail)

    def apply(self, web: int, number: int, change: MembershipChange) -> View:
        """The view after the change; a change that says nothing new still has its place."""
        before = set(self.members.values())
        joined = [member for member, _ in change.joined if key_of(member) not in self.members]
        left = [self.members[gone.key] for gone in change.gone if gone.key in self.members]
        for gone in change.gone:
            self.members.pop(gone.key, None)
            self.upto.pop(gone.key, None)
        for member in joined:
            self.members[key_of(member)] = member
        told = [f"{member} came" for member in joined]
        told += [_how(gone, self, left) for gone in change.gone]
        lost = {each.key for each in change.gone if not each.left}
        failed = [member for member in left if key_of(member) in lost]
        said = "; ".join(filter(None, told))
        # Views stand in the order, so whoever is in both has come through the one before.
        stayed = tuple(member for member in self.members.values() if member in before)
        return self._view(web, number, joined, left, failed, said, stayed)

    def _view(
        self,
        web: int,
        number: int,
        joined: Sequence[Member],
        left: Sequence[Member],
        failed: Sequence[Member],
        detail: str,
        stayed: tuple[Member, ...] = (),
    ) -> View:
        self.view = f"{web:016x}.{number}"
        self.place += 1
        assert self._me is not None
        went = [member for member in left if member not in failed]
        return View(
            members=tuple(self.members.values()),
            id=self.view,
            joined=tuple(joined),
            left=tuple(left),
            seq=self.place,
            detail=detail,
            stayed=stayed,
            changes=changes_of(self._me, joined, went, failed, not number),
        )

    # -- for those who come later -----------------------------------------------------------------

    def roster(self) -> bytes:
        """All this, for a joiner that begins just here."""
        out = Writer().text(self.view).u64(self.place).u16(len(self.members))
        for key, member in self.members.items():
            out.member(member).u64(self.upto.get(key, 0))
        return out.done()

    def take_over(self, roster: bytes, me: Member) -> View:
        """Begin where the roster stands: the first view, with its cut."""
        reader = Reader(roster)
        self._me = me
        self.view, self.place = reader.text(), reader.u64()
        self.members, self.upto = {}, {}
        if self.place >= NUMBER_MAX:
            raise BadPacket("malformed")
        for _ in range(reader.u16()):
            member, upto = reader.member(), reader.u64()
            self.members[key_of(member)] = member
            if upto:
                self.upto[key_of(member)] = upto
        reader.done()
        if key_of(me) not in self.members:
            raise BadPacket("malformed")
        cut = tuple((self.members[key], upto) for key, upto in self.upto.items())
        return View(
            members=tuple(self.members.values()),
            id=self.view,
            joined=(me,),
            seq=self.place,
            cut=cut,
            changes=changes_of(me, (me,)),
        )


def _how(gone: RemovedMember, web: Web, left: list[Member]) -> str:
    names = [str(member) for member in left if key_of(member) == gone.key]
    return f"{names[0]} {'left' if gone.left else 'failed'}" if names else ""
