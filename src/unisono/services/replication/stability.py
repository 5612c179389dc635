"""[TRA-24, TRA-25] How far each member has logged the green order, and acted upon it."""

from __future__ import annotations

from collections.abc import Iterable


class Lines:
    """By member, the position up to which it has told so."""

    def __init__(self, name: str, explicit: bool) -> None:
        self._name = name
        self._written = 0
        self._acknowledged = 0
        self._explicit = explicit
        """The application acknowledges; else what is logged counts."""
        self._told = 0
        self._of: dict[str, int] = {}
        self.stable = 0
        """All members have logged the order up to here."""

    @property
    def mine(self) -> int:
        return min(self._written, self._acknowledged) if self._explicit else self._written

    def write(self, position: int) -> None:
        self._written = max(self._written, position)
        self.note(self._name, self.mine)

    def acknowledge(self, position: int) -> None:
        self._acknowledged = max(self._acknowledged, position)
        self.note(self._name, self.mine)

    def note(self, name: str, line: int) -> None:
        self._of[name] = max(line, self._of.get(name, 0))

    def is_untold(self) -> bool:
        return self.mine > self._told

    def tell(self) -> int:
        self._told = self.mine
        return self._told

    def settle(self, members: Iterable[str]) -> bool:
        """Whether more is stable now."""
        line = min((self._of.get(name, 0) for name in members), default=0)
        if line <= self.stable:
            return False
        self.stable = line
        return True
