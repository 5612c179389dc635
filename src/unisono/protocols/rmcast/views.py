"""The views that the application sees."""

from __future__ import annotations

from unisono.core import Effect, Install
from unisono.model import Member, View
from unisono.parts.admission import Admission
from unisono.parts.core_clock import CoreClock
from unisono.parts.views import next_view
from unisono.protocols.rmcast.packets import FAILED, LEFT, MEMBER, key_of
from unisono.protocols.rmcast.roster import Roster
from unisono.wire import tag_of


class Views:
    """Installs a view when the members have changed since the last."""

    def __init__(self, roster: Roster, admission: Admission, clock: CoreClock) -> None:
        self._roster = roster
        self._admission = admission
        self._clock = clock
        self.id = ""
        """The view in which messages are delivered now."""
        self.changed = False
        """A member joined or left since the last view."""
        self.removed = False
        """A member failed since the last view."""
        self._shown: tuple[Member, ...] = ()

    def note_change(self) -> None:
        self.changed = True

    def note_removal(self) -> None:
        self.removed = True

    def install(self, out: list[Effect], cut: bool = False) -> None:
        self.changed = self.removed = False
        before = self._shown
        view = self._next(cut)
        self._shown = view.members
        if view.members != before:
            self.id = view.id
            self._admission.entered(self._clock.now_us)
            out.append(Install(view))

    def _next(self, cut: bool) -> View:
        """A failed member stays in the view until its last message is agreed on."""
        peers, before = self._roster.peers, self._shown
        seen = (MEMBER, FAILED)
        members = sorted(peer.member for peer in peers.values() if peer.status in seen)
        words = " ".join(map(str, members))
        return next_view(
            self._roster.me,
            before,
            members,
            id=f"{self._roster.changes}-{tag_of(words) & 0xFFFFFF:06x}",
            left=[member for member in before if self._has_left(member)],
            cut=sorted((p.member, p.message) for p in peers.values()) if cut else (),
            founded=not cut and not before,
        )

    def _has_left(self, member: Member) -> bool:
        key = key_of(member)
        peer = self._roster.peers.get(key)
        return key in self._roster.farewells or (peer is not None and peer.status is LEFT)
