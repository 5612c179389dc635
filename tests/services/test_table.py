"""Is the outcome a function of the order alone, whatever the interleaving?"""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.services.replicas import Order, someone, view_of
from unisono.errors import Misuse
from unisono.model import Member, Message, View
from unisono.services.commit.messages import (
    CommitMessage,
    CommitRequest,
    Notice,
    Vote,
    encoded,
    read,
)
from unisono.services.commit.participant import Participant
from unisono.services.commit.replica import Duty, Replica, SendMessage
from unisono.services.commit.table import (
    Aborted,
    ActionLimits,
    Begun,
    Committed,
    Decided,
    Requested,
    Step,
    Table,
)

NAMES = "abcd"
A, B, C = map(someone, "abc")


def told(table: Table, *messages: Message) -> list[tuple[str, str]]:
    """What begins and what is decided, in a few words."""
    found = []
    for message in messages:
        for step in table.deliver(message):
            how = type(step.outcome).__name__ if isinstance(step, Decided) else "Begun"
            if not isinstance(step, Requested):
                found.append((step.action.key, how))
    return found


def ask(who: Member, key: str, *names: str) -> Message:
    return Message(who, encoded(CommitRequest(key, dict.fromkeys(names, b"do"))), 1)


def vote(who: Member, key: str, objection: str = "") -> Message:
    return Message(who, encoded(Vote(key, objection)), 1)


def gone(name: str, key: str) -> Message:
    return Message(A, encoded(Notice(key, name, "failed before its vote")), 1)


# -- one action ------------------------------------------------------------------------------------


@pytest.mark.rule("RNG-23")
def test_it_commits_at_the_last_yes_without_an_outcome_message() -> None:
    assert told(Table(), ask(C, "x", "a", "b"), vote(B, "x"), vote(A, "x")) == [
        ("x", "Begun"),
        ("x", "Committed"),
    ]


@pytest.mark.rule("RNG-23")
def test_it_aborts_at_the_first_no_and_later_votes_are_late() -> None:
    here = Table()
    assert told(here, ask(A, "x", "a", "b"), vote(B, "x", "no"), vote(A, "x")) == [
        ("x", "Begun"),
        ("x", "Aborted"),
    ]
    assert here.outcomes["x"] == Aborted("b: no") and here.counts["late"] == 1


@pytest.mark.rule("RNG-22", "RNG-23")
def test_a_failure_before_the_vote_aborts_and_one_after_it_does_not() -> None:
    before = Table()
    found = told(before, ask(A, "x", "a", "b"), gone("b", "x"), vote(B, "x"), vote(A, "x"))
    assert found == [("x", "Begun"), ("x", "Aborted")], "a vote after the failure is too late"
    assert before.outcomes["x"] == Aborted("b failed before its vote")
    after = told(Table(), ask(A, "x", "a", "b"), vote(B, "x"), gone("b", "x"), vote(A, "x"))
    assert after == [("x", "Begun"), ("x", "Committed")]


def test_votes_that_do_not_count() -> None:
    here = Table()
    told(here, ask(A, "x", "a", "b"), ask(A, "y", "b"))
    assert told(here, vote(C, "x"), vote(A, "x"), vote(A, "x"), vote(A, "x", "no")) == []
    assert told(here, vote(B, "y"), vote(A, "unknown"), gone("c", "x"), gone("a", "x")) == []
    assert here.counts == {"stray": 4, "late": 3}


# -- reports of failures ---------------------------------------------------------------------------


def notices(duties: list[Duty]) -> list[CommitMessage | None]:
    return [read(duty.payload) for duty in duties if isinstance(duty, SendMessage)]


def replica(me: Member) -> Replica:
    found = Replica(Participant())
    found.start(me)
    found.install(view_of(A, B, C))
    return found


@pytest.mark.rule("RNG-22")
def test_the_first_of_the_view_puts_a_failure_into_the_order_once_for_each_action() -> None:
    for me, says in ((A, True), (C, False)):
        here = replica(me)
        for message in (ask(C, "x", "a", "b"), ask(C, "y", "b", "c"), ask(C, "z", "c")):
            assert not notices(here.deliver(message))
        here.deliver(vote(B, "x"))
        found = notices(here.install(view_of(A, C)))
        assert found == ([Notice("y", "b", "failed before its vote")] if says else [])


@pytest.mark.rule("RNG-22")
def test_if_the_notifier_fails_too_another_sends_the_notice() -> None:
    here = replica(B)
    here.deliver(ask(C, "x", "a", "c"))
    assert not notices(here.install(view_of(A, B)))
    assert notices(here.install(view_of(B))) == [
        Notice("x", name, "failed before its vote") for name in "ac"
    ]


