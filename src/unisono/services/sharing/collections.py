"""Shared dictionaries, counters, sets, lists and caches, as applications hold them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from unisono.errors import Misuse
from unisono.services.objects.collections import (
    CacheState,
    CounterState,
    DictState,
    ListState,
    SetState,
)
from unisono.services.objects.table import ObjectTable
from unisono.services.objects.values import Value
from unisono.services.sharing.call import Operator, SharedCall
from unisono.services.sharing.watching import Watcher, Watching


class SharedObject:
    """By its kind and name. Methods that return a `SharedCall` are operations in the order; all
    others look at this member's own copy, at once."""

    KIND: str

    def __init__(
        self, operator: Operator, table: ObjectTable, watching: Watching, name: str
    ) -> None:
        if not isinstance(name, str):
            raise Misuse(f"the name of a shared object is a text, not {name!r}")
        self.name = name
        self._operator, self._table, self._watching = operator, table, watching

    def _call(self, method: str, *arguments: Value) -> SharedCall[Any]:
        return SharedCall(self._operator, self.KIND, self.name, method, arguments)

    def __repr__(self) -> str:
        return f"<{self.KIND} {self.name!r}>"


class SharedDict(SharedObject):
    """A dictionary. None stands for no entry."""

    KIND = "dict"

    @property
    def _entries(self) -> dict[str, Value]:
        found = self._table.look(self.KIND, self.name)
        assert isinstance(found, DictState)
        return found.entries

    # -- operations in the order ------------------------------------------------------------------

    def read(self, key: str) -> SharedCall[Value]:
        """The value as of a place after all that was completed before: linearizable."""
        return self._call("get", key)

    def read_all(self) -> SharedCall[dict[str, Value]]:
        """All entries, in the same way."""
        return self._call("items")

    def put(self, key: str, value: Value) -> SharedCall[Value]:
        """The value that it replaces."""
        return self._call("put", key, _entry(value))

    def update(self, entries: Mapping[str, Value]) -> SharedCall[None]:
        """Put all of them."""
        return self._call("update", {key: _entry(value) for key, value in entries.items()})

    def compare_and_set(self, key: str, expected: Value, value: Value) -> SharedCall[bool]:
        """Put it if the value is the expected one; whether it was. None stands for no entry."""
        return self._call("compare_and_set", key, expected, value)

    def remove(self, key: str) -> SharedCall[Value]:
        """The value that it had."""
        return self._call("remove", key)

    def clear(self) -> SharedCall[None]:
        """Remove all entries."""
        return self._call("clear")

    # -- of this member's copy --------------------------------------------------------------------

    def get(self, key: str, default: Value = None) -> Value:
        """As of the last place applied here: it may be behind. Do not change it."""
        return self._entries.get(key, default)

    def __getitem__(self, key: str) -> Value:
        return self._entries[key]

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._entries))

    def items(self) -> tuple[tuple[str, Value], ...]:
        """All entries of this member's copy."""
        return tuple(self._entries.items())

    def watch(self, key: str | None = None) -> Watcher:
        """To iterate: changes of this key, or of all, from now on."""
        return self._watching.watch(self.KIND, self.name, key)


def _entry(value: Value) -> Value:
    if value is None:
        raise Misuse("None stands for no entry: remove() the key, or put another value")
    return value


class SharedCounter(SharedObject):
    """A whole number, at first 0."""

    KIND = "counter"

    def read(self) -> SharedCall[int]:
        """The value as of a place after all that was completed before: linearizable."""
        return self._call("get")

    def add(self, by: int = 1) -> SharedCall[int]:
        """The value after it."""
        return self._call("add", by)

    def set(self, value: int) -> SharedCall[int]:
        """This value from now on."""
        return self._call("set", value)

    def compare_and_set(self, expected: int, value: int) -> SharedCall[bool]:
        """Set it if the value is the expected one; whether it was."""
        return self._call("compare_and_set", expected, value)

    @property
    def value(self) -> int:
        """Of this member's copy: it may be behind."""
        found = self._table.look(self.KIND, self.name)
        assert isinstance(found, CounterState)
        return found.value

    def watch(self) -> Watcher:
        """To iterate: new values, from now on."""
        return self._watching.watch(self.KIND, self.name)


