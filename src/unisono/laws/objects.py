"""What each kind of shared object does, one operation after the other: the reference by which
histories of operations are judged. Written apart from the services, to be compared with them."""

from __future__ import annotations

import json
from bisect import insort
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Final, TypeAlias

from unisono.trace.operations import Key, Operation

Answers: TypeAlias = dict[Key, Any]
"""The results that an operation brings: its own, and of those that waited for it."""


class ObjectModel:
    """Its methods are the operations. They get the key of the operation, its place in the order,
    and its arguments."""

    def __init__(self) -> None:
        self.answers: Answers = {}

    def apply(self, operation: Operation, place: int = 0) -> Answers:
        """Nothing of its own for one that has to wait."""
        self.answers = {}
        method = getattr(self, f"do_{operation.method}")
        method(operation.key, place, *operation.arguments)
        return self.answers

    def end(self, member: str, place: int) -> Answers:
        """What this member has or waits for is free."""
        self.answers = {}
        return self.answers

    def copy(self) -> ObjectModel:
        return deepcopy(self)

    @property
    def state(self) -> str:
        """Equal for models that behave equally."""
        mine = {name: value for name, value in vars(self).items() if name != "answers"}
        return json.dumps(mine, default=repr)


class DictModel(ObjectModel):
    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[str, Any] = {}

    def do_get(self, key: Key, place: int, entry: str) -> None:
        self.answers[key] = self.entries.get(entry)

    def do_items(self, key: Key, place: int) -> None:
        self.answers[key] = dict(self.entries)

    def do_put(self, key: Key, place: int, entry: str, value: Any) -> None:
        self.answers[key] = self.entries.get(entry)
        self.entries[entry] = value

    def do_update(self, key: Key, place: int, entries: dict[str, Any]) -> None:
        self.entries |= entries
        self.answers[key] = None

    def do_compare_and_set(
        self, key: Key, place: int, entry: str, expected: Any, value: Any
    ) -> None:
        self.answers[key] = is_equal = self.entries.get(entry) == expected
        if is_equal and value is None:
            self.entries.pop(entry, None)
        elif is_equal:
            self.entries[entry] = value

    def do_remove(self, key: Key, place: int, entry: str) -> None:
        self.answers[key] = self.entries.pop(entry, None)

    def do_clear(self, key: Key, place: int) -> None:
        self.entries = {}
        self.answers[key] = None


class CounterModel(ObjectModel):
    def __init__(self) -> None:
        super().__init__()
        self.value = 0

    def do_get(self, key: Key, place: int) -> None:
        self.answers[key] = self.value

    def do_add(self, key: Key, place: int, by: int) -> None:
        self.do_set(key, place, self.value + by)

    def do_set(self, key: Key, place: int, value: int) -> None:
        self.answers[key] = self.value = value

    def do_compare_and_set(self, key: Key, place: int, expected: int, value: int) -> None:
        self.answers[key] = is_equal = self.value == expected
        if is_equal:
            self.value = value


class PermitsModel(ObjectModel):
    """Who asks first is granted first; the token is the place of the grant."""

    def __init__(self) -> None:
        super().__init__()
        self.capacity = 1
        self.holders: list[tuple[Key, int, int]] = []
        """With weight and token."""
        self.waiting: list[tuple[Key, int]] = []

    def do_acquire(self, key: Key, place: int, capacity: int, weight: int, waits: bool) -> None:
        self.capacity = capacity
        if not self.waiting and self._fits(weight):
            self._grant(key, weight, place)
        elif waits:
            self.waiting.append((key, weight))
        else:
            self.answers[key] = None

    def do_release(self, key: Key, place: int, number: int) -> None:
        mine = (key[0], number)
        self.answers[key] = any(each[0] == mine for each in (*self.holders, *self.waiting))
        self._drop(lambda each: each == mine, place)

    def do_holders(self, key: Key, place: int) -> None:
        self.answers[key] = [[holder[0], token] for holder, _, token in self.holders]

    def end(self, member: str, place: int) -> Answers:
        self.answers = {}
        self._drop(lambda each: each[0] == member, place)
        return self.answers

    def _drop(self, is_gone: Callable[[Key], bool], place: int) -> None:
        self.holders = [each for each in self.holders if not is_gone(each[0])]
        self.waiting = [each for each in self.waiting if not is_gone(each[0])]
        while self.waiting and self._fits(self.waiting[0][1]):
            self._grant(*self.waiting.pop(0), place)

    def _fits(self, weight: int) -> bool:
        return sum(held for _, held, _ in self.holders) + weight <= self.capacity

    def _grant(self, key: Key, weight: int, place: int) -> None:
        self.holders.append((key, weight, place))
        self.answers[key] = place


