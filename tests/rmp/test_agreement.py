"""Reformations of small groups, in every interleaving."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import pytest

from tests.rmp.explorer import Case, explore
from tests.rmp.theatre import together
from unisono.core import Cause
from unisono.protocols.rmp import agreement
from unisono.protocols.rmp.agreement import Attempt, NewList, ReformBallot, Slave, SyncPoint, united
from unisono.protocols.rmp.group_state import MinimumSize
from unisono.protocols.rmp.packets import AckFields, PacketKind
from unisono.protocols.rmp.quorums import ViewQuorums
from unisono.protocols.rmp.resilience import Resilience

STATIC = Case(((0, frozenset((1, 2, 3))),), 1, (ReformBallot(1, 1), ReformBallot(1, 2)))
JOIN = Case(
    ((0, frozenset((1, 2))), (1, frozenset((1, 2, 3)))), 2, (ReformBallot(1, 1), ReformBallot(1, 2))
)
LEAVE = Case(
    ((0, frozenset((1, 2, 3))), (1, frozenset((1, 2)))), 2, (ReformBallot(1, 1), ReformBallot(1, 2))
)


@pytest.mark.rule("RMP-11")
@pytest.mark.parametrize("case", [STATIC, JOIN, LEAVE], ids=["static", "join", "leave"])
def test_one_new_list_is_decided_and_keeps_what_a_majority_held(case: Case) -> None:
    found = explore(case)
    assert not found.law, "\n".join((found.law, *found.story))
    assert found.states > 1_000


def test_a_list_that_ignores_what_was_accepted_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(self: Attempt, *arguments: object) -> object:
        for site, answer in self.answers.items():
            self.answers[site] = answer._replace(accepted=None)
        return propose(self, *arguments)  # type: ignore[arg-type]

    propose = Attempt.propose
    monkeypatch.setattr(Attempt, "propose", forgetful)
    assert explore(STATIC).law.startswith("two new lists")


def test_a_list_that_takes_over_the_first_accepted_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Instead of the one under the highest ballot."""
    ballot_of = agreement._ballot_of
    monkeypatch.setattr(
        agreement, "_ballot_of", lambda each: (-ballot_of(each).round, -ballot_of(each).site)
    )
    assert explore(STATIC).law.startswith("two new lists")


def test_ordering_on_after_a_promise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def promise(self: Slave, ballot: ReformBallot) -> bool:
        return True

    monkeypatch.setattr(Slave, "promise", promise)
    assert explore(STATIC).law


def test_slaves_that_never_confirm_again_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a commit without ballots: who confirmed a list that came to nothing is in doubt."""
    accept = Slave.accept

    def once(self: Slave, ballot: ReformBallot, new_list: NewList, held: int) -> bool:
        return self.accepted in (None, (ballot, new_list)) and accept(self, ballot, new_list, held)

    monkeypatch.setattr(Slave, "accept", once)
    assert "do not confirm" in explore(STATIC).law


def test_accepting_a_list_without_what_it_asks_for_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those who go on could not get it any more once its only holder is dead."""
    accept = Slave.accept
    monkeypatch.setattr(
        Slave, "accept", lambda self, ballot, new_list, held: accept(self, ballot, new_list, 9)
    )
    assert "which [1] hold" in explore(STATIC).law


def test_showing_what_one_alone_holds_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Resilience, "is_decided", lambda self, slot, quorums, *also: bool(also))
    assert "was resilient" in explore(STATIC).law


@pytest.mark.soak
def test_a_majority_of_the_current_view_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two join at once: with one they make a majority of five; the other two are one of three."""

    def optimistic(self: ViewQuorums, present: Set[int]) -> bool:
        return 2 * len(self.members & present) > len(self.members)

    monkeypatch.setattr(ViewQuorums, "has_majority", optimistic)
    views = ((0, frozenset((1, 2, 3))), (1, frozenset((1, 2, 3, 4, 5))))
    assert explore(Case(views, 1, (ReformBallot(1, 1), ReformBallot(1, 2)))).law


def test_a_part_below_the_minimum_size_gets_a_verdict() -> None:
    def proposed(*minimum: Any) -> NewList | Cause:
        point = SyncPoint(4, ViewQuorums.of(0, {1, 2, 3}), minimum=MinimumSize(*minimum))
        return Attempt(ReformBallot(1, 1), {1: point}).propose(2, 2, (1, 2, 3))

    assert proposed(2, False) is Cause.TOO_FEW
    assert proposed(1, True) is Cause.TOO_FEW
    apart = proposed(1, False)
    assert isinstance(apart, NewList) and not apart.primary and apart.members == (1,)


def test_the_votes_up_to_the_synchronization_point_decide() -> None:
    """The reform site lacks the slot in which somebody voted for more."""
    known = ViewQuorums.of(0, {1, 2, 3, 4})
    answers = {
        1: SyncPoint(4, known, minimum=MinimumSize(2, False)),
        2: SyncPoint(9, known, minimum=MinimumSize(3, False)),
    }
    found = Attempt(ReformBallot(1, 1), answers).propose(2, 2, (1, 2, 3, 4))
    assert found is Cause.TOO_FEW


def test_blocks_of_the_lost_that_a_survivor_holds_are_ordered_last() -> None:
    known = ViewQuorums.of(0, {1, 2, 3})
    answers = {
        1: SyncPoint(4, known, ((3, ((1, 2),)), (2, ((7, 9),)))),
        2: SyncPoint(3, known, ((3, ((2, 3), (6, 6))),)),
    }
    found = Attempt(ReformBallot(1, 1), answers).propose(2, 2, (1, 2, 3))
    assert isinstance(found, NewList)
    assert (found.sync, found.members) == (4, (1, 2))
    assert found.leftovers == ((3, ((1, 3), (6, 6))),)


def test_any_two_quorums_of_one_view_meet() -> None:
    view = ViewQuorums.of(0, {1, 2, 3, 4})
    assert view.has_majority({1, 2, 3}) and not view.has_majority({1, 2})


def test_ranges_unite() -> None:
    assert united([(5, 6), (1, 2), (3, 3), (9, 9)]) == ((1, 3), (5, 6), (9, 9))


def test_a_member_that_joins_takes_no_view_for_stable_that_the_others_may_lack() -> None:
    room = together("a", "b", "c")
    room.obey("start rmp d")
    room.loses = lambda by, to, packet: (
        by in ("b", "c") and isinstance(packet, AckFields) and bool(room.of(PacketKind.WELCOME))
    )
    room.obey("join d")
    room.until(lambda: room.site("d")._state.trid)
    views = [len(view.members) for view in room.site("d")._state.quorums.views]
    assert views == [3, 4], "a quorum of the four alone would ignore b and c"
    assert not room.views("d"), "b and c may yet go on without a, who alone knows of d"
    room.loses = None
    room.until(lambda: room.views("d"))
    room.until(lambda: all(len(room.members(n)) == 4 for n in "abcd" if room.views(n)))
    room.until(lambda: len(room.site("d")._state.quorums.views) == 1)
