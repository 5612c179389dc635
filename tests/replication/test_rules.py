"""The rules of Transis' replication layer, one story each; and the bug that breaks each story."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.plants import Plant, after, without
from tests.replication.test_mutants import (
    anybody_may_lead,
    counts_at_once,
    forgets_yellow,
    logs_no_runs,
)
from tests.replication.world import ReplicaWorld
from unisono.services.replication import component
from unisono.services.replication.component import Component
from unisono.services.replication.effects import Post, StableUpTo, TellSoon
from unisono.services.replication.engine import ReplicaEngine
from unisono.services.replication.order import UpdateOrder
from unisono.services.replication.records import (
    AttemptMessage,
    StateMessage,
    UpdateKind,
    UpdatesMessage,
    message_bytes,
    read_message,
)
from unisono.services.replication.stability import Lines
from unisono.services.replication.voting import PrimaryChoice


class Stage(ReplicaWorld):
    """A world in which nothing happens by chance."""

    def __init__(self, names: str = "abc", newcomers: str = "", explicit: bool = False) -> None:
        super().__init__(0, names, newcomers, partial(ReplicaEngine, explicit=explicit))  # type: ignore[arg-type]
        for name in (*names, *newcomers):
            self.replicas[name].start()
        self.meet(names + newcomers)

    def meet(self, *parts: str) -> None:
        """These are connected, each part by itself, until nothing is left to do."""
        self.part([list(part) for part in parts])
        self.settle()

    def engine(self, name: str) -> ReplicaEngine:
        engine = self.replicas[name].engine
        assert engine is not None
        return engine

    def submit(self, names: str) -> None:
        for name in names:
            self.replicas[name].submit()
        self.settle()

    def reconfigure(self, by: str, kind: UpdateKind = UpdateKind.ADD, name: str = "") -> None:
        self.replicas[by].submit(kind, name.encode())
        self.settle()

    def restart(self, names: str) -> None:
        for name in names:
            self.crash(name)
        for name in names:
            self.replicas[name].start()

    def primary(self) -> str:
        """Those that are in a primary component."""
        return "".join(name for name in self.alive() if self.engine(name).is_primary)

    def greens(self, name: str) -> list[str]:
        return self.replicas[name].state

    def stable(self, name: str) -> int:
        rows = [row.position for row in self.rows if (row.name, row.what) == (name, "stable")]
        return max(rows, default=0)

    def end(self) -> None:
        assert not self.heal()


def replication_group() -> None:
    """A set of names from the start; who of them is connected, and who else is, changes nothing."""
    stage = Stage(newcomers="x")
    stage.submit("a")
    stage.meet("abx", "c")
    stage.submit("b")
    for name in "abcx":
        assert stage.engine(name).order.members == ("a", "b", "c")
    assert stage.greens("a") == stage.greens("b") == ["a:1", "b:1"]
    assert stage.primary() == "ab", "one that is no member has no vote"
    assert stage.stable("a") == 1, "c has not logged the second"
    stage.meet("abcx")
    assert stage.stable("a") == 2
    stage.end()


def uniform() -> None:
    """One delivers two updates, and crashes with all that it knew; the others deliver them so."""
    stage = Stage()
    for name in "ba":
        stage.replicas[name].submit()
        stage.work(name)
    for name in "abc":
        stage.receive(name, 9)
    stage.deliver_safe("a")
    stage.work("a")
    assert stage.greens("a") == ["b:1", "a:1"] and not stage.greens("b")
    stage.crash("a")
    stage.meet("bc")
    assert stage.primary() == "bc"
    assert stage.greens("b") == stage.greens("c") == ["b:1", "a:1"]
    stage.end()


def persistent_total_order() -> None:
    """A majority orders, also of one that ordered before; what others deposited is merged."""
    stage = Stage("abcde")
    stage.meet("abc", "de")
    stage.submit("adb")
    assert stage.primary() == "abc" and stage.greens("a") == ["a:1", "b:1"]
    assert not stage.greens("d")
    stage.restart("abcde")
    stage.meet("acd", "be")
    stage.submit("e")
    assert not stage.primary(), "b may know more than the others that crashed with it"
    stage.meet("abc", "de")
    stage.meet("acd", "be")
    assert stage.primary() == "acd"
    assert stage.greens("d") == ["a:1", "b:1", "d:1", "e:1"], "e has left its own with b, b with a"
    stage.meet("abcde")
    assert stage.greens("e") == stage.greens("a") == stage.greens("d")
    stage.end()


def low_cost() -> None:
    """Updates cost a message and a write each; only a change of view costs more."""
    stage = Stage()

    def sent(act: Callable[[], None]) -> Counter[type[Any]]:
        views = {id(view): (view, len(view.messages)) for view in stage.view_of.values()}
        act()
        for view in stage.view_of.values():
            views.setdefault(id(view), (view, 0))
        return Counter(
            type(read_message(payload))
            for view, before in views.values()
            for _, payload in view.messages[before:]
        )

    def writes() -> int:
        return sum(len(each.disk.records) for each in stage.replicas.values())

    before = writes()
    ordered = sent(lambda: stage.submit("a" * 20))
    assert ordered[UpdatesMessage] == 20 and not ordered[StateMessage] | ordered[AttemptMessage]
    assert writes() - before == 20 * (2 + 1 + 1), "the content once at each, and its place at a"
    changed = sent(lambda: stage.meet("ab", "c"))
    assert (changed[StateMessage], changed[AttemptMessage]) == (3, 2)
    stage.end()


def stable_is_logged_by_all() -> None:
    """An update is stable when the log of each member has it, not when each received it."""
    stage = Stage()
    stage.replicas["a"].submit()
    stage.work("a")
    for name in "abc":
        stage.receive(name, 9)
    for name in "abc":
        stage.deliver_safe(name)
    for _ in range(5):
        for name in "ab":
            stage.work(name)
            if stage.replicas[name].tells:
                stage.replicas[name].tell()
        for name in "abc":
            stage.receive(name, 9)
            stage.deliver_safe(name)
    assert stage.greens("a") == stage.greens("b") == ["a:1"] and not stage.stable("a")
    stage.settle()
    assert stage.stable("a") == stage.stable("c") == 1
    stage.end()


def explicit_acknowledgment() -> None:
    """With it stable means acted upon, by every member."""
    stage = Stage(explicit=True)
    stage.submit("a")
    for name in "abc":
        assert stage.greens(name) == ["a:1"] and not stage.stable("b")
        stage.replicas[name].do(stage.engine(name).acknowledge(1))
        stage.settle()
    assert [stage.stable(name) for name in "abc"] == [1, 1, 1]


def startup_and_shutdown() -> None:
    """Members come and go by request; a newcomer has everything before it counts."""
    stage = Stage(newcomers="x")
    stage.submit("ab")
    stage.replicas["a"].compact(0)
    stage.meet("abc", "x")
    stage.submit("c")
    stage.reconfigure("a", UpdateKind.ADD, "x")
    stage.submit("b")
    assert stage.engine("a").order.members == ("a", "b", "c", "x")
    assert stage.primary() == "abc" and stage.stable("a") == 3, "x is a member, and has nothing yet"
    stage.meet("abcx")
    assert stage.primary() == "abcx" and stage.greens("x") == stage.greens("a")
    assert stage.stable("a") == 5
    stage.reconfigure("b", UpdateKind.REMOVE, "c")
    assert stage.replicas["c"].is_out and stage.primary() == "abx"
    stage.submit("x")
    assert stage.stable("x") == 7 == len(stage.greens("b")), "nobody waits for c"
    stage.crash("x")
    stage.meet("ab")
    assert stage.engine("a").order.members == ("a", "b", "x"), "it crashed; nobody asked for more"
    stage.end()


def deposit() -> None:
    """What was left at one that is cut off is ordered when it can be, also after its crash."""
    stage = Stage()
    stage.meet("ab", "c")
    stage.submit("cca")
    assert stage.engine("c").order.red_count == 2 and stage.greens("a") == ["a:1"]
    stage.restart("c")
    stage.meet("ab", "c")
    assert stage.engine("c").order.red_count == 2
    stage.meet("bc", "a")
    stage.meet("abc")
    assert stage.greens("a") == stage.greens("c") == ["a:1", "c:1", "c:2"]
    stage.end()


def logged() -> None:
    """All crash at once: what was acknowledged, red or green, is there."""
    stage = Stage()
    stage.submit("abc")
    stage.meet("a", "b", "c")
    stage.submit("b")
    stage.restart("abc")
    assert all(stage.greens(name) == ["a:1", "b:1", "c:1"] for name in "abc")
    stage.meet("abc")
    assert all(stage.greens(name) == ["a:1", "b:1", "c:1", "b:2"] for name in "abc")
    stage.end()


def asks_the_connected(self: ReplicaEngine, out: list[Any]) -> list[Any]:
    """Stable is what all members that are connected have."""
    if self.lines.settle(set(self.order.members).intersection(self.component.names)):
        out.append(StableUpTo(self.lines.stable, self.order.members))
    if self.lines.is_untold():
        out.append(TellSoon())
    return out


def acknowledged(self: Component, event: UpdatesMessage, out: list[Any]) -> None:
    """Each member answers each update."""
    out.append(Post(message_bytes(AttemptMessage(self.here))))


STORIES: list[tuple[str, Callable[[], None], Plant]] = [
    ("TRA-20", replication_group, without(ReplicaEngine, "_concluded", asks_the_connected)),
    ("TRA-21", uniform, without(PrimaryChoice, "mark_yellow", forgets_yellow)),
    ("TRA-22", persistent_total_order, without(component, "has_majority", anybody_may_lead)),
    ("TRA-23", low_cost, after(Component, "take_green", acknowledged)),
    ("TRA-24", stable_is_logged_by_all, without(Component, "mark_green", counts_at_once)),
    ("TRA-25", explicit_acknowledgment, without(Lines, "mine", property(lambda me: me._written))),
    ("TRA-26", startup_and_shutdown, without(Component, "is_regrouped", lambda *_: False)),
    ("TRA-27", deposit, without(UpdateOrder, "reds_after", lambda *_: [])),
    ("TRA-28", logged, without(component, "_log_runs", logs_no_runs)),
]


@pytest.mark.parametrize(
    "story",
    [pytest.param(story, marks=pytest.mark.rule(rule), id=rule) for rule, story, _ in STORIES],
)
def test_a_rule_holds(story: Callable[[], None]) -> None:
    story()


@pytest.mark.parametrize(("story", "plant"), [(story, plant) for _, story, plant in STORIES])
def test_a_rule_that_does_not_hold_is_noticed(
    story: Callable[[], None], plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        story()
