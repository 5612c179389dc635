"""[RMP-17] Watches the token: it moves, or there is a fault."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from unisono.core import Effect, Probe
from unisono.model import Address, Member
from unisono.parts.detector import APART_SHARE, Detector
from unisono.protocols.rmp.parameters import Parameters
from unisono.protocols.rmp.state import WATCH, Outgoing, Timer, TokenRing
from unisono.protocols.rmp.token import TokenRotation

TOKEN: Final = 0
"""No site has this key."""


class TokenWatch:
    """When the token moved last, as one site has seen it, and who may be dead that holds it up."""

    def __init__(
        self, parameters: Parameters, state: TokenRing, outgoing: Outgoing, token: TokenRotation
    ) -> None:
        self._detect_us = parameters.detect_us
        self._look_us = parameters.detect_us // 8
        self._again_us = parameters.detect_us // APART_SHARE + 1
        self._state = state
        self._outgoing = outgoing
        self._token = token
        self._detector: Detector[int] = Detector(self._detect_us, self._look_us)
        self._moved_us = 0
        """When the token moved last."""
        self._shown_us = 0
        """When it did, or was shown again."""
        self.probed: set[int] = set()
        """Sites of which the network was asked whether they still exist."""

    def start(self) -> None:
        self._moved_us = self._shown_us = self._state.now_us
        self._detector.watch(TOKEN, self._state.now_us)
        self._trust_all()

    def moved(self) -> None:
        """An ACK came that was news."""
        self._moved_us = self._shown_us = self._state.now_us
        self._detector.hear(TOKEN, self._state.now_us)
        self._trust_all()

    def is_silent(self, out: list[Effect]) -> bool:
        """Whether the token stood still for too long, or its site is dead. Before that its last ACK
        is shown again."""
        now_us = self._state.now_us
        self._detector.look(now_us)
        if self._state.frozen or not self._detector.is_watched(TOKEN):
            return False
        if self._detector.is_silent(TOKEN) or self.are_dead((self._token.holder(),)):
            return True
        if now_us - self._moved_us >= self._look_us:
            self.probe((self._token.holder(),), out)
        if now_us - self._shown_us > self._detect_us // 4:
            self._shown_us = now_us
            self._token.show_latest(out)
        return False

    def keep_on(self, out: list[Effect]) -> None:
        """At the end of a step. Nothing is watched without others, or while the ring is reformed;
        one that has left watches those that it waits for."""
        if not self._state.others() or self._state.frozen:
            self._detector.rest(TOKEN)
        elif not self._detector.is_watched(TOKEN):
            self.start()
        if not self._outgoing.is_armed(WATCH):
            self._outgoing.arm(Timer.WATCH, self._look_us, out)

    # -- processes that are dead ------------------------------------------------------------------

    def probe(self, sites: Collection[int], out: list[Effect]) -> None:
        """Ask the network whether their processes still exist."""
        entries, now_us = self._state.group.entries, self._state.now_us
        known = [site for site in sites if site in entries and site != self._state.key]
        for site in known:
            self._detector.watch(site, now_us)
        if known:
            self.probed.update(known)
            out.append(Probe(tuple(entries[site].member.address for site in known)))

    def note_unreachable(self, address: Address, out: list[Effect]) -> None:
        """The network reports that no process listens there. Once is not enough: it is soon asked
        again."""
        for site in self.probed:
            if self._state.address(site) == address:
                self._refuse(site, out)

    def note_elsewhere(self, member: Member, source: Address, out: list[Effect]) -> None:
        """From its own address a member reports that it is on another ring, or a later incarnation
        does that it is there instead: it is as good as dead to this one."""
        for site, (known, _) in self._state.group.entries.items():
            is_it = known[:2] == member[:2] and known.incarnation <= member.incarnation
            if is_it and site != self._state.key and source == member.address:
                self._detector.watch(site, self._state.now_us)
                self.probed.add(site)
                self._refuse(site, out)

    def _refuse(self, site: int, out: list[Effect]) -> None:
        if not self._detector.refuse(site, self._state.now_us):
            self._outgoing.arm(Timer.WATCH, self._again_us, out)

    def hear(self, site: int) -> None:
        """A packet of a site that was probed."""
        self._detector.hear(site, self._state.now_us)

    def are_dead(self, sites: Collection[int]) -> bool:
        """Whether the network has refused all of these, again and again."""
        return all(map(self._detector.is_dead, sites))

    def _trust_all(self) -> None:
        for site in self.probed:
            self._detector.forget(site)
        self.probed.clear()
