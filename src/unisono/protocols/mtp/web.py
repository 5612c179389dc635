"""The members of the web, the view, and how much of each sender was delivered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from unisono.errors import BadPacket
from unisono.fields import U64
from unisono.layout import decode, encode
from unisono.model import Member, View, changes_of
from unisono.protocols.mtp.batch import MembershipChange, RemovedMember
from unisono.protocols.mtp.packets import Number, key_of


class WebRoster(NamedTuple):
    """The web, for a joiner."""

    view: str
    seq: Number
    members: tuple[tuple[Member, U64], ...]
    """With each, the number of its last message delivered."""


class Web:
    """[MTP 5.3] Membership, changed only by messages in the order, so the same for all."""

    def __init__(self) -> None:
        self.members: dict[int, Member] = {}
        """By key, in the order of joining."""
        self.upto: dict[int, int] = {}
        """By member, the number of its last message delivered."""
        self.seq = 0
        """Messages and views delivered so far: the sequence number of the last."""
        self.view = ""
        self._me: Member | None = None

    def found(self, web: int, me: Member, detail: str) -> View:
        self._me = me
        self.members = {key_of(me): me}
        return self._view(web, 0, (me,), (), (), detail)

    def apply(self, web: int, number: int, change: MembershipChange) -> View:
        """The view after the change; one that changes nothing has a sequence number too."""
        before = set(self.members.values())
        joined = [member for member, _ in change.joined if key_of(member) not in self.members]
        left = [self.members[gone.key] for gone in change.gone if gone.key in self.members]
        for gone in change.gone:
            self.members.pop(gone.key, None)
            self.upto.pop(gone.key, None)
        for member in joined:
            self.members[key_of(member)] = member
        reasons = [f"{member} came" for member in joined]
        reasons += [_how(gone, left) for gone in change.gone]
        lost = {each.key for each in change.gone if not each.left}
        failed = [member for member in left if key_of(member) in lost]
        detail = "; ".join(filter(None, reasons))
        # Views are part of the total order: a member of both has delivered all between them.
        stayed = tuple(member for member in self.members.values() if member in before)
        return self._view(web, number, joined, left, failed, detail, stayed)

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
        self.seq += 1
        assert self._me is not None
        went = [member for member in left if member not in failed]
        return View(
            members=tuple(self.members.values()),
            id=self.view,
            joined=tuple(joined),
            left=tuple(left),
            seq=self.seq,
            detail=detail,
            stayed=stayed,
            changes=changes_of(self._me, joined, went, failed, not number),
        )

    def note_delivered(self, origin: int, count: int, upto: int) -> int:
        """Messages of this member, the last of this number; the sequence number of the first."""
        first = self.seq + 1
        self.seq += count
        self.upto[origin] = upto
        return first

    # -- for joiners -------------------------------------------------------------------------------

    def roster(self) -> bytes:
        """All this, for a joiner that starts at this point of the order."""
        rows = [(member, self.upto.get(key, 0)) for key, member in self.members.items()]
        return encode(WebRoster(self.view, self.seq, tuple(rows)))

    def take_over(self, roster: bytes, me: Member) -> View:
        """Start from a roster: returns the first view, with its cut."""
        self._me = me
        self.view, self.seq, rows = decode(WebRoster, roster)
        self.members = {key_of(member): member for member, _ in rows}
        self.upto = {key_of(member): upto for member, upto in rows if upto}
        if key_of(me) not in self.members:
            raise BadPacket("malformed")
        cut = tuple((self.members[key], upto) for key, upto in self.upto.items())
        return View(
            members=tuple(self.members.values()),
            id=self.view,
            joined=(me,),
            seq=self.seq,
            cut=cut,
            changes=changes_of(me, (me,)),
        )


def _how(gone: RemovedMember, left: list[Member]) -> str:
    names = [str(member) for member in left if key_of(member) == gone.key]
    return f"{names[0]} {'left' if gone.left else 'failed'}" if names else ""