class SharedNumbers(SharedObject):
    """Whole numbers from 1 on, of which nobody in the group gets one twice. With `block` above 1
    a member has them at hand, and they do not rise across members."""

    KIND = "numbers"

    def __init__(
        self, operator: Operator, table: ObjectTable, watching: Watching, name: str, block: int
    ) -> None:
        super().__init__(operator, table, watching, name)
        if type(block) is not int or block < 1:
            raise Misuse(f"block={block!r}: give a number from 1 on")
        self._block = block
        self._at_hand: Iterator[int] = iter(())
        self._turn = asyncio.Lock()

    async def next(self) -> int:
        """A number that is nobody else's."""
        async with self._turn:
            found = next(self._at_hand, None)
            if found is None:
                last: int = await self._call("add", self._block)
                self._at_hand = iter(range(last - self._block + 1, last + 1))
                found = next(self._at_hand)
            return found


class SharedSet(SharedObject):
    """A set, in the order of the additions."""

    KIND = "set"

    @property
    def _members(self) -> Mapping[Value, None]:
        found = self._table.look(self.KIND, self.name)
        assert isinstance(found, SetState)
        return found.members

    def read(self, member: Value) -> SharedCall[bool]:
        """Whether it is there as of a place after all that was completed before: linearizable."""
        return self._call("contains", member)

    def read_all(self) -> SharedCall[list[Value]]:
        """All members, in the same way."""
        return self._call("members")

    def add(self, member: Value) -> SharedCall[bool]:
        """Whether it is new."""
        return self._call("add", member)

    def discard(self, member: Value) -> SharedCall[bool]:
        """Whether it was there."""
        return self._call("discard", member)

    def clear(self) -> SharedCall[None]:
        """Remove all members."""
        return self._call("clear")

    def __contains__(self, member: object) -> bool:
        return member in self._members

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Value]:
        return iter(tuple(self._members))

    def watch(self, member: Value = None) -> Watcher:
        """Changes of this member, or of all: True if it is added, None if it is removed."""
        return self._watching.watch(self.KIND, self.name, member)


class SharedList(SharedObject):
    """A list. Positions are those at the operation's place in the order."""

    KIND = "list"

    @property
    def _items(self) -> list[Value]:
        found = self._table.look(self.KIND, self.name)
        assert isinstance(found, ListState)
        return found.items

    def read_all(self) -> SharedCall[list[Value]]:
        """As of a place after all that was completed before: linearizable."""
        return self._call("items")

    def append(self, value: Value) -> SharedCall[int]:
        """The length after it."""
        return self._call("append", value)

    def insert(self, at: int, value: Value) -> SharedCall[int]:
        """The length after it."""
        return self._call("insert", at, value)

    def set(self, at: int, value: Value) -> SharedCall[Value]:
        """What it replaces."""
        return self._call("set", at, value)

    def pop(self, at: int = -1) -> SharedCall[Value]:
        """What was there; None of an empty list."""
        return self._call("pop", at)

    def remove(self, value: Value) -> SharedCall[bool]:
        """Remove the first of this value; whether there was one."""
        return self._call("remove", value)

    def __getitem__(self, at: int) -> Value:
        return self._items[at]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Value]:
        return iter(tuple(self._items))

    def watch(self) -> Watcher:
        """Changes, with positions as keys: a new value, or None for one that is removed."""
        return self._watching.watch(self.KIND, self.name)


class SharedCache(SharedObject):
    """Entries that go at the same place of the order at all members, some time after their time to
    live, and never before."""

    KIND = "cache"

    def __init__(
        self, operator: Operator, table: ObjectTable, watching: Watching, name: str, count_max: int
    ) -> None:
        super().__init__(operator, table, watching, name)
        self._count_max = count_max

    @property
    def _entries(self) -> dict[str, Value]:
        found = self._table.look(self.KIND, self.name)
        assert isinstance(found, CacheState)
        return found.entries

    def read(self, key: str) -> SharedCall[Value]:
        """The value as of a place after all that was completed before: linearizable."""
        return self._call("get", key)

    def put(self, key: str, value: Value, ttl_s: float) -> SharedCall[None]:
        """It lives at least `ttl_s`, by the group's own time, which stands while the group is
        blocked."""
        return self._call("put", key, _entry(value), round(ttl_s * 1000), self._count_max)

    def remove(self, key: str) -> SharedCall[bool]:
        """Whether it was there."""
        return self._call("remove", key)

    def get(self, key: str, default: Value = None) -> Value:
        """Of this member's copy: it may be behind."""
        return self._entries.get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def watch(self, key: str | None = None) -> Watcher:
        """Changes of this key, or of all: None when it is gone."""
        return self._watching.watch(self.KIND, self.name, key)
