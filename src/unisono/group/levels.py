"""Service levels by the names that callers give them."""

from __future__ import annotations

from typing import Final

from unisono.group.replay import check_ordered
from unisono.group.session import SessionFactory
from unisono.model import ServiceLevel

LEVELS_COUNT_MAX: Final = 64


class Levels(dict[ServiceLevel | str | None, ServiceLevel]):
    """Checked on first use, then looked up. None is the default level."""

    def __init__(self, sessions: SessionFactory, default: str, ordered: bool) -> None:
        """`ordered`: only levels with a total order are accepted."""
        self._sessions = sessions
        self._default = default
        self._ordered = ordered
        self.renew()

    def renew(self) -> None:
        """The protocol became known, or changed: check again."""
        self.clear()
        sessions = self._sessions
        self[None] = self._checked(
            sessions.level(self._default) if self._default else sessions.default_level
        )

    def __missing__(self, asked: ServiceLevel | str | None) -> ServiceLevel:
        level = self._checked(self._sessions.level("" if asked is None else asked))
        if len(self) < LEVELS_COUNT_MAX:
            self[asked] = level
        return level

    def _checked(self, level: ServiceLevel) -> ServiceLevel:
        if self._ordered:
            check_ordered(level, self._sessions.spec)
        return level
