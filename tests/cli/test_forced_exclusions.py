"""Which exclusions the faults of a run force, told by hand: both ways."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cli.forced_exclusions import Exclusion, exclusions, felt, is_forced
from tests.cli.ring_cluster import NAMES, Fault
from tests.laws.telling import story


def forced(name: str, faults: list[Fault], by: str = "abcdefg", at_s: float = 11.0) -> bool:
    return is_forced(Exclusion(name, at_s, frozenset(by) - {name}), faults, NAMES)


@pytest.mark.parametrize(
    ("fault", "names"),
    [
        (Fault(10, 12, "pause", ("b",)), "b"),
        (Fault(10, 12, "kill", ("b",)), "b"),
        (Fault(10, 12, "full", ("b",)), "b"),
        (Fault(10, 12, "cut", ("a", "b")), "ab"),
        (Fault(10, 12, "cut", ("a", "b", "c", "d")), "efg"),
        (Fault(10, 12, "flap", ("g",)), "g"),
        (Fault(10, 12, "one_way", ("a", "b")), "ab"),
    ],
)
def test_a_fault_forces_the_exclusion_of_these_alone(fault: Fault, names: str) -> None:
    for name in NAMES:
        assert forced(name, [fault]) == (name in names)
        assert not forced(name, [fault], at_s=9.0), "it was before"
        assert not forced(name, [fault], at_s=30.0), "it was long after"


def test_faults_one_after_another_block_nobody_together() -> None:
    """Three are cut off, and after that a fourth: at each moment most receive from each other."""
    cuts = [Fault(10, 10.5, "cut", ("a", "b", "c")), Fault(10.6, 11, "cut", ("d",))]
    assert [name for name in NAMES if forced(name, cuts)] == list("abcd")


def test_an_earlier_cut_of_one_takes_it_from_no_later_majority() -> None:
    """By the time one is deaf to it, the others receive from it again."""
    faults = [Fault(8, 9.9, "cut", ("b",)), Fault(10.2, 12, "one_way", ("d", "b"))]
    assert forced("d", faults)
    assert not forced("c", faults, at_s=13.0)


def test_only_one_that_went_on_explains_it() -> None:
    """Of two that do not receive from each other one has to go, and not both."""
    deaf = [Fault(10, 12, "one_way", ("a", "b"))]
    assert forced("a", deaf, by="bcdefg")
    assert not forced("a", deaf, by="cdefg")


def test_a_majority_that_heals_with_the_others_keeps_its_members() -> None:
    """Those that were cut off go on with some of it: without the others for nothing."""
    cut = [Fault(10, 10.8, "cut", ("e", "f", "g"))]
    assert not forced("a", cut, by="bcdefg")
    assert forced("e", cut, by="abcdfg")


def test_where_no_majority_hears_each_other_those_go_that_are_cut_off() -> None:
    faults = [Fault(10, 12, "cut", ("a", "b", "c")), Fault(10, 12, "pause", ("g",))]
    assert all(forced(name, faults) for name in NAMES)
    dead = [Fault(9, 12, "kill", (name,)) for name in "efg"]
    blocked = [*dead, Fault(10, 12, "one_way", ("a", "b"))]
    assert [name for name in "abcd" if forced(name, blocked)] == ["a", "b"]


def test_one_that_has_just_been_started_again_makes_no_majority_yet() -> None:
    dead = [Fault(8, 9.5, "kill", (name,)) for name in "efg"]
    cut = Fault(10, 12, "cut", ("a", "b"))
    assert forced("c", [*dead, cut])
    assert not forced("c", [cut])


def test_an_exclusion_is_by_the_first_view_without_one_that_lives() -> None:
    history = story("""
        a: view 1 a b c d | wait 500000 | view 2 a b | view 3 a
        b: view 1 a b c d | wait 400000 | view 2 a b
        c: view 1 a b c d | wait 900000 | stop by view 2
        d: view 1 a b c d | crash
    """)
    killed = Fault(0.1, 1, "kill", ("d",))
    found = exclusions(history, began_s=0, faults=[killed])
    assert [(each.name, round(each.at_s, 1), each.by) for each in found] == [
        ("b", 0.5, {"a"}),
        ("c", 0.4, {"a", "b"}),
    ]


def test_one_that_is_told_is_excluded_by_those_that_told_it() -> None:
    history = story("""
        a: view 1 a b c | crash
        b: view 2 b d
        c: view 1 a b c | wait 1000 | stop by view 2
        d: view 2 b d
    """)
    (found,) = exclusions(history, began_s=0, faults=[])
    assert (found.name, found.by) == ("c", {"b", "d"})


def test_a_full_disk_explains_what_it_stopped_alone() -> None:
    history = story("""
        a: view 1 a b c | wait 500000 | view 2 a
        b: view 1 a b c | wait 300000 | stop no space
        c: view 1 a b c | wait 600000 | stop by view 2
    """)
    rows = [
        row._replace(changes=("stopped",)) if row.detail == "no space" else row
        for row in history.rows
    ]
    stopped = replace(history, rows=tuple(rows))
    full = [Fault(0.1, 0.4, "full", (name,)) for name in "bc"]
    assert felt(stopped, 0, full) == full[:1]
    assert [each.name for each in exclusions(stopped, 0, full)] == ["c"]
