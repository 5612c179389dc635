"""The operator's request: a part continues without a majority, and never at the cost of one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ring.harness import gather, lawful, seen, site
from tests.ring.test_memory import FIVE, Ward, on_one_ring
from unisono.core import Cause
from unisono.model import ChangeKind
from unisono.protocols.ring.packets import NO_VERSION

pytestmark = pytest.mark.rule("RNG-13")

TOLD = ("view", "transitional", "deliver")


def blocked(room: Ward, *names: str) -> None:
    room.until(lambda: any(name in room.warned for name in names))


def let_go_on(room: Ward, *names: str) -> None:
    blocked(room, *names)
    room.obey(f"request {names[0]} go_on")
    gather(room, *names)


def changes(room: Ward, name: str) -> set[ChangeKind]:
    return {change.what for change in room.actors[name].views[-1].changes}


def test_what_was_not_with_all_is_not_safe_in_the_old_view() -> None:
    """e's message reaches d alone; a, b and c die without it. d and e deliver it in a transitional
    view of their own, before the one in which they go on."""
    room = on_one_ring(*FIVE, durable=True)

    def loses(source: str, target: str, packet: Any) -> bool:
        return target in "abc" and source in "de"

    room.obey("say a all")
    room.until(lambda: all(room.words(name) == ["all"] for name in FIVE))
    room.pass_ms(300)
    room.loses = loses
    room.obey("say e few")
    room.until(lambda: site(room, "d").ordering.seq == site(room, "e").ordering.seq == 2)
    for name in "abc":
        room.obey(f"crash {name}")
    room.loses = None
    assert room.words("d") == room.words("e") == ["all"]
    let_go_on(room, "d", "e")
    room.until(lambda: room.words("d") == room.words("e") == ["all", "few"])
    for name in "de":
        assert ChangeKind.PARTED in changes(room, name)
        told = [row for row in room.sink.rows if row.node == name and row.kind in TOLD][-3:]
        assert [(row.kind, row.seq) for row in told] == [
            ("transitional", 1),
            ("deliver", 2),
            ("view", 2),
        ]
        assert set(told[0].members or ()) == set(told[2].members or ()) == {"d#1", "e#1"}
    lawful(room)


def test_a_majority_that_continued_outranks_a_part_continued_by_request() -> None:
    room = on_one_ring(*FIVE, durable=True)
    room.obey("split a b c | d e")
    gather(room, "a", "b", "c")
    room.obey("say a kept")
    room.until(lambda: all(room.words(name) == ["kept"] for name in "abc"))
    let_go_on(room, "d", "e")
    assert ChangeKind.PARTED in changes(room, "d")
    room.obey("say d apart")
    room.pass_ms(200)
    room.obey("heal")
    room.until(lambda: {"d", "e"} <= room.ends.keys())
    assert {room.ends[name].cause for name in "de"} == {Cause.EXCLUDED}
    assert not room.ends.keys() & set("abc")
    room.obey("join d e")
    gather(room, *FIVE)
    room.obey("say d after")
    room.until(lambda: all(room.words(name)[-1] == "after" for name in FIVE))
    assert room.words("a") == ["kept", "after"]


def test_and_also_when_that_majority_is_blocked_by_then() -> None:
    """a, b and c continued; then c died. What they delivered as safe is not lost to the rest."""
    room = on_one_ring(*FIVE, durable=True)
    room.obey("split a b c | d e")
    gather(room, "a", "b", "c")
    room.obey("say a kept")
    room.until(lambda: all(room.words(name) == ["kept"] for name in "abc"))
    let_go_on(room, "d", "e")
    room.obey("say d apart\nadvance 200ms\ncrash c")
    room.until(lambda: not site(room, "a").state.is_normal)
    room.obey("heal")
    room.until(lambda: {"d", "e"} <= room.ends.keys(), late_ms=20_000)
    assert not room.ends.keys() & set("ab")
    room.obey("join d e c")
    gather(room, *FIVE, late_ms=20_000)
    assert room.words("a") == ["kept"]
    assert not site(room, "a").state.record.trunk > NO_VERSION


def test_members_that_outrank_a_part_form_the_next_ring() -> None:
    """d, which remembers nothing, was let go on alone; the others, a majority, were blocked, and
    neither followed the turns of d for ever nor were followed by it in vain."""
    room = on_one_ring(*FIVE, durable=True)
    room.obey("say a kept")
    room.until(lambda: all(room.words(name) == ["kept"] for name in FIVE))
    room.obey("crash d\nsplit a b c e | d\ncut a b c e\njoin d")
    let_go_on(room, "d")
    room.obey("say d apart\nheal")
    room.until(lambda: "d" in room.ends, late_ms=20_000)
    assert room.ends["d"].cause is Cause.EXCLUDED
    gather(room, "a", "b", "c", "e")
    assert not room.ends.keys() & set("abce")
    room.obey("join d")
    gather(room, *FIVE)
    assert room.words("a") == ["kept"]


def test_where_no_majority_continued_the_part_continued_by_request_is_the_group() -> None:
    room = on_one_ring(*FIVE, durable=True)
    room.obey("split a b c | d e\ncut a b c")
    let_go_on(room, "d", "e")
    room.obey("say d on")
    room.until(lambda: room.words("e") == ["on"])
    room.obey("heal")
    room.until(lambda: {"a", "b", "c"} <= room.ends.keys(), late_ms=20_000)
    assert not room.ends.keys() & {"d", "e"}
    room.obey("join a b c")
    gather(room, *FIVE, late_ms=20_000)
    assert not site(room, "d").state.record.trunk > NO_VERSION, "all sites are on it"
    room.obey("say a too")
    room.until(lambda: room.words("d") == ["on", "too"])
    lawful(room)


@pytest.mark.parametrize("sites", [0, 2])
def test_one_of_a_pair_continues_alone_when_the_other_is_gone_for_good(sites: int) -> None:
    room = on_one_ring("a", "b", sites=sites)
    room.obey("say a both\nadvance 200ms\ncrash b\nsay a alone")
    blocked(room, "a")
    assert "b is missing" in room.warned["a"] and "go_on" in room.warned["a"]
    assert room.words("a") == ["both"]
    room.obey("request a go_on")
    room.until(lambda: room.words("a") == ["both", "alone"])
    assert seen(room, "a") == {"a"}
    room.obey("join b")
    gather(room, "a", "b")
    assert not room.ends
    lawful(room)


def test_the_request_is_not_needed_where_a_majority_is() -> None:
    room = on_one_ring("a", "b", "c", durable=True)
    room.obey("crash c")
    room.until(lambda: not site(room, "a").state.is_normal or not site(room, "b").state.is_normal)
    room.obey("request a go_on\nrequest b go_on")
    gather(room, "a", "b")
    assert ChangeKind.PARTED not in changes(room, "a")
    assert site(room, "a").state.ring.size == 3


def test_a_member_is_forgotten_after_rings_worked_so_long_without_it() -> None:
    """The time in which those that are left were blocked does not count."""
    room = on_one_ring(*FIVE, sites=0, forget_us=3_000_000)
    room.obey("crash d\ncrash e")
    gather(room, "a", "b", "c")
    room.obey("cut a b c")
    room.pass_ms(4_000)
    room.obey("heal")
    gather(room, "a", "b", "c")
    assert site(room, "a").state.ring.size == 5, "they were blocked most of the time"
    room.until(lambda: all(site(room, name).state.ring.size == 3 for name in "abc"))
    room.obey("crash c")
    gather(room, "a", "b")
    lawful(room)
