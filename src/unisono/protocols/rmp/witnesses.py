"""Who says that a list is decided: no single site is believed by one that took no part.

A site that is broken could end the group by one packet otherwise. The reform site that was promised
to is believed, since it gathered what decides.
"""

from __future__ import annotations

from typing import Final

from unisono.protocols.rmp.agreement import NewList

NEEDED: Final = 2


class Witnesses:
    """Those who said so of one list, the latest that was heard of."""

    def __init__(self, key: int) -> None:
        self._key = key
        self._list: NewList | None = None
        self._sites: set[int] = set()

    def hear(self, site: int, new_list: NewList) -> None:
        if new_list != self._list:
            self._list, self._sites = new_list, set()
        self._sites.add(site)

    def suffice(self, new_list: NewList) -> bool:
        """Whether two of its members have said so; of a part that goes on by its votes perhaps its
        only other one."""
        others = set(new_list.members) - {self._key}
        needed = NEEDED if new_list.primary else min(NEEDED, len(others))
        return new_list == self._list and len(self._sites & others) >= needed
