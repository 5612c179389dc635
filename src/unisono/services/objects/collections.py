"""Dictionaries, counters, sets, lists, and caches."""

from __future__ import annotations

from typing import Any

from unisono.services.objects.state import Rejected, SharedState, Surroundings, Ticket
from unisono.services.objects.values import Value


class DictState(SharedState):
    KIND = "dict"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self.entries: dict[str, Value] = {}

    def do_get(self, ticket: Ticket, key: str) -> Value:
        return self.entries.get(key)

    def do_items(self, ticket: Ticket) -> Value:
        return dict(self.entries)

    def do_put(self, ticket: Ticket, key: str, value: Value) -> Value:
        """What it replaces."""
        before = self.entries.get(key)
        self.entries[key] = value
        self.around.changed(key, value)
        return before

    def do_update(self, ticket: Ticket, entries: dict[str, Value]) -> None:
        for key, value in entries.items():
            self.do_put(ticket, key, value)

    def do_compare_and_set(self, ticket: Ticket, key: str, expected: Value, value: Value) -> bool:
        """None stands for no entry, on both sides."""
        if self.entries.get(key) != expected:
            return False
        if value is None:
            self.do_remove(ticket, key)
        else:
            self.do_put(ticket, key, value)
        return True

    def do_remove(self, ticket: Ticket, key: str) -> Value:
        if key not in self.entries:
            return None
        self.around.changed(key, None)
        return self.entries.pop(key)

    def do_clear(self, ticket: Ticket) -> None:
        for key in list(self.entries):
            self.do_remove(ticket, key)

    def plain(self) -> Value:
        return self.entries

    def restore(self, plain: Value) -> None:
        self.entries = plain


class CounterState(SharedState):
    KIND = "counter"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self.value = 0

    def do_get(self, ticket: Ticket) -> int:
        return self.value

    def do_add(self, ticket: Ticket, by: int) -> int:
        """The value after it."""
        if type(by) is not int:
            raise Rejected(f"a counter counts whole numbers, not {by!r}")
        return self.do_set(ticket, self.value + by)

    def do_set(self, ticket: Ticket, value: int) -> int:
        self.value = value
        self.around.changed(None, value)
        return value

    def do_compare_and_set(self, ticket: Ticket, expected: int, value: int) -> bool:
        if self.value != expected:
            return False
        self.do_set(ticket, value)
        return True

    def plain(self) -> Value:
        return self.value

    def restore(self, plain: Value) -> None:
        self.value = plain


class NumbersState(CounterState):
    """Numbers that nobody gets twice."""

    KIND = "numbers"


class SetState(SharedState):
    """In the order of the additions."""

    KIND = "set"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self.members: dict[Any, None] = {}

    def do_add(self, ticket: Ticket, member: Value) -> bool:
        """Whether it is new."""
        if type(member) not in (str, int, bytes):
            raise Rejected(f"a member of a set is a text, a whole number or bytes, not {member!r}")
        if member in self.members:
            return False
        self.members[member] = None
        self.around.changed(member, True)
        return True

    def do_discard(self, ticket: Ticket, member: Value) -> bool:
        """Whether it was there."""
        if member not in self.members:
            return False
        del self.members[member]
        self.around.changed(member, None)
        return True

    def do_contains(self, ticket: Ticket, member: Value) -> bool:
        return member in self.members

    def do_members(self, ticket: Ticket) -> Value:
        return list(self.members)

    def do_clear(self, ticket: Ticket) -> None:
        for member in list(self.members):
            self.do_discard(ticket, member)

    def plain(self) -> Value:
        return list(self.members)

    def restore(self, plain: Value) -> None:
        self.members = dict.fromkeys(plain)


class ListState(SharedState):
    KIND = "list"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self.items: list[Value] = []

    def do_items(self, ticket: Ticket) -> Value:
        return list(self.items)

    def do_append(self, ticket: Ticket, value: Value) -> int:
        """The length after it."""
        return self.do_insert(ticket, len(self.items), value)

    def do_insert(self, ticket: Ticket, at: int, value: Value) -> int:
        self.items.insert(at, value)
        self.around.changed(at, value)
        return len(self.items)

    def do_set(self, ticket: Ticket, at: int, value: Value) -> Value:
        """What it replaces."""
        before = self.items[at]
        self.items[at] = value
        self.around.changed(at, value)
        return before

    def do_pop(self, ticket: Ticket, at: int) -> Value:
        """None of an empty list."""
        if not self.items:
            return None
        found = self.items.pop(at)
        self.around.changed(at, None)
        return found

    def do_remove(self, ticket: Ticket, value: Value) -> bool:
        """The first of this value; whether there was one."""
        if value not in self.items:
            return False
        self.do_pop(ticket, self.items.index(value))
        return True

    def plain(self) -> Value:
        return self.items

    def restore(self, plain: Value) -> None:
        self.items = plain


class CacheState(SharedState):
    """Entries that go when the group's time has come, never before; and the oldest, when there are
    too many."""

    KIND = "cache"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self.entries: dict[str, Value] = {}
        self._until_ms: dict[str, int] = {}
        self._fresh_ms: dict[str, int] = {}
        """Entries since the last tick: their time begins with the next one."""

    def do_get(self, ticket: Ticket, key: str) -> Value:
        return self.entries.get(key)

    def do_put(self, ticket: Ticket, key: str, value: Value, ttl_ms: int, count_max: int) -> None:
        if not isinstance(ttl_ms, int) or ttl_ms < 1:
            raise Rejected(f"a time to live of {ttl_ms!r} ms: give one above 0")
        self._drop(key)
        while len(self.entries) >= max(1, count_max):
            self.do_remove(ticket, next(iter(self.entries)))
        self.entries[key] = value
        self._fresh_ms[key] = ttl_ms
        self.around.changed(key, value)

    def do_remove(self, ticket: Ticket, key: str) -> bool:
        """Whether it was there."""
        if not self._drop(key):
            return False
        self.around.changed(key, None)
        return True

    def _drop(self, key: str) -> bool:
        self._until_ms.pop(key, None)
        self._fresh_ms.pop(key, None)
        return self.entries.pop(key, None) is not None

    @property
    def timed(self) -> bool:
        return bool(self.entries)

    def ticked(self) -> None:
        now_ms = self.around.now_ms
        for key in [key for key, until_ms in self._until_ms.items() if until_ms <= now_ms]:
            self._drop(key)
            self.around.changed(key, None)
        for key, ttl_ms in self._fresh_ms.items():
            self._until_ms[key] = now_ms + ttl_ms
        self._fresh_ms.clear()

    def plain(self) -> Value:
        return [self.entries, self._until_ms, self._fresh_ms]

    def restore(self, plain: Value) -> None:
        self.entries, self._until_ms, self._fresh_ms = plain
