"""Histories of operations on shared objects: sound ones pass, planted faults are caught, with the
order as the witness and by search."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.laws.stories import story, write_trace
from unisono.laws.columnar import judge_trace
from unisono.laws.linearizable import judge_operations
from unisono.laws.objects import MODELS, without_places
from unisono.laws.search import Undecided, longest, parts_of
from unisono.trace.files import run_folder
from unisono.trace.operations import SUFFIX, OperationHistory, OperationLog, history_of


class Call(NamedTuple):
    """Who calls what, from when to when, with which result, and at which place; without one, in a
    history that has no order."""

    member: str
    number: int
    kind: str
    method: str
    arguments: tuple[Any, ...]
    begin: int
    end: int | None
    result: Any
    place: int | None = None


def calls(text: str, kind: str) -> list[Call]:
    """A line each: member, begin-end, method and arguments, result, and perhaps @place."""
    found: list[Call] = []
    for line in text.strip().splitlines():
        member, times, call, *rest = line.split()
        begin, _, end = times.partition("-")
        method, _, given = call.rstrip(")").partition("(")
        place = next((int(each[1:]) for each in rest if each.startswith("@")), None)
        result = next((each for each in rest if not each.startswith("@")), "null")
        arguments = json.loads(f"[{given}]")
        mine = 1 + sum(each.member == member for each in found)
        until = int(end) if end else None
        found.append(
            Call(
                member, mine, kind, method, arguments, int(begin), until, json.loads(result), place
            )
        )
    return found


def log_of(given: Sequence[Call], ends: Sequence[tuple[str, int]] = ()) -> list[bytes]:
    """As one member writes it, which sees everything."""
    lines: list[bytes] = []
    now_us = 0
    log = OperationLog(lines.append, lambda: now_us, "here")
    steps: list[tuple[int, Any]] = []
    for each in given:
        call = (each.kind, "it", each.method, list(each.arguments))
        now_us = each.begin
        log.invoked(each.member, each.number, call)
        if each.place is not None:
            steps.append((each.place, (each.member, each.number, call)))
        if each.end is not None:
            now_us = each.end
            log.returned(each.member, each.number, each.result)
    for member, place in ends:
        steps.append((place, member))
    for place, step in sorted(steps, key=lambda each: each[0]):
        if isinstance(step, str):
            log.ended("a#1", place, step, ())
        else:
            log.placed("a#1", place, *step)
    return lines


def verdict_on(given: Sequence[Call], ends: Sequence[tuple[str, int]] = ()) -> set[str]:
    verdict = judge_operations("r", history_of([log_of(given, ends)]))
    return {law for law, word in verdict.laws.items() if word == "broken"}


SOUND = {
    "a read that overlaps a write sees either": (
        "counter",
        """
        a 0-100 add(1) 1 @2
        b 10-20 get() 0 @1
        """,
    ),
    "one that never returned has its effect": (
        "dict",
        """
        a 0- put("k",1) null @1
        b 50-60 get("k") 1 @2
        """,
    ),
    "a lock goes from one to the next": (
        "lock",
        """
        a 0-10 acquire(1,1,true) 1 @1
        b 5-40 acquire(1,1,true) 3 @2
        a 30-50 release(1) true @3
        """,
    ),
    "an item goes back to its place": (
        "queue",
        """
        a 0-10 put("x") 1 @1
        a 11-20 put("y") 2 @2
        b 21-30 take(true) [1,"x",3] @3
        b 31-40 release(1) true @4
        a 41-50 take(true) [1,"x",5] @5
        a 51-60 done(3,null) true @6
        b 61-70 size() 1 @7
        """,
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_history_is_kept(name: str) -> None:
    kind, text = SOUND[name]
    assert verdict_on(calls(text, kind)) == set()


PLANTED = {
    "a stale read": (
        "dict",
        """
        a 0-10 put("k",1) null @1
        a 20-30 put("k",2) 1 @2
        b 40-50 get("k") 1 @3
        """,
        "linearizable",
    ),
    "a stale read, put back to where it was true": (
        "dict",
        """
        a 0-10 put("k",1) null @1
        b 40-50 get("k") 1 @2
        a 20-30 put("k",2) 1 @3
        """,
        "linearizable",
    ),
    "a lost update": (
        "counter",
        """
        a 0-30 add(1) 1 @1
        b 10-40 add(1) 1 @2
        """,
        "linearizable",
    ),
    "a lock held twice": (
        "lock",
        """
        a 0-10 acquire(1,1,true) 1 @1
        b 20-30 acquire(1,1,true) 2 @2
        a 40-50 release(1) true @3
        """,
        "linearizable held_by_one",
    ),
    "a lock believed beyond its end": (
        "lock",
        """
        a 0-10 acquire(1,1,true) 1 @1
        b 20-30 acquire(1,1,true) 3 @3
        a 40-50 release(1) false @4
        """,
        "held_by_one",
    ),
    "an item taken twice": (
        "queue",
        """
        a 0-10 put("x") 1 @1
        a 20-30 pop() [1,"x"] @2
        b 20-40 pop() [1,"x"] @3
        """,
        "linearizable",
    ),
    "a result without a place": (
        "counter",
        """
        a 0-10 add(1) 1 @1
        b 20-30 add(1) 2
        """,
        "linearizable",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_caught(name: str) -> None:
    kind, text, laws = PLANTED[name]
    ends = [("a", 2)] if name == "a lock believed beyond its end" else []
    assert verdict_on(calls(text, kind), ends) == set(laws.split())


def test_what_a_minority_saw_and_nobody_was_told_is_no_order() -> None:
    """Two members applied different operations at one place; only one of them was returned."""
    sound = calls("a 0-10 add(1) 1 @1\nb 20- add(5) null\na 30-40 add(1) 2 @2", "counter")
    alone: list[bytes] = []
    log = OperationLog(alone.append, lambda: 0, "here")
    for number, (member, by, place) in enumerate([("a", 1, 1), ("b", 5, 2)]):
        log.placed("a#1", place, member, 1, ("counter", "it", "add", [by]))
        assert number < 2
    both = history_of([alone, log_of(sound)])
    assert judge_operations("r", both).kept
    assert [place for place, _ in both.orders()["a#1"]] == [1, 2]


def test_a_late_joiner_is_a_witness_from_its_join_on() -> None:
    lines = log_of(calls("a 0-10 add(1) 1 @1\na 11-20 add(1) 2 @2\na 21-30 add(1) 3 @3", "counter"))
    at = [number for number, line in enumerate(lines) if b'"place"' in line]
    first = [line for number, line in enumerate(lines) if number != at[2]]
    late = [b'["restored"]', lines[at[1]], lines[at[2]]]
    history = history_of([first, late])
    assert [place for place, _ in history.orders()["a#1"]] == [1, 2, 3]
    assert judge_operations("r", history).kept


def test_a_damaged_line_is_counted() -> None:
    history = history_of([[b'["clock","here"]', b'["place","a#', b"[7]", b"7"]])
    assert history.damaged_count == 3


# Histories without an order.


def without_order(given: Sequence[Call]) -> list[Call]:
    return [each._replace(place=None) for each in given]


@pytest.mark.parametrize("name", SOUND)
def test_the_search_finds_an_order(name: str) -> None:
    kind, text = SOUND[name]
    assert verdict_on(without_order(calls(text, kind))) == set()


@pytest.mark.parametrize(
    "name", [name for name, (_, _, laws) in PLANTED.items() if "linearizable" in laws]
)
def test_the_search_finds_that_there_is_none(name: str) -> None:
    kind, text, _ = PLANTED[name]
    given = calls(text, kind)
    if name == "a result without a place":
        given = calls("a 0-10 add(1) 1\nb 20-30 add(1) 1", "counter")
    assert "linearizable" in verdict_on(without_order(given))


def drawn(dice: random.Random, kind: str, count: int) -> list[Call]:
    """Calls of three members that overlap, with the results of the reference in a drawn order."""
    methods: dict[str, list[tuple[str, tuple[Any, ...]]]] = {
        "dict": [("get", ("k",)), ("put", ("k", 1)), ("compare_and_set", ("k", 1, 2)),
                 ("put", ("l", 3)), ("remove", ("l",))],
        "counter": [("get", ()), ("add", (1,)), ("compare_and_set", (2, 5))],
        "queue": [("put", ("x",)), ("put", ("y",)), ("pop", ()), ("size", ())],
    }  # fmt: skip
    model = MODELS[kind]()
    now, numbers = dict.fromkeys("abc", 0), dict.fromkeys("abc", 0)
    found: list[Call] = []
    at = 0
    for place in range(1, count + 1):
        member = min(now, key=lambda each: (now[each], each))
        method, arguments = dice.choice(methods[kind])
        at = max(at + 1, now[member] + 1)
        begin, end = dice.randint(now[member], at), at + dice.randint(0, 12)
        now[member], numbers[member] = end + 1, numbers[member] + 1
        call = Call(member, numbers[member], kind, method, arguments, begin, end, None, place)
        operation = history_of([log_of([call])]).operations[member, numbers[member]]
        result = model.apply(operation, place)[operation.key]
        found.append(call._replace(result=result))
    return found


@pytest.mark.parametrize("kind", ["dict", "counter", "queue"])
def test_witness_and_search_agree(kind: str) -> None:
    """What the order explains, the search finds too; where no order exists, the witness is none."""
    caught = 0
    for seed in range(30):
        dice = random.Random(f"{kind} {seed}")
        given = drawn(dice, kind, 10)
        assert verdict_on(given) == set()
        assert verdict_on(without_order(given)) == set()
        at = dice.randrange(len(given))
        wrong = [*given]
        wrong[at] = given[at]._replace(result=dice.choice([0, 1, 2, 3, None, True, [1, "x"]]))
        has_order = not verdict_on(without_order(wrong))
        assert has_order or verdict_on(wrong)
        caught += not has_order
    assert caught > 2


def test_a_dictionary_is_searched_key_by_key() -> None:
    """Forty keys that are written at once would have 40! orders."""
    given = [
        Call(f"m{key}", number, "dict", "put", (str(key), number), 0, 1000, 0, None)
        for key in range(40)
        for number in (1,)
    ]
    given = [each._replace(result=None) for each in given]
    history = history_of([log_of(given)])
    assert len(parts_of(list(history.operations.values()))) == 40
    assert judge_operations("r", history).kept


def test_a_search_that_grows_too_large_is_given_up() -> None:
    given = [Call(f"m{at}", 1, "counter", "add", (1 << at,), 0, None, None) for at in range(12)]
    given.append(Call("n", 1, "counter", "get", (), 10, 20, -1))
    part = list(history_of([log_of(given)]).operations.values())
    with pytest.raises(Undecided):
        longest(part, steps_max=100)


def test_places_do_not_matter_to_a_search() -> None:
    history: OperationHistory = history_of([log_of(calls("a 0-9 pop() [7,1]", "queue"))])
    (operation,) = history.operations.values()
    assert without_places(operation, [7, 1]) == without_places(operation, [3, 1])


# In the files of a run.


def write_stale_read(trace: Path, run: str) -> None:
    kind, text, _ = PLANTED["a stale read"]
    log = b"".join(log_of(calls(text, kind)))
    (run_folder(trace, run) / f"a{SUFFIX}").write_bytes(log)


def test_operations_beside_a_trace_are_judged_with_it(tmp_path: Path) -> None:
    history = story("a: view 1 a")
    write_trace(history, tmp_path)
    write_stale_read(tmp_path, history.run)
    (found,) = judge_trace(tmp_path, lambda _: ()).values()
    assert found.verdict.laws["linearizable"] == "broken"
    assert found.verdict.laws["held_by_one"] == "kept"
    assert "put" not in found.verdict.violations[0].detail
    assert found.verdict.violations[0].detail == "dict 'it': get('k') returned 1 where 2 was due"
