"""Sites that live and hold up the token: what they lack, nobody can give them.

Everybody answers a reform site, and still the token does not move. An alarm that repeats so is not
false: those that are behind all the time are lost to the ring, as if they were silent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from unisono.protocols.rmp.agreement import SyncPoint
from unisono.protocols.rmp.state import TokenRing

ALARMS: Final = 4
"""So many alarms, over so many times `detect_us`, without a slot more anywhere."""


class Stalls:
    """The false alarms of one reform site, as long as they are all alike."""

    def __init__(self, state: TokenRing, detect_us: int) -> None:
        self._state = state
        self._for_us = ALARMS * detect_us
        self._behind: dict[int, int] = {}
        """By site that lacks slots, the last that it holds."""
        self._held = self._count = self._since_us = 0

    def note(self, held: int, answers: Mapping[int, SyncPoint]) -> None:
        """All answered, and hold that much together."""
        behind = {site: point.held for site, point in answers.items() if point.held < held}
        if (held, behind) != (self._held, self._behind):
            self._held, self._behind = held, behind
            self._count, self._since_us = 0, self._state.now_us
        self._count += 1

    def holds_up(self, site: int) -> bool:
        """It lacks the same slots as ever."""
        if site not in self._behind or self._count < ALARMS:
            return False
        return self._state.now_us - self._since_us >= self._for_us
