"""Are shared objects as if there were one copy, on which operations take effect one after another,
each between its call and its return?

Where the total order is known it is the witness: the operations in their places must not contradict
real time, which a sort shows, and a replay must give the results that were returned. Histories
without an order are searched for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nsmallest
from typing import Final, NamedTuple, TypeAlias

from unisono.laws.objects import MODELS, ObjectModel
from unisono.laws.search import Undecided, unexplained
from unisono.laws.unread import BROKEN, KEPT, UNCERTAIN
from unisono.laws.verdict import VIOLATIONS_MAX, Finding, Verdict, Violation
from unisono.trace.operations import (
    Key,
    Operation,
    OperationHistory,
    SessionEnd,
    Steps,
)

HELD_BY_ONE: Final = ("lock", "election")

Effects: TypeAlias = dict[Key, tuple[int, int]]
"""Where operations took effect, and where they were placed: before that, if they had to wait."""


def linearizable(history: OperationHistory) -> Iterator[Finding]:
    """Operations take effect one after the other, at all members alike, between call and return."""
    orders = history.orders()
    placed: set[Key] = set()
    for steps in orders.values():
        effects: Effects = {}
        yield from _replayed(steps, history.operations, effects)
        yield from _against_time(history.operations, effects)
        placed |= {step for _, step in steps if not isinstance(step, SessionEnd)}
    for key, operation in history.operations.items():
        if orders and key not in placed and operation.returned_us is not None:
            yield _finding(operation, "returned, and has no place in the order")
    if not orders:
        yield from unexplained(list(history.operations.values()))


def held_by_one(history: OperationHistory) -> Iterator[Finding]:
    """A lock or leadership is granted to the next only when the one before has let go, or knows
    that it lost it."""
    let_go: dict[tuple[str, str, Key], int] = {}
    last_us: dict[str, int] = {}
    by_object: dict[tuple[str, str, str], list[Operation]] = {}
    origin_of = {step: origin for origin, steps in history.orders().items() for _, step in steps}
    for each in history.operations.values():
        latest_us = max(each.invoked_us, each.returned_us or 0)
        last_us[each.member] = max(last_us.get(each.member, 0), latest_us)
        if each.kind not in HELD_BY_ONE:
            continue
        if each.method == "release":
            let_go[each.kind, each.object, (each.member, each.arguments[0])] = each.invoked_us
        elif each.method == "acquire" and each.result is not None and each.lost_us != 0:
            by_object.setdefault((origin_of.get(each.key, ""), each.kind, each.object), []).append(
                each
            )
    for (_, kind, name), grants in sorted(by_object.items()):
        grants.sort(key=lambda each: (int(each.result), each.returned_us))
        until_us, holder = 0, None
        for grant in grants:
            assert grant.returned_us is not None
            if holder is not None and grant.clock == holder.clock and grant.returned_us < until_us:
                yield _finding(
                    grant,
                    f"was granted {until_us - grant.returned_us} us before its holder had let go",
                    holder,
                )
            ends_us = (let_go.get((kind, name, grant.key)), grant.lost_us)
            known = [end_us for end_us in ends_us if end_us is not None]
            # One that was killed holds nothing; what it last did shows it alive.
            end_us = min(known) if known else max(grant.returned_us, last_us[grant.member])
            if end_us >= until_us:
                until_us, holder = end_us, grant


class OperationLaw(NamedTuple):
    """A guarantee on shared objects: its name, its sentence, and the function to findings."""

    name: str
    sentence: str
    find: Callable[[OperationHistory], Iterable[Finding]]


OPERATION_LAWS: Final[Mapping[str, OperationLaw]] = {
    law.__name__: OperationLaw(law.__name__, " ".join((law.__doc__ or "").split()), law)
    for law in (linearizable, held_by_one)
}
"""Judged wherever operations were recorded, whatever the protocol."""


def judge_operations(run: str, history: OperationHistory) -> Verdict:
    """Without laws if none were recorded."""
    laws: dict[str, str] = {}
    violations: list[Violation] = []
    for name, law in OPERATION_LAWS.items() if history else ():
        try:
            found = {Violation(name, run, *each) for each in law.find(history)}
        except Undecided:
            laws[name] = UNCERTAIN
            continue
        violations += nsmallest(VIOLATIONS_MAX, found)
        laws[name] = BROKEN if found else KEPT
    return Verdict(laws, violations)


def _replayed(
    steps: Steps, operations: Mapping[Key, Operation], effects: Effects
) -> Iterator[Finding]:
    """One after the other, on the reference; `effects` gets what took effect."""
    models: dict[tuple[str, str], ObjectModel] = {}
    results: dict[Key, object] = {}
    placed: dict[Key, int] = {}
    for place, step in steps:
        if isinstance(step, SessionEnd):
            answers = [model.end(step.member, place) for model in models.values()]
        else:
            operation, placed[step] = operations[step], place
            where = (operation.kind, operation.object)
            if operation.kind not in MODELS:
                effects[step] = (place, place)
                continue
            model = models.get(where) or models.setdefault(where, MODELS[operation.kind]())
            answers = [model.apply(operation, place)]
        for found in answers:
            results |= found
            effects |= {key: (place, placed[key]) for key in found}
    for key in placed:
        operation = operations[key]
        if operation.returned_us is None or operation.kind not in MODELS:
            continue
        if key not in results:
            yield _finding(operation, f"returned {operation.result!r}, but was still to wait")
        elif results[key] != operation.result:
            due = results[key]
            yield _finding(operation, f"returned {operation.result!r} where {due!r} was due")


def _against_time(operations: Mapping[Key, Operation], effects: Effects) -> Iterator[Finding]:
    """One that had returned before another was called took effect before it. At one place, those
    that a release lets in come after it."""
    latest: dict[str, Operation] = {}
    """By clock, of those before, the one that was called last."""
    for key, _ in sorted(effects.items(), key=lambda each: (*_in_order(*each[1]), each[0])):
        each = operations[key]
        before = latest.get(each.clock)
        returned_us = each.returned_us
        if before is not None and returned_us is not None and returned_us < before.invoked_us:
            text = (
                f"had returned {before.invoked_us - returned_us} us before a call that it follows"
            )
            yield _finding(each, text, before)
        if before is None or each.invoked_us > before.invoked_us:
            latest[each.clock] = each


def _in_order(effect: int, place: int) -> tuple[int, bool, int]:
    return effect, place != effect, place


def _finding(operation: Operation, detail: str, other: Operation | None = None) -> Finding:
    return Finding(
        operation.member,
        named(operation),
        named(other) if other is not None else "",
        f"{operation.kind} {operation.object!r}: {called(operation)} {detail}",
    )


def named(operation: Operation) -> str:
    return f"{operation.member}:{operation.number}"


def called(operation: Operation) -> str:
    return f"{operation.method}({', '.join(map(repr, operation.arguments))})"
