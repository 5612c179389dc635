"""[TRA-16] Components find each other: whoever hears a packet of another configuration answers.

Stale packets prove nothing, nor do links that work one way. So a merge begins between two processes
of which one has echoed the other's stamp. After an attempt in which somebody was lost, a component
waits before it begins the next, longer each time: links that flap cost a bounded number of changes.
"""

from __future__ import annotations

from unisono.core import Effect
from unisono.model import Address, Member
from unisono.parts.identity import key_of
from unisono.protocols.transis.packets import ComponentAnnounce
from unisono.protocols.transis.parameters import MERGE_DOUBLINGS, Parameters
from unisono.protocols.transis.state import LocalMember, PacketSender
from unisono.protocols.transis.suggestion import Suggestion

GREETED_MAX = 64
"""Addresses greeted of late; while there are so many, no other is."""


class ComponentSearch:
    """One member's part in finding other components."""

    def __init__(
        self,
        parameters: Parameters,
        local: LocalMember,
        outgoing: PacketSender,
        suggestion: Suggestion,
    ) -> None:
        self._parameters = parameters
        self._local = local
        self._outgoing = outgoing
        self._suggestion = suggestion
        self._greeted: dict[Address, tuple[int, int]] = {}
        """When, and what was echoed."""
        self._doublings = -1
        self._begins_us = 0

    def greet(self, to: Address, member: Member | None, stamp: int, out: list[Effect]) -> None:
        """Tell a process of another component that we are here, and what we heard from it. Two may
        greet each other at the same moment: an echo goes at once, even so."""
        now_us, since_us = self._local.now_us, self._local.now_us - self._parameters.repeat_us // 2
        greeted = {to: greeting for to, greeting in self._greeted.items() if greeting[0] > since_us}
        self._greeted = greeted
        if to in greeted and (not stamp or greeted[to][1]):
            return
        if to not in greeted and len(greeted) >= GREETED_MAX:
            return
        greeted[to] = now_us, stamp
        key = 0 if member is None else key_of(member)
        announce = ComponentAnnounce(self._local.me, self._suggestion.stamp, key, stamp)
        self._outgoing.send([announce], out, (to,))

    def hears_me(self, packet: ComponentAnnounce) -> bool:
        """It was sent after it had heard of my present attempt."""
        return packet.to == self._local.key and packet.echo == self._suggestion.stamp

    def may_begin(self) -> bool:
        return self._local.now_us >= self._begins_us

    def ended(self, lost: bool) -> None:
        """A configuration was installed, after an attempt in which somebody was lost or not."""
        if not lost:
            self._doublings = -1
            return
        self._doublings = min(self._doublings + 1, MERGE_DOUBLINGS)
        self._begins_us = self._local.now_us + (self._parameters.merge_us << self._doublings)
