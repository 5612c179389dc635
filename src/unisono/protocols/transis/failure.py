"""Which members are silent: the failure detector of one member."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from unisono.core import Effect, Probe
from unisono.model import Address, Member
from unisono.parts.detector import Detector
from unisono.protocols.transis.parameters import Parameters
from unisono.protocols.transis.state import LocalMember

PROBED_SHARE = 3
"""One that is silent for this share of its limit is asked for by a probe."""


class SilenceWatch:
    """Watches the members of the configuration, and those of a suggested set."""

    def __init__(self, parameters: Parameters, local: LocalMember) -> None:
        self._local = local
        self._detector: Detector[int] = Detector(parameters.detect_us, parameters.look_us)
        self._watched: list[int] = []
        self._members: dict[int, Member] = {}

    @property
    def listened_us(self) -> int:
        """A clock that stands while this process does not run."""
        return self._detector.listened_us

    def watch(self, keys: Collection[int], members: Mapping[int, Member]) -> None:
        """From now on these count, and no others; some may not have introduced themselves."""
        self._watched = [key for key in keys if key != self._local.key]
        self._detector.keep(self._watched, self._local.now_us)
        self._members = {key: members[key] for key in self._watched if key in members}

    def look(self) -> None:
        self._detector.look(self._local.now_us)

    def hear(self, key: int) -> None:
        self._detector.hear(key, self._local.now_us)

    def silent(self) -> list[int]:
        return [key for key in self._watched if self._detector.is_silent(key)]

    def limit_us(self, key: int) -> int:
        return self._detector.limit_us(key)

    def is_quiet(self, key: int) -> bool:
        """It did not answer for a while, and may be gone."""
        return self._detector.is_silent(key, PROBED_SHARE)

    def probe(self, out: list[Effect]) -> None:
        """Ask the network whether the processes of those that are quiet still exist."""
        to = tuple(member.address for key, member in self._members.items() if self.is_quiet(key))
        if to:
            out.append(Probe(to))

    def doubt(self, address: Address) -> None:
        """The network reports that no process listens there."""
        for key, member in self._members.items():
            if member.address == address:
                self._detector.refuse(key, self._local.now_us)
