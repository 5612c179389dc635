"""Dictionaries and counters."""

from __future__ import annotations

from unisono.services.objects.state import Rejected, SharedState, Ticket
from unisono.services.objects.values import Value


class DictState(SharedState):
    KIND = "dict"

    def __init__(self, *around: object) -> None:
        super().__init__(*around)  # type: ignore[arg-type]
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

    def __init__(self, *around: object) -> None:
        super().__init__(*around)  # type: ignore[arg-type]
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