def test_an_absent_member_is_not_waited_for() -> None:
    here = replica(A)
    found = notices(here.deliver(ask(C, "x", "a", "z")))
    assert found == [Notice("x", "z", "is not in the group")]


@pytest.mark.rule("RNG-23")
def test_an_action_continues_without_its_initiator() -> None:
    order = Order("abc")
    order.ask("c", "x", "a", "b")
    order.fail("c")
    order.finish()
    order.check()
    assert order.alive["a"].outcomes == {"x": Committed()}


def test_an_incarnation_that_was_not_missed_votes_for_the_former() -> None:
    order = Order("abc")
    order.ask("c", "x", "a", "b")
    order.read("b", 9)
    back = order.replace("b")
    assert back.pending
    order.finish()
    order.check()
    assert back.outcomes == {"x": Committed()}


@pytest.mark.rule("RNG-22")
def test_a_member_that_was_partitioned_and_returned_finds_the_same_outcome() -> None:
    order = Order("abc")
    order.ask("c", "x", "a", "b")
    order.read("b", 9)
    order.cut_off("b")
    order.read("a", 9)
    assert order.vote("a"), "the notice"
    order.merge("b")
    order.finish()
    order.check()
    assert order.alive["b"].outcomes == {"x": Aborted("b failed before its vote")}


# -- several ---------------------------------------------------------------------------------------


@pytest.mark.rule("RNG-23")
def test_competing_requests_run_in_the_order_and_others_beside_them() -> None:
    here = Table()
    found = told(here, ask(A, "x", "a", "b"), ask(B, "y", "b", "c"), ask(C, "z", "c"))
    assert found == [("x", "Begun")], "y waits for x, z for y"
    assert told(here, ask(C, "w", "a")) == []
    assert told(here, vote(B, "y")) == [] and here.counts["stray"] == 1
    found = told(here, vote(A, "x"), vote(B, "x"))
    assert found == [("x", "Committed"), ("y", "Begun"), ("w", "Begun")]
    assert told(here, vote(B, "y", "no")) == [("y", "Aborted"), ("z", "Begun")]


@pytest.mark.rule("RNG-23")
def test_two_that_want_the_same_two_do_not_deadlock() -> None:
    here = Table()
    told(here, ask(A, "x", "a", "b"), ask(B, "y", "b", "a"))
    assert told(here, vote(A, "x"), vote(B, "x")) == [("x", "Committed"), ("y", "Begun")]
    assert told(here, vote(A, "y"), vote(B, "y")) == [("y", "Committed")]


def test_a_duplicate_request_counts_once() -> None:
    here = Table()
    told(here, ask(A, "x", "a"), ask(A, "x", "a"), vote(A, "x"), ask(B, "x", "a", "b"))
    assert here.counts == {"repeated": 2, "committed": 1} and not here.open


def test_bounds() -> None:
    here = Table(ActionLimits(open_count_max=2, outcomes_count_max=3, names_count_max=1))
    assert told(here, ask(A, "x", "a"), ask(A, "y", "a"), ask(A, "z", "a"))[-1] == ("z", "Aborted")
    assert here.outcomes["z"] == Aborted("2 actions are open already")
    told(here, vote(A, "x"), vote(A, "y"), ask(A, "u", "b"), vote(B, "u"))
    assert list(here.outcomes) == ["x", "y", "u"] and list(here.last) == ["b"]
    assert here.decided_count == 4


def test_what_is_not_ours_is_passed_over_and_counted() -> None:
    here = Table()
    for payload in (b"", b"hello", b"unisono.action/1 ", b'unisono.action/1 {"ask":3,"do":{}}'):
        assert told(here, Message(A, payload, 1)) == []
    assert here.counts == {"foreign": 2, "bad": 2}


# -- handing over ----------------------------------------------------------------------------------


def test_a_table_is_transferred_completely() -> None:
    here = Table(ActionLimits(open_count_max=7))
    told(here, ask(A, "x", "a", "b"), vote(A, "x"), ask(A, "y", "b"), ask(A, "z", "q"))
    told(here, ask(C, "u", "c"), vote(C, "u"))
    there = Table()
    there.adopt(here.state())
    assert there.state() == here.state() and there.limits.open_count_max == 7
    for each in (here, there):
        found = told(each, gone("q", "z"), vote(B, "x"))
        assert found == [("z", "Aborted"), ("x", "Committed"), ("y", "Begun")]
    assert there.state() == here.state()


