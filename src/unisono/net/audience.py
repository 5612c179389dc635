"""Whom `EVERYONE` means where there is no multicast: the list, the view, and those heard lately."""

from __future__ import annotations

from collections.abc import Iterable

from unisono.model import Address

GUESTS_COUNT_MAX = 64
HEARD_US = 10_000_000
"""Who is heard but not known is answered this long: a joiner that is not on the list."""
FORMER_US = 300_000_000
"""Who was in a view is still called this long, so that a split group finds itself again."""


class Audience:
    """The addresses to reach. Peers and view are kept; guests expire and are bounded."""

    def __init__(self, peers: Iterable[Address], me: Address) -> None:
        self._peers = tuple(dict.fromkeys(peers))
        self._mine = {me}
        self._view: tuple[Address, ...] = ()
        self._guests: dict[Address, int] = {}
        self._known: set[Address] = set()
        self._everyone: tuple[Address, ...] = ()
        self._expiry_us = 0
        self._gather()

    def is_me(self, address: Address) -> None:
        """Another address of our own: never speak to it."""
        self._mine.add(address)
        self._gather()

    def heard(self, source: Address, now_us: int) -> None:
        if source not in self._known:
            self._invite(source, now_us, HEARD_US)

    def installed(self, members: Iterable[Address], now_us: int) -> None:
        former, self._view = self._view, tuple(members)
        for address in former:
            if address not in self._view:
                self._invite(address, now_us, FORMER_US)
        self._gather()

    def everyone(self, now_us: int) -> tuple[Address, ...]:
        if self._guests and now_us >= self._expiry_us:
            self._guests = {who: at for who, at in self._guests.items() if at > now_us}
            self._gather()
        return self._everyone

    def _invite(self, who: Address, now_us: int, for_us: int) -> None:
        guests, until_us = self._guests, now_us + for_us
        new = who not in guests
        if new and len(guests) >= GUESTS_COUNT_MAX:
            del guests[min(guests, key=guests.__getitem__)]
        guests[who] = max(until_us, guests.get(who, 0))
        if new:
            self._gather()

    def _gather(self) -> None:
        self._known = {*self._peers, *self._view, *self._mine}
        everyone = dict.fromkeys((*self._peers, *self._view, *self._guests))
        self._everyone = tuple(who for who in everyone if who not in self._mine)
        self._expiry_us = min(self._guests.values(), default=0)
