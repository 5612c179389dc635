"""The addresses of `EVERYONE` where there is no multicast: configured peers, the view, and guests.

An address that is not configured is validated before anything is sent to it
(`net.address_validation`), also that of a member of the view, which others reported.
"""

from __future__ import annotations

from collections.abc import Iterable

from unisono.model import Address
from unisono.net.addresses import without_scope

GUESTS_COUNT_MAX = 64
PROVED_US = 10_000_000
"""How long a validated address, as that of a joiner, is answered before it is validated again."""
FORMER_US = 300_000_000
"""How long former members are still addressed, so that a partitioned group merges again."""
PENDING_COUNT_MAX = 256
"""Members of the view whose addresses are not validated."""


class Destinations:
    """The addresses to reach. Peers and view are kept; guests expire and are bounded."""

    def __init__(self, peers: Iterable[Address], me: Address, far: Iterable[Address] = ()) -> None:
        self._peers = tuple(dict.fromkeys(peers))
        self._far = frozenset(far)
        """Of other clusters: configured too, and never of `EVERYONE`."""
        self._mine = {me}
        self._view: dict[Address, bool] = {}
        """And whether it may be sent to."""
        self._guests: dict[Address, int] = {}
        self._everyone: tuple[Address, ...] = ()
        self._expiry_us = 0
        self.reached: frozenset[Address] = frozenset()
        """Addresses that may be sent to, and our own."""
        self.pending: tuple[Address, ...] = ()
        """Members of the view whose addresses are still to be validated."""
        self._gather()

    def is_me(self, address: Address) -> None:
        """Another of our own addresses: never send to it."""
        self._mine.add(address)
        self._gather()

    def proved(self, address: Address, now_us: int) -> None:
        """It answered from its address."""
        if address in self._view:
            self._view[address] = True
            self._gather()
        elif address not in self._peers:
            self._invite(address, now_us, PROVED_US)

    def should_prove_again(self, address: Address, now_us: int) -> bool:
        """Whether a guest's time is half over."""
        until_us = self._guests.get(address)
        return until_us is not None and until_us - now_us < PROVED_US // 2

    def installed(self, members: Iterable[Address], now_us: int) -> None:
        former = self._view
        self._view = {address: address in self.reached for address in members}
        for address, may_send in former.items():
            if may_send and address not in self._view:
                self._invite(address, now_us, FORMER_US)
        self._gather()

    def everyone(self, now_us: int) -> tuple[Address, ...]:
        self._forget(now_us)
        return self._everyone

    def reaches(self, address: Address, now_us: int) -> bool:
        self._forget(now_us)
        return address in self.reached

    def _forget(self, now_us: int) -> None:
        if self._guests and now_us >= self._expiry_us:
            self._guests = {address: at for address, at in self._guests.items() if at > now_us}
            self._gather()

    def _invite(self, address: Address, now_us: int, for_us: int) -> None:
        guests, until_us = self._guests, now_us + for_us
        if address not in guests and len(guests) >= GUESTS_COUNT_MAX:
            del guests[min(guests, key=guests.__getitem__)]
        guests[address] = max(until_us, guests.get(address, 0))
        self._gather()

    def _gather(self) -> None:
        may_send = [address for address, is_so in self._view.items() if is_so]
        everyone = dict.fromkeys((*self._peers, *may_send, *self._guests))
        elsewhere = self._mine | self._far
        self._everyone = tuple(address for address in everyone if address not in elsewhere)
        plain = (Address(without_scope(address.host), address.port) for address in everyone)
        self.reached = frozenset((*everyone, *plain, *self._mine, *self._far))
        unproved = [address for address in self._view if address not in self.reached]
        self.pending = tuple(unproved[:PENDING_COUNT_MAX])
        self._expiry_us = min(self._guests.values(), default=0)