def test_a_new_group_is_recognised_by_its_first_request() -> None:
    class Begins(Participant):
        def __init__(self) -> None:
            self.origins: list[str] = []

        def begin(self, origin: str) -> None:
            self.origins.append(origin)

    first, early, later = (Replica(Begins()) for _ in range(3))
    early.adopt(first.state())
    for each in (first, early):
        for message in (vote(A, "x"), ask(B, "x", "a"), ask(C, "y", "a")):
            each.deliver(message)
    later.adopt(first.state())
    later.deliver(ask(A, "z", "a"))
    told = [each.participant.origins for each in (first, early, later)]  # type: ignore[attr-defined]
    assert told == [["b#1/1"], ["b#1/1"], []]
    assert later.table.origin == "b#1/1"


@pytest.mark.parametrize("state", [b"", b"[]", b"{}", b'{"form":9}', b"\xff"])
def test_a_state_that_is_none_is_refused(state: bytes) -> None:
    with pytest.raises(Misuse, match="no table of actions"):
        Table().adopt(state)


@pytest.mark.rule("RNG-23")
def test_a_member_that_was_down_learns_the_outcome_on_return() -> None:
    order = Order("abc")
    order.ask("c", "x", "a", "b")
    order.read("b", 9)
    assert order.vote("b")
    gone = order.fail("b")
    order.finish()
    assert gone.outcomes == {}, "it did not live to see it"
    back = order.come_back("b")
    assert back.noted.last is not None
    assert (back.noted.last.key, back.noted.last.outcome) == ("x", Committed())
    order.finish()
    order.check()


def test_what_a_former_life_voted_for_is_decided_in_the_next() -> None:
    order = Order("abc")
    order.ask("c", "x", "a", "b")
    order.read("b", 9)
    order.vote("b")
    order.fail("b")
    back = order.come_back("b")
    assert back.noted.last is None and "x" in back.replica.table.open
    order.finish()
    assert back.outcomes == {"x": Committed()} and back.noted.prepared == []
    order.check()


# -- any interleaving ------------------------------------------------------------------------------

KINDS = "ask read vote work fail return replace cut merge noise".split()
WEIGHTS = (8, 8, 6, 10, 2, 4, 1, 2, 4, 1)
NAME = st.sampled_from(NAMES)
SOME = st.lists(NAME, min_size=1, max_size=3, unique=True)
MOVES = st.one_of(
    st.tuples(st.just("ask"), NAME, SOME, st.integers(0, 9)),
    st.tuples(st.just("read"), NAME, st.integers(1, 5)),
    st.tuples(st.just("read"), NAME, st.integers(1, 5)),
    st.tuples(st.just("vote"), NAME),
    st.tuples(st.just("work"), NAME),
    st.tuples(st.just("fail"), NAME),
    st.tuples(st.just("return"), NAME),
    st.tuples(st.just("replace"), NAME),
    st.tuples(st.just("cut"), NAME),
    st.tuples(st.just("merge"), NAME),
    st.tuples(st.just("noise"), NAME, st.binary(max_size=8)),
)


def story(seed: int) -> list[Any]:
    """A long one, with failures few enough that much is done between them."""
    roll = Random(seed)
    found: list[Any] = []
    for _ in range(roll.randint(10, 150)):
        kind = roll.choices(KINDS, WEIGHTS)[0]
        more: list[Any] = []
        if kind == "ask":
            more = [roll.sample(NAMES, roll.randint(1, 3)), roll.randint(0, 9)]
        elif kind in ("read", "noise"):
            more = [roll.randint(1, 5) if kind == "read" else roll.randbytes(4)]
        found.append((kind, roll.choice(NAMES), *more))
    return found


def play(moves: list[Any], replica_of: type[Replica] = Replica) -> Order:
    order = Order(NAMES, replica_of)
    for number, (kind, name, *more) in enumerate(moves):
        here = name in order.alive
        if name in order.apart:
            if kind == "merge":
                order.merge(name)
        elif kind == "return" and not here:
            order.come_back(name)
        elif not here or (kind in ("fail", "replace", "cut") and len(order.alive) == 1):
            continue
        elif kind == "cut":
            order.cut_off(name)
        elif kind == "ask":
            order.ask(name, f"k{number}", *more[0], no=more[1] == 0)
        elif kind == "read":
            order.read(name, more[0])
        elif kind == "vote":
            order.vote(name)
        elif kind == "work":
            order.read(name, 99)
            while order.vote(name):
                pass
        elif kind == "fail":
            order.fail(name)
        elif kind == "replace":
            order.replace(name)
        elif kind == "noise":
            order.say(name, more[0])
    order.finish()
    order.check()
    return order


