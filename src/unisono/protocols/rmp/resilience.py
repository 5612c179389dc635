"""How many hold what: resilience is proved by passes of the token, after a message is ordered.

[RMP-2] A site accepts the token only when it holds every slot up to the ACK that passes it. So
whoever sent an ACK holds every slot up to its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

from unisono.model import Resilient
from unisono.protocols.rmp.ordering import TokenAck
from unisono.protocols.rmp.quorums import ViewQuorums

T = TypeVar("T")


class Awaited(NamedTuple, Generic[T]):
    """A message, or several in one slot, whose resilience is to be reported."""

    timestamp: int
    k: int
    messages: T


class Resilience(Generic[T]):
    """The passes of the token that one site has seen, and what waits for them."""

    def __init__(self, sites: Iterable[int] = (), start: int = 0) -> None:
        self._passed = dict.fromkeys(sites, start)
        """By site, the slot up to which it holds all."""
        self._since: dict[int, int] = {}
        """By site that joined, the slot up to which all was before its time."""
        self._seen: dict[int, bool] = {}
        self._consumed: dict[int, int] = {}
        """By site, the slot up to which its application has taken everything."""
        self._leavers: dict[int, tuple[int, int]] = {}
        """Sites that have left and may lack some of what was ordered before: the slot up to which
        each holds all, and when it left."""
        self._waiting: dict[int, deque[Awaited[T]]] = {}
        """By k: what waits for the same number becomes stable in the order."""

    def begin(self, sites: Iterable[int], start: int) -> None:
        """An epoch begins: whoever passes the token in it holds what was before."""
        self._passed = dict.fromkeys(sites, start)
        self._since = {site: self._since[site] for site in sites if site in self._since}
        self._leavers.clear()

    def has_passed(self, site: int) -> bool:
        return self._seen.get(site, False)

    def add(self, site: int, start: int) -> None:
        """A site joins behind this slot."""
        self._passed.setdefault(site, start)
        self._since[site] = start

    def remove(self, site: int, now_us: int) -> None:
        """It has left. What it lacks is kept until it is `gone`."""
        if site in self._passed:
            self._leavers[site] = self._passed.pop(site), now_us
            self._seen.pop(site, None)

    def gone(self, site: int) -> None:
        """It holds all that it needs, or has had its time."""
        self._leavers.pop(site, None)

    def give_up_leavers(self, before_us: int) -> None:
        for site in [s for s, (_, since_us) in self._leavers.items() if since_us < before_us]:
            del self._leavers[site]

    def is_leaving(self, site: int) -> bool:
        return site in self._leavers

    def needed(self) -> int:
        """Slots up to this one are needed by nobody, and every application has taken them: a
        receiver that falls behind slows the senders, whose windows end there."""
        found = self.known()
        for site in self._passed:
            found = min(found, self._consumed.get(site, 0))
        return found

    def known(self) -> int:
        """Every site holds all slots up to this one, those that are leaving too."""
        found = self.stable()
        for end, _ in self._leavers.values():
            found = min(found, end)
        return found

    def passed(self, ack: TokenAck) -> None:
        """An ACK all of whose slots are filled here."""
        self._seen[ack.site] = True
        end = ack.end
        if end > self._passed.get(ack.site, end):
            self._passed[ack.site] = end
            self._consumed[ack.site] = max(ack.consumed, self._consumed.get(ack.site, 0))

    def has_proved(self, site: int, timestamp: int) -> bool:
        """That it holds all up to this slot."""
        return self._passed.get(site, timestamp) >= timestamp

    def holders(self, timestamp: int) -> frozenset[int]:
        """Who joined later does not count: it was given a state, not the message."""
        return frozenset(
            site
            for site, end in self._passed.items()
            if end >= timestamp > self._since.get(site, -1)
        )

    def is_decided(self, timestamp: int, quorums: ViewQuorums, *also: int) -> bool:
        """Whether no reformation can lose this slot: a quorum of the views before it holds it, or
        was given what follows from it when it joined. `also`: sites that are known to hold it."""
        earlier = quorums.before(timestamp)
        if not earlier.views:
            return True
        sites = {site for site, end in self._passed.items() if end >= timestamp}
        return earlier.has_majority(sites.union(also))

    def hold(self, site: int, timestamp: int) -> None:
        """A site has reported that it holds everything up to this slot."""
        self._passed[site] = max(timestamp, self._passed.get(site, 0))

    def _could_hold(self, timestamp: int) -> frozenset[int]:
        return frozenset(site for site in self._passed if timestamp > self._since.get(site, -1))

    def stable(self) -> int:
        """Every site holds all slots up to this one."""
        return min(self._passed.values(), default=0)

    def expect(self, timestamp: int, k: int, messages: T) -> None:
        """Report when `k` sites hold it, as `Resilient` counts."""
        self._waiting.setdefault(k, deque()).append(Awaited(timestamp, k, messages))

    def reached(self, quorums: ViewQuorums, primary: bool) -> list[tuple[T, frozenset[int]]]:
        """What has become as resilient as was asked for, with those known to hold it."""
        found: list[tuple[T, frozenset[int]]] = []
        for k, waiting in list(self._waiting.items()):
            while waiting and (holders := self._suffices(waiting[0], quorums, primary)):
                found.append((waiting.popleft().messages, holders))
            if not waiting:
                del self._waiting[k]
        return found

    def _suffices(self, one: Awaited[T], quorums: ViewQuorums, primary: bool) -> frozenset[int]:
        holders = self.holders(one.timestamp)
        if one.k == Resilient.MAJORITY:
            enough = primary and quorums.has_majority(holders)
        elif one.k == Resilient.ALL:
            enough = holders == self._could_hold(one.timestamp)
        else:
            enough = len(holders) >= one.k
        return holders if enough else frozenset()

    def out_of_reach(self, quorums: ViewQuorums, primary: bool) -> list[T]:
        """What too few are left for: sites that join later never hold it."""
        found: list[T] = []
        for k, waiting in list(self._waiting.items()):
            while waiting and self._has_too_few(waiting[0], quorums, primary):
                found.append(waiting.popleft().messages)
            if not waiting:
                del self._waiting[k]
        return found

    def _has_too_few(self, one: Awaited[T], quorums: ViewQuorums, primary: bool) -> bool:
        sites = self._could_hold(one.timestamp)
        if one.k == Resilient.MAJORITY:
            # Earlier views cease to count; a majority of the current one is needed in any case.
            return not primary or 2 * len(sites & quorums.members) <= len(quorums.members)
        return one.k > len(sites)

    def waits(self) -> bool:
        return bool(self._waiting)
