"""Former rings: the list that ended each, for sites that missed it [RMP §3.1]."""

from __future__ import annotations

from typing import Final

from unisono.core import EVERYONE, Effect
from unisono.model import Member
from unisono.protocols.rmp.agreement import NewList
from unisono.protocols.rmp.packets import PacketKind
from unisono.protocols.rmp.reform_packets import DECIDED, NewListFields, Proposal
from unisono.protocols.rmp.state import TRIDS_MAX, Outgoing, TokenRing

RINGS_MAX: Final = 8 * TRIDS_MAX
"""Identifiers that are remembered."""


class FormerRings:
    """What one site remembers of the rings that it was on."""

    def __init__(self, state: TokenRing, outgoing: Outgoing) -> None:
        self._state = state
        self._outgoing = outgoing
        self._lists: dict[int, NewList] = {}
        """By TRID, the list that ended the ring of that name."""

    def end(self, new_list: NewList) -> None:
        """This list ends the ring that we are on."""
        self._lists |= dict.fromkeys(self._state.trids, new_list)
        while len(self._lists) > RINGS_MAX:
            del self._lists[next(iter(self._lists))]

    def has(self, trid: int) -> bool:
        return trid in self._lists

    def report_to(self, member: Member, trid: int, out: list[Effect]) -> None:
        """It still works on a ring that is no more."""
        self.report(self._lists[trid], trid, out, member)

    def report(
        self, new_list: NewList, trid: int, out: list[Effect], to: Member | None = None
    ) -> None:
        """This list is decided."""
        record = Proposal(self._state.key, DECIDED, NewListFields.of(new_list))
        target = EVERYONE if to is None else (to.address,)
        self._outgoing.send(PacketKind.COMMIT, record, out, target, trid)
