"""Bugs between a protocol and its application: each law that a protocol claims sees one in a run.

The bug stands at one member's door: what its core asks for reaches the world changed. So the same
bugs fit every protocol. Those inside a protocol are beside its own tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.ring.mutants import majority_not_needed
from unisono.core import (
    Cause,
    Core,
    CoreConfig,
    Deliver,
    Effect,
    Event,
    Fail,
    Install,
    Stabilize,
)
from unisono.model import Change, ChangeKind, Member, Resilient, Service, SizeVote, View, changes_of
from unisono.protocols import spec, specs
from unisono.protocols.rmp import sources
from unisono.protocols.rmp.contents import Contents
from unisono.protocols.rmp.group_state import GroupState, MinimumSize
from unisono.protocols.rmp.quorums import ViewQuorums
from unisono.sim import Plan
from unisono.sim.run import run

Bug = Callable[[Any, list[Effect]], Iterator[Effect]]
SEEDS_MAX = 12


class Buggy:
    """A core whose effects are changed on their way."""

    def __init__(self, core: Core, bug: Bug) -> None:
        self._core = core
        self._bug = bug
        self.seen = 0
        self.held_back: list[Effect] = []
        self.limits: dict[Member, int] = {}
        """By sender, the last message that it really has."""
        self.boast = 0
        """By so many messages it claims to hold more than it does."""

    def held(self) -> dict[Member, int]:
        marks = self._core.held()
        return {
            who: min(mark, self.limits.get(who, mark)) + self.boast for who, mark in marks.items()
        }

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def step(self, now_us: int, event: Event) -> list[Effect]:
        return list(self._bug(self, self._core.step(now_us, event)))


def view_after_message(me: Any, effects: list[Effect]) -> Iterator[Effect]:
    """The first view comes after the first message."""
    for effect in effects:
        if isinstance(effect, Install) and not me.seen:
            me.held_back.append(effect)
            me.seen = 1
        else:
            yield effect
            if isinstance(effect, Deliver):
                yield from me.held_back
                me.held_back.clear()


def stranger_speaks(me: Any, effects: list[Effect]) -> Iterator[Effect]:
    """The application is not told of one of the others."""
    for effect in effects:
        if isinstance(effect, Install):
            others = [who for who in effect.view.members if who.name != me.me.name]
            kept = tuple(who for who in effect.view.members if who not in others[:1])
            effect = Install(replace(effect.view, members=kept))
        yield effect


def cut_too_high(me: Any, effects: list[Effect]) -> Iterator[Effect]:
    """A joiner is told that the others had said more than they had."""
    for effect in effects:
        if isinstance(effect, Install) and effect.view.cut:
            cut = tuple((who, number + 2) for who, number in effect.view.cut)
            effect = Install(replace(effect.view, cut=cut))
        yield effect


def message_after_view(me: Any, effects: list[Effect]) -> Iterator[Effect]:
    """What was said last in a view is delivered in the next."""
    for effect in effects:
        if isinstance(effect, Deliver):
            yield from me.held_back
            me.held_back[:] = [effect]
        else:
            yield effect


def place_passed_over(me: Any, effects: list[Effect]) -> Iterator[Effect]:
    """One message is not handed over, and those after it are."""
    for effect in effects:
        if isinstance(effect, Deliver):
            me.seen += 1
            if me.seen == 3:
                continue
        yield effect


def places_one_too_high(me: Any, effects: list[Effect]) -> Iterator[Effect]:
    for effect in effects:
        if isinstance(effect, Deliver):
            yield Deliver([each._replace(seq=(each.seq or 0) + 1) for each in effect.messages])
        else:
            yield effect


def a_place_left_free(me: Any, effects: list[Effect]) -> Iterator[Effect]:
    """From the third message on, places are far from those before."""
    for effect in effects:
        if isinstance(effect, Deliver):
            me.seen += 1
            if me.seen > 2:
                far = [each._replace(seq=(each.seq or 0) + 10_000) for each in effect.messages]
                effect = Deliver(far)
        yield effect


def holds_too_much(me: Any, effects: list[Effect]) -> Iterator[Effect]:
    """It says that it has more than anybody sent."""
    me.boast = 1_000
    yield from effects


def begins_without_a_word(me: Any, effects: list[Effect]) -> Iterator[Effect]:
    """It has views of its own, and nobody founded them."""
    for effect in effects:
        if isinstance(effect, Install):
            me.seen += 1
            effect = Install(View((me.me,), f"{me.me} {me.seen}", seq=effect.view.seq))
        yield effect


def goes_on_in_secret(me: Any, effects: list[Effect]) -> Iterator[Effect]:
    """It tells the application of nobody else."""
    for effect in effects:
        if isinstance(effect, Install):
            effect = Install(replace(effect.view, members=(me.me,)))
        yield effect


def gives_up(me: Any, effects: list[Effect]) -> Iterator[Effect]:
    """In its second view it takes itself for excluded."""
    for effect in effects:
        yield effect
        me.seen += isinstance(effect, Install)
        if isinstance(effect, Install) and me.seen == 2:
            yield Fail("the others went on", Cause.EXCLUDED)
            return


def alone_in_transit(me: Any, effects: list[Effect]) -> Iterator[Effect]:
    """It says that only the others came along."""
    for effect in effects:
        if isinstance(effect, Install) and effect.view.stayed:
            others = tuple(who for who in effect.view.stayed if who.name != me.me.name)
            effect = Install(replace(effect.view, stayed=others))
        yield effect


def loses_what_it_acknowledged(me: Any, effects: list[Effect]) -> Iterator[Effect]:
    """Of each sender it keeps three messages; the others believe that it has them all."""
    for effect in effects:
        if isinstance(effect, Deliver):
            for message in effect.messages:
                if message.number <= me.limits.setdefault(message.sender, message.number + 2):
                    yield Deliver([message])
        else:
            yield effect


def goes_on_alone(me: Any, effects: list[Effect]) -> Iterator[Effect]:
    """Who is left out takes itself for the group before it stops."""
    for effect in effects:
        if isinstance(effect, Fail):
            yield Install(View((me.me,), f"{me.me} alone"))
        yield effect


def founds_beside(me: Any, effects: list[Effect]) -> Iterator[Effect]:
    """Who comes back founds a group of its own, though the others are there."""
    for effect in effects:
        if isinstance(effect, Install) and me.me.incarnation > 1:
            me.seen += 1
            name, told = f"{me.me} {me.seen}", changes_of(me.me, (me.me,), founded=True)
            effect = Install(replace(effect.view, members=(me.me,), id=name, changes=told))
        yield effect


def stable_too_soon(me: Any, effects: list[Effect]) -> Iterator[Effect]:
    """It reports each message as held by itself alone, which was to be held by all."""
    for effect in effects:
        yield effect
        if isinstance(effect, Deliver):
            yield Stabilize(effect.messages, (me.me,))


def _with_change(view: View, *changes: Change) -> Install:
    return Install(replace(view, changes=(*view.changes, *changes)))


def one_lock_for_two(me: Any, effects: list[Effect]) -> Iterator[Effect]:
    """A lock is granted to two members."""
    for effect in effects:
        if isinstance(effect, Install):
            granted = [
                Change(ChangeKind.LOCK_GRANTED, (who,), number=7) for who in effect.view.members[:2]
            ]
            effect = _with_change(effect.view, *granted)
        yield effect


def votes_in_vain(me: Any, effects: list[Effect]) -> Iterator[Effect]:
    """It has voted that none may fail, and goes on when one does."""
    for effect in effects:
        if isinstance(effect, Install):
            vote = Change(ChangeKind.SIZE_CHANGED, (me.me,), number=SizeVote.NONE_MAY_FAIL)
            effect = _with_change(effect.view, vote)
        yield effect


def forgets_the_last_primary(me: Any, effects: list[Effect]) -> Iterator[Effect]:
    """Each component takes itself for the first primary one."""
    for effect in effects:
        if isinstance(effect, Install) and not effect.view.transitional:
            effect = _with_change(effect.view, Change(ChangeKind.PRIMARY, number=1))
        yield effect


CASES: list[tuple[str, str, Bug]] = [
    ("rmcast", "local_order", view_after_message),
    ("rmcast", "sender_in_view", stranger_speaks),
    ("rmcast", "receipts", holds_too_much),
    ("rmcast", "exclusion", gives_up),
    ("mtp", "local_order", view_after_message),
    ("mtp", "sender_in_view", stranger_speaks),
    ("mtp", "cut", cut_too_high),
    ("mtp", "same_view", message_after_view),
    ("mtp", "gap_free", place_passed_over),
    ("mtp", "uniform_order", places_one_too_high),
    ("mtp", "transitional_set", alone_in_transit),
    ("mtp", "one_primary", goes_on_alone),
    ("mtp", "every_place", a_place_left_free),
    ("mtp", "begun", begins_without_a_word),
    ("mtp", "receipts", holds_too_much),
    ("mtp", "exclusion", gives_up),
    ("rmp", "local_order", view_after_message),
    ("rmp", "sender_in_view", stranger_speaks),
    ("rmp", "cut", cut_too_high),
    ("rmp", "gap_free", place_passed_over),
    ("rmp", "one_place", places_one_too_high),
    ("rmp", "every_place", a_place_left_free),
    ("rmp", "receipts", holds_too_much),
    ("rmp", "stable", stable_too_soon),
    ("rmp", "one_lock_holder", one_lock_for_two),
    ("rmp", "minimum_size", votes_in_vain),
    ("rmp", "exclusion", gives_up),
    ("ring", "local_order", view_after_message),
    ("ring", "sender_in_view", stranger_speaks),
    ("ring", "cut", cut_too_high),
    ("ring", "same_view", message_after_view),
    ("ring", "gap_free", place_passed_over),
    ("ring", "one_place", places_one_too_high),
    ("ring", "received", loses_what_it_acknowledged),
    ("ring", "one_founding", founds_beside),
    ("ring", "every_place", a_place_left_free),
    ("ring", "begun", begins_without_a_word),
    ("ring", "receipts", holds_too_much),
    ("ring", "exclusion", gives_up),
    ("ring", "quorum", goes_on_in_secret),
    ("transis", "local_order", view_after_message),
    ("transis", "sender_in_view", stranger_speaks),
    ("transis", "cut", cut_too_high),
    ("transis", "same_view", message_after_view),
    ("transis", "transitional_set", alone_in_transit),
    ("transis", "view_prefix", place_passed_over),
    ("transis", "received", loses_what_it_acknowledged),
    ("transis", "one_component", forgets_the_last_primary),
    ("transis", "receipts", holds_too_much),
    ("transis", "exclusion", gives_up),
]


@pytest.mark.parametrize(
    ("protocol", "law", "bug"),
    [
        pytest.param(*case, id=f"{case[0]}-{case[1]}", marks=pytest.mark.catches(case[1]))
        for case in CASES
    ],
)
def test_a_bug_at_the_door_is_caught(protocol: str, law: str, bug: Bug) -> None:
    sound = spec(protocol)
    assert law in sound.laws, "nobody claims it"

    def make(setting: CoreConfig) -> Any:
        core = sound.make(setting)
        return Buggy(core, bug) if setting.me.name == "b" else core

    broken: set[str] = set()
    for seed in range(SEEDS_MAX):
        buggy = replace(sound, make=make)
        faults = {goes_on_alone: "partition", gives_up: "none"}.get(bug, "mild")
        plan = Plan(protocol=protocol, spec=buggy, nodes=4, seed=seed, faults=faults, messages=60)
        if law == "stable":
            plan = replace(plan, service=Resilient(Resilient.ALL))
        broken |= set(run(plan).broken)
        if law in broken:
            return
    raise AssertionError(f"{law} was kept; broken: {sorted(broken)}")


@pytest.mark.catches("one_primary")
def test_a_ring_that_needs_no_majority_is_two_primaries(monkeypatch: pytest.MonkeyPatch) -> None:
    majority_not_needed(monkeypatch)
    plan = Plan(protocol="ring", faults="partition", messages=100)
    broken: set[str] = set()
    for seed in (9, 13, 26, 31, 32, 35):
        broken |= set(run(replace(plan, seed=seed, nodes=3 + seed % 7)).broken)
        if {"one_primary", "one_place"} <= broken:
            return
    raise AssertionError(f"broken: {sorted(broken)}")


@pytest.mark.catches("one_primary")
def test_a_reformation_that_needs_no_quorum_makes_two_rings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ViewQuorums, "has_majority", lambda self, present: True)
    monkeypatch.setattr(GroupState, "minimum", lambda self: MinimumSize(1, needs_quorum=False))
    plan = Plan(protocol="rmp", faults="partition", messages=100)
    broken: set[str] = set()
    for seed in range(30):
        broken |= set(run(replace(plan, seed=seed, nodes=3 + seed % 7)).broken)
        if "one_primary" in broken:
            return
    raise AssertionError(f"broken: {sorted(broken)}")


@pytest.mark.catches("fifo_by_level")
def test_fifo_messages_delivered_as_they_arrive_are_out_of_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = sources.read_block

    def at_once(*arguments: Any) -> Contents:
        contents = read(*arguments)
        contents.at_once += contents.in_sequence
        contents.in_sequence.clear()
        return contents

    monkeypatch.setattr(sources, "read_block", at_once)
    broken: set[str] = set()
    for seed in range(SEEDS_MAX):
        plan = Plan(protocol="rmp", nodes=4, seed=seed, faults="loss", messages=60)
        broken |= set(run(replace(plan, service=Service.FIFO)).broken)
        if "fifo_by_level" in broken:
            return
    raise AssertionError(f"broken: {sorted(broken)}")


def test_every_new_claim_has_a_bug() -> None:
    """Those of old have mutants beside the protocols."""
    older = """no_creation no_duplication fifo causal total_order prefix agreement validity
        virtual_synchrony view_order self_inclusion safe progress""".split()
    shown = {(protocol, law) for protocol, law, _ in CASES}
    shown |= {("ring", "one_primary"), ("rmp", "one_primary"), ("rmp", "fifo_by_level")}
    claimed = {(each.name, law) for each in specs().values() for law in each.laws}
    missing = {(name, law) for name, law in claimed - shown if law not in older}
    assert missing == set()
