"""Shared dictionaries and counters, as applications hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from unisono.errors import Misuse
from unisono.services.objects.collections import CounterState, DictState
from unisono.services.objects.table import ObjectTable
from unisono.services.objects.values import Value
from unisono.services.sharing.call import Operator, SharedCall
from unisono.services.sharing.watching import Watcher, Watching

T = TypeVar("T")


def as_it_is(result: Value) -> Any:
    return result


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

    def _call(
        self, method: str, *arguments: Value, read: Callable[[Value], T] = as_it_is
    ) -> SharedCall[T]:
        return SharedCall(self._operator, self.KIND, self.name, method, arguments, read)

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
        """`async for change in d.watch("k")`: changes of this key, or of all, from now on."""
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
        """`async for change in c.watch()`: new values, from now on."""
        return self._watching.watch(self.KIND, self.name)
