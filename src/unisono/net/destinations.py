"""Whom `EVERYONE` means where there is no multicast: the list, the view, and guests.

Who is not on the list has proved that it receives at its address before anything is sent to it
(`net.gate`); that goes for members of the view too, whose addresses others told us.
"""

from __future__ import annotations

from collections.abc import Iterable

from unisono.model import Address
from unisono.net.addresses import without_scope

GUESTS_COUNT_MAX = 64
PROVED_US = 10_000_000
"""Who proved its address is answered this long: a joiner that is not on the list. Then it proves it
again."""
FORMER_US = 300_000_000
"""Who was in a view is still called this long, so that a split group finds itself again."""
PENDING_COUNT_MAX = 256
"""Members of the view that have not proved their address."""


class Destinations:
    """The addresses to reach. Peers and view are kept; guests expire and are bounded."""

    def __init__(self, peers: Iterable[Address], me: Address) -> None:
        self._peers = tuple(dict.fromkeys(peers))
        self._mine = {me}
        self._view: dict[Address, bool] = {}
        """And whether it may be spoken to."""
        self._guests: dict[Address, int] = {}
        self._everyone: tuple[Address, ...] = ()
        self._expiry_us = 0
        self.reached: frozenset[Address] = frozenset()
        """Those that may be spoken to, and ourselves."""
        self.pending: tuple[Address, ...] = ()
        """Members of the view that are still to prove their address."""
        self._gather()

    def is_me(self, address: Address) -> None:
        """Another address of our own: never speak to it."""
        self._mine.add(address)
        self._gather()

    def proved(self, who: Address, now_us: int) -> None:
        """It answered from its address."""
        if who in self._view:
            self._view[who] = True
            self._gather()
        elif who not in self._peers:
            self._invite(who, now_us, PROVED_US)

    def should_prove_again(self, who: Address, now_us: int) -> bool:
        """A guest whose time is half over: as long as it answers, it is one."""
        until_us = self._guests.get(who)
        return until_us is not None and until_us - now_us < PROVED_US // 2

    def installed(self, members: Iterable[Address], now_us: int) -> None:
        former = self._view
        self._view = {who: who in self.reached for who in members}
        for who, spoken_to in former.items():
            if spoken_to and who not in self._view:
                self._invite(who, now_us, FORMER_US)
        self._gather()

    def everyone(self, now_us: int) -> tuple[Address, ...]:
        self._forget(now_us)
        return self._everyone

    def reaches(self, who: Address, now_us: int) -> bool:
        self._forget(now_us)
        return who in self.reached

    def _forget(self, now_us: int) -> None:
        if self._guests and now_us >= self._expiry_us:
            self._guests = {who: at for who, at in self._guests.items() if at > now_us}
            self._gather()

    def _invite(self, who: Address, now_us: int, for_us: int) -> None:
        guests, until_us = self._guests, now_us + for_us
        if who not in guests and len(guests) >= GUESTS_COUNT_MAX:
            del guests[min(guests, key=guests.__getitem__)]
        guests[who] = max(until_us, guests.get(who, 0))
        self._gather()

    def _gather(self) -> None:
        spoken_to = [who for who, is_so in self._view.items() if is_so]
        everyone = dict.fromkeys((*self._peers, *spoken_to, *self._guests))
        self._everyone = tuple(who for who in everyone if who not in self._mine)
        plain = (Address(without_scope(who.host), who.port) for who in everyone)
        self.reached = frozenset((*everyone, *plain, *self._mine))
        unproved = [who for who in self._view if who not in self.reached]
        self.pending = tuple(unproved[:PENDING_COUNT_MAX])
        self._expiry_us = min(self._guests.values(), default=0)