@pytest.mark.rule("RNG-22", "RNG-23")
@settings(max_examples=300)
@given(st.lists(MOVES, max_size=60))
def test_any_interleaving_is_decided_alike_and_blocks_no_member(moves: list[Any]) -> None:
    order = play(moves)
    asked = {key for life in order.all for key in life.outcomes}
    for life in order.alive.values():
        assert set(life.replica.table.outcomes) >= set(life.outcomes) <= asked


@pytest.mark.rule("RNG-23")
def test_long_histories_too_and_a_member_that_was_down_has_all_on_disk() -> None:
    learned = 0
    for seed in range(400):
        order = play(story(seed))
        learned += sum(life.noted.learned for life in order.all)
    assert learned > 100


@settings(max_examples=150)
@given(st.lists(MOVES, max_size=60))
def test_no_participant_runs_two_at_once(moves: list[Any]) -> None:
    class Watchful(Replica):
        def deliver(self, message: Message) -> Any:
            found = super().deliver(message)
            running = [each for each in self.table.open.values() if each.begun]
            names = [name for each in running for name in each.action.operations]
            assert len(names) == len(set(names))
            return found

    play(moves, Watchful)


# -- planted bugs ----------------------------------------------------------------------------------


class Hasty(Replica):
    """Takes its own vote for delivered when it sends it: decides on arrival, not in the order."""

    def vote(self, key: str, objection: str) -> bytes:
        assert self.me is not None
        self._follow(self.table.deliver(Message(self.me, super().vote(key, objection), 0)))
        return super().vote(key, objection)


class Forgiving(Table):
    """Passes over a failure: the vote of the failed may yet come, and would be counted."""

    def _noticed(self, notice: Notice) -> list[Step]:
        return []


class Late(Table):
    """Counts a vote after the failure of its voter, if it knows that the vote was on its way."""

    def _noticed(self, notice: Notice) -> list[Step]:
        entry = self.open.get(notice.key)
        if entry is not None and entry.yes:
            return []
        return super()._noticed(notice)


class Seeing(Replica):
    """Takes a failure from the view and not from the order: a partitioned member misses it."""

    def install(self, view: View) -> list[Duty]:
        names = {member.name for member in view.members}
        steps: list[Step] = []
        for entry in list(self.table.open.values()):
            if not names.issuperset(entry.awaited):
                steps += self.table._decide(entry, Aborted("failed"))
        super().install(view)
        return self._follow(steps + self.table._begin())


class Crossed(Table):
    """Each participant has a queue of its own, and they do not agree: a circle of waiting."""

    def _begin(self) -> list[Step]:
        first: dict[str, str] = {}
        for key, entry in self.open.items():
            for name in entry.action.operations:
                if name in "ac" or name not in first or not self.open[first[name]].begun:
                    first[name] = first.get(name, key) if name in "ac" else key
        steps: list[Step] = []
        for key, entry in self.open.items():
            if not entry.begun and all(first[name] == key for name in entry.action.operations):
                entry.begun = True
                steps.append(Begun(entry.action))
        return steps


class Own(Table):
    """Lets requests begin in an order of its own."""

    whose = ""

    def _begin(self) -> list[Step]:
        self.open = dict(sorted(self.open.items(), reverse=self.whose in "ac"))
        return super()._begin()


class Careless(Table):
    """Transfers the open actions without their votes."""

    def state(self) -> bytes:
        return re.sub(rb'"yes":\[[^]]*\]', b'"yes":[]', super().state())


class Forgetful(Table):
    """Keeps no outcome for a member that failed after it had agreed."""

    def _noticed(self, notice: Notice) -> list[Step]:
        found = super()._noticed(notice)
        self.last.pop(notice.name, None)
        return found


def with_table(kind: type[Table]) -> type[Replica]:
    class Planted(Replica):
        def __init__(self, participant: Participant, limits: ActionLimits | None = None) -> None:
            super().__init__(participant, limits)
            self.table = kind(limits)

        def start(self, me: Member) -> None:
            super().start(me)
            if isinstance(self.table, Own):
                self.table.whose = me.name

    return Planted


@pytest.mark.parametrize(
    "planted",
    [Hasty, Seeing, *map(with_table, (Forgiving, Late, Crossed, Own, Careless, Forgetful))],
    ids=["Hasty", "Seeing", "Forgiving", "Late", "Crossed", "Own", "Careless", "Forgetful"],
)
def test_a_planted_bug_is_found(planted: type[Replica]) -> None:
    with pytest.raises(AssertionError):
        for seed in range(400):
            play(story(seed), planted)
