"""The kinds of shared objects that a group offers."""

from __future__ import annotations

from unisono.services.objects.table import ObjectTable
from unisono.services.objects.values import Value
from unisono.services.sharing.call import Operator
from unisono.services.sharing.claims import (
    SharedBarrier,
    SharedElection,
    SharedLock,
    SharedParty,
    SharedReadWriteLock,
    SharedSemaphore,
)
from unisono.services.sharing.collections import (
    SharedCache,
    SharedCounter,
    SharedDict,
    SharedList,
    SharedNumbers,
    SharedSet,
)
from unisono.services.sharing.queues import SharedOnce, SharedQueue, SharedTopic
from unisono.services.sharing.watching import Watching


class SharedKinds:
    """By name."""

    def __init__(self, operator: Operator, table: ObjectTable, watching: Watching) -> None:
        self._operator = operator
        self._table = table
        self._watching = watching

    def dict(self, name: str) -> SharedDict:
        """A dictionary with texts as keys."""
        return SharedDict(self._operator, self._table, self._watching, name)

    def counter(self, name: str) -> SharedCounter:
        """A whole number."""
        return SharedCounter(self._operator, self._table, self._watching, name)

    def numbers(self, name: str, block: int = 1) -> SharedNumbers:
        """Unique numbers: each member fetches so many at a time."""
        return SharedNumbers(self._operator, self._table, self._watching, name, block)

    def set(self, name: str) -> SharedSet:
        """A set of texts, whole numbers and bytes."""
        return SharedSet(self._operator, self._table, self._watching, name)

    def list(self, name: str) -> SharedList:
        """A list of values."""
        return SharedList(self._operator, self._table, self._watching, name)

    def cache(self, name: str, count_max: int = 65_536) -> SharedCache:
        """Entries with a time to live; beyond `count_max` the oldest go."""
        return SharedCache(self._operator, self._table, self._watching, name, count_max)

    def lock(self, name: str) -> SharedLock:
        """One at a time."""
        return SharedLock(self._operator, self._table, self._watching, name)

    def read_lock(self, name: str) -> SharedReadWriteLock:
        """Together with other readers."""
        return SharedReadWriteLock(self._operator, self._table, self._watching, name, False)

    def write_lock(self, name: str) -> SharedReadWriteLock:
        """Alone, also without readers."""
        return SharedReadWriteLock(self._operator, self._table, self._watching, name, True)

    def semaphore(self, name: str, count: int) -> SharedSemaphore:
        """So many at a time."""
        return SharedSemaphore(self._operator, self._table, self._watching, name, count)

    def election(self, name: str) -> SharedElection:
        """One leads, the others wait to."""
        return SharedElection(self._operator, self._table, self._watching, name)

    def party(self, name: str, value: Value = True) -> SharedParty:
        """Be here, with this value; or see who is."""
        return SharedParty(self._operator, self._table, self._watching, name, value)

    def barrier(self, name: str, count: int) -> SharedBarrier:
        """Wait for so many."""
        return SharedBarrier(self._operator, self._table, self._watching, name, count)

    def once(self, name: str) -> SharedOnce:
        """Done by one, for all."""
        return SharedOnce(self._operator, self._table, self._watching, name)

    def queue(self, name: str) -> SharedQueue:
        """A queue of items that are taken exactly once; of work, if they are submitted."""
        return SharedQueue(self._operator, self._table, self._watching, name)

    def topic(self, name: str, retained: int = 0) -> SharedTopic:
        """Publish and subscribe; the last `retained` values are kept."""
        return SharedTopic(self._operator, self._table, self._watching, name, retained)
