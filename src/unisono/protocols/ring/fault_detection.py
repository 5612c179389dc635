"""Which members are silent: the holder while its turn is late, and all while a ring is formed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from unisono.core import Effect, Probe
from unisono.model import Address, Member
from unisono.parts.detector import Detector
from unisono.protocols.ring.agenda import Agenda
from unisono.protocols.ring.packets import Version, key_of
from unisono.protocols.ring.state import RingState

HOLE_TIMES: Final = 4
"""A turn of which nothing more came for this many times `detect_us` will never be whole."""

Hole: TypeAlias = tuple[int, int]
"""The turn that its holder began and has not finished, and how many packets of it are missing."""


class FaultDetection:
    """The failure detector of one member, fed with what arrives."""

    __slots__ = (
        "_agenda",
        "_hole",
        "_hole_us",
        "_state",
        "_waited_for",
        "detector",
        "is_waiting",
        "tries",
    )

    def __init__(self, state: RingState, agenda: Agenda, detect_us: int, look_us: int) -> None:
        self._state = state
        self._agenda = agenda
        self.detector: Detector[int] = Detector(detect_us, look_us)
        self.tries = 0
        """Requests to the holder that it has not answered."""
        self.is_waiting = False
        """A turn is late, and its holder watched, whether or not it answered since."""
        self._waited_for: tuple[Version, int] | None = None
        """The ring of the late turn, and its holder."""

        self._hole: Hole = (0, 0)
        self._hole_us = 0

    def watch_ring(self) -> None:
        """While a ring is formed, all are to answer."""
        for key in self._state.ring.keys:
            if key != self._state.key:
                self.detector.watch(key, self._agenda.now_us)

    def start(self, holder: int) -> None:
        """A new ring is in force, or the old one continues. A holder that was silent in it is so
        still: without a reason to stop this ring again, its members would deny each other the
        next one for ever."""
        if self._waited_for != (self._state.ring.version, holder):
            self._wait_no_more()

    def _wait_no_more(self) -> None:
        self.tries = 0
        self.is_waiting = False
        self._waited_for = None

    def wait_for(self, key: int) -> None:
        """The turn is late, and its holder is asked."""
        self.tries += 1
        self.is_waiting = True
        self._waited_for = (self._state.ring.version, key)
        self.detector.watch(key, self._agenda.now_us)

    def note_hole(self, hole: Hole) -> None:
        if hole != self._hole:
            self._hole, self._hole_us = hole, self.detector.listened_us

    def holds_up(self, hole: Hole) -> bool:
        """The holder lives, and its turn never becomes whole, however often it is asked."""
        if not hole[0] or hole != self._hole:
            return False
        detector = self.detector
        return detector.listened_us - self._hole_us >= HOLE_TIMES * detector.detect_us

    def reset(self) -> None:
        """The turn has arrived: nobody is waited for until the next is late."""
        if self.is_waiting:
            self._wait_no_more()
            self.detector.rest_all()

    def note_holder(self, key: int) -> None:
        """The holder sent something."""
        self.tries = 0
        self.detector.hear(key, self._agenda.now_us)

    def probe(self, members: Iterable[Member], out: list[Effect]) -> None:
        """Ask the network whether their processes still exist."""
        to = tuple(member.address for member in members)
        if to:
            out.append(Probe(to))

    def note_unreachable(self, address: Address) -> None:
        """The network reports that no process listens there."""
        for member in self._state.ring.members:
            if member.address == address:
                self.detector.refuse(key_of(member), self._agenda.now_us)