class QueueModel(ObjectModel):
    """What was taken goes back to its place unless it is done."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[tuple[int, int, Any, Key | None]] = []
        """Number, serial number, value, and who waits for its result."""
        self.taken: list[tuple[Key, tuple[int, int, Any, Key | None]]] = []
        self.takers: list[Key] = []
        self.count = 0

    def do_put(self, key: Key, place: int, value: Any) -> None:
        self.answers[key] = place
        self._put(place, value, None)

    def do_submit(self, key: Key, place: int, value: Any) -> None:
        self._put(place, value, key)

    def _put(self, place: int, value: Any, submitter: Key | None) -> None:
        self.count += 1
        self.items.append((place, self.count, value, submitter))
        self._serve(place)

    def do_pop(self, key: Key, place: int) -> None:
        self.answers[key] = None
        if self.items:
            number, _, value, _ = self.items.pop(0)
            self.answers[key] = [number, value]

    def do_take(self, key: Key, place: int, waits: bool) -> None:
        if self.items or waits:
            self.takers.append(key)
            self._serve(place)
        else:
            self.answers[key] = None

    def do_done(self, key: Key, place: int, number: int, result: Any) -> None:
        mine = [each for each in self.taken if each[0] == (key[0], number)]
        self.answers[key] = bool(mine)
        for each in mine:
            self.taken.remove(each)
            if (submitter := each[1][3]) is not None:
                self.answers[submitter] = result

    def do_release(self, key: Key, place: int, number: int) -> None:
        mine = (key[0], number)
        self.answers[key] = mine in self.takers or any(each == mine for each, _ in self.taken)
        self._drop(lambda each: each == mine, place)

    def do_size(self, key: Key, place: int) -> None:
        self.answers[key] = len(self.items)

    def end(self, member: str, place: int) -> Answers:
        self.answers = {}
        self._drop(lambda each: each[0] == member, place)
        return self.answers

    def _drop(self, is_gone: Callable[[Key], bool], place: int) -> None:
        self.takers = [each for each in self.takers if not is_gone(each)]
        for each in [each for each in self.taken if is_gone(each[0])]:
            self.taken.remove(each)
            insort(self.items, each[1], key=lambda item: item[1])
        self._serve(place)

    def _serve(self, place: int) -> None:
        while self.items and self.takers:
            taker, item = self.takers.pop(0), self.items.pop(0)
            self.taken.append((taker, item))
            self.answers[taker] = [item[0], item[2], place]


MODELS: Final[Mapping[str, type[ObjectModel]]] = {
    "dict": DictModel,
    "counter": CounterModel,
    "numbers": CounterModel,
    "lock": PermitsModel,
    "election": PermitsModel,
    "semaphore": PermitsModel,
    "rwlock": PermitsModel,
    "queue": QueueModel,
}
"""By kind. Of other kinds only the order in time is judged."""


def without_places(operation: Operation, result: Any) -> Any:
    """A result as it would be in any order: tokens and numbers of items are places."""
    match operation.kind, operation.method:
        case _, "acquire":
            return result is not None
        case "queue", "put":
            return None
        case "queue", "pop" | "take" if isinstance(result, list):
            return result[1]
        case _, "holders":
            return [member for member, _ in result]
    return result
