"""Is there an order of these operations that they could have had? A search, for histories whose
order is not known.

As Wing and Gong search, with Lowe's memory of what was tried; and object by object, of a dictionary
key by key, since a history is linearizable when each of its parts is (P-compositionality).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from unisono.laws.objects import MODELS, ObjectModel, without_places
from unisono.laws.verdict import Finding
from unisono.trace.operations import Operation

STEPS_MAX: Final = 1_000_000
"""Of one part; beyond it the search is given up."""
NEVER_US: Final = 1 << 63
OF_ONE_KEY: Final = ("get", "put", "compare_and_set", "remove")


class Undecided(Exception):
    """Too many orders to try."""


def unexplained(operations: Sequence[Operation]) -> Iterator[Finding]:
    """A finding for each part without an order."""
    for part in parts_of(operations):
        if (stuck := longest(part)) is not None:
            text = (
                f"{stuck.kind} {stuck.object!r}: no order of {len(part)} operations explains that"
                f" {stuck.method}{tuple(stuck.arguments)!r} returned {stuck.result!r}"
            )
            yield Finding(stuck.member, f"{stuck.member}:{stuck.number}", "", text)


def parts_of(operations: Sequence[Operation]) -> list[list[Operation]]:
    """By object; and by key, of a dictionary that was never asked for several."""
    by_object: dict[tuple[str, str], list[Operation]] = {}
    for each in operations:
        if each.kind in MODELS:
            by_object.setdefault((each.kind, each.object), []).append(each)
    parts: list[list[Operation]] = []
    for (kind, _), mine in sorted(by_object.items()):
        if kind != "dict" or any(each.method not in OF_ONE_KEY for each in mine):
            parts.append(mine)
            continue
        by_key: dict[str, list[Operation]] = {}
        for each in mine:
            by_key.setdefault(each.arguments[0], []).append(each)
        parts += by_key.values()
    return parts


def longest(part: Sequence[Operation], steps_max: int = STEPS_MAX) -> Operation | None:
    """The operation at which the longest order that was found ends; None if all can be ordered.
    One that has not returned may have had its effect, or not."""
    calls = sorted(part, key=lambda each: (each.invoked_us, each.key))
    returned = sum(1 << at for at, each in enumerate(calls) if each.returned_us is not None)
    tried: set[tuple[int, str]] = set()
    best, stuck = -1, calls[0]
    stack: list[tuple[int, ObjectModel]] = [(0, MODELS[calls[0].kind]())]
    while stack:
        done, model = stack.pop()
        if done & returned == returned:
            return None
        if (done, model.state) in tried:
            continue
        tried.add((done, model.state))
        if len(tried) > steps_max:
            raise Undecided
        if (done & returned).bit_count() > best:
            best = (done & returned).bit_count()
            first = (each for at, each in enumerate(calls) if (returned & ~done) >> at & 1)
            stuck = min(first, key=lambda each: each.returned_us or 0)
        for at in reversed(_possible(calls, done)):
            after = model.copy()
            if _explains(after, calls[at]):
                stack.append((done | 1 << at, after))
    return stuck


def _possible(calls: Sequence[Operation], done: int) -> list[int]:
    """Those that may come next: called before any of the others had returned."""
    found: list[int] = []
    limit_us = NEVER_US
    for at, each in enumerate(calls):
        if done >> at & 1:
            continue
        if each.invoked_us > limit_us:
            break
        found.append(at)
        if each.returned_us is not None:
            limit_us = min(limit_us, each.returned_us)
    return found


def _explains(model: ObjectModel, operation: Operation) -> bool:
    """Whether it can take effect now, with the result that it had; what waits does not yet."""
    answers = model.apply(operation)
    if operation.key not in answers:
        return False
    if operation.returned_us is None:
        return True
    due = without_places(operation, answers[operation.key])
    return bool(due == without_places(operation, operation.result))
