"""The acknowledgment matrix: who is known to hold what of whom, and so what all hold.

A message is stable when every member is known to hold it; then it can be delivered as safe, and
forgotten. Protocols learn rows of the matrix from the acknowledgments that packets carry.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class AckMatrix(Generic[K]):
    """By holder and sender, the number up to which all messages are known to be there."""

    def __init__(self, members: Iterable[K] = ()) -> None:
        self._rows: dict[K, dict[K, int]] = {member: {} for member in members}
        self._least: dict[K, int] = {}
        """By sender, what all hold; kept until a holder that had the least has more."""

    @property
    def members(self) -> tuple[K, ...]:
        return tuple(self._rows)

    def add(self, member: K, row: Mapping[K, int] | None = None) -> None:
        """A member that is known to hold this, or nothing; nobody is added twice."""
        if member not in self._rows:
            self._rows[member] = dict(row or {})
            self._least.clear()

    def remove(self, member: K) -> None:
        """It is no longer waited for. What it sent stays in the rows of the others."""
        if self._rows.pop(member, None) is not None:
            self._least.clear()

    def note(self, holder: K, sender: K, number: int) -> bool:
        """The holder has all of the sender up to this number. Whether that is news; who is no
        member is not waited for, and what is known does not shrink."""
        row = self._rows.get(holder)
        if row is None:
            return False
        before = row.get(sender, 0)
        if number <= before:
            return False
        row[sender] = number
        if self._least.get(sender, before) == before:
            self._least.pop(sender, None)
        return True

    def known(self, holder: K, sender: K) -> int:
        """Up to which number this one holds all of that one, as far as is known."""
        return self._rows.get(holder, {}).get(sender, 0)

    def stable(self, sender: K) -> int:
        """Up to which number every member holds all of the sender; 0 without members."""
        least = self._least.get(sender)
        if least is None:
            least = min((row.get(sender, 0) for row in self._rows.values()), default=0)
            self._least[sender] = least
        return least

    def holders(self, sender: K, number: int) -> tuple[K, ...]:
        """The members known to hold this message."""
        return tuple(who for who, row in self._rows.items() if row.get(sender, 0) >= number)

    def is_held_by(self, sender: K, number: int, count: int) -> bool:
        """Whether so many members are known to hold this message."""
        return len(self.holders(sender, number)) >= count
