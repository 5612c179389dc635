"""Each rule of Transis is taken away once, and the test that shows it fails.

TRA-11 has its bugs beside its tests; TRA-19 is shown with daemons.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from tests.plants import Patch, Plant, once_together, rules_of, without
from tests.transis import test_agreed as agreed
from tests.transis import test_graph as graph
from tests.transis import test_primary as primary
from tests.transis import test_rules as rules
from unisono.protocols.transis import primary as voting
from unisono.protocols.transis.agreed import AllAckOrder, TokenOrder
from unisono.protocols.transis.failure import SilenceWatch
from unisono.protocols.transis.flow import Flow
from unisono.protocols.transis.flush import Flush
from unisono.protocols.transis.graph import CausalGate, CausalGraph
from unisono.protocols.transis.membership import Membership
from unisono.protocols.transis.merging import ComponentSearch
from unisono.protocols.transis.ordering import Ordering
from unisono.protocols.transis.repair import Repair
from unisono.protocols.transis.suggestion import Suggestion


def own_alone(self: CausalGraph) -> tuple[int, ...]:
    passed = self._gate.passed
    return tuple(last * (rank == self._me) for rank, last in enumerate(passed))


def what_its_sender_shows(self: CausalGraph, rank: int) -> int:
    return self._windows[rank].highest


def sender_alone_answers(self: Repair, rank: int, index: int) -> int:
    return rank


def what_i_hold(self: CausalGraph) -> tuple[int, ...]:
    return self.acks()


def closed_at_once(patch: Patch) -> None:
    """The first stage stops the messages."""
    begin = Membership._begin

    def closing(self: Membership, *arguments: Any) -> None:
        if self._flush.ordering is not None:
            self._flush.ordering.close()
        begin(self, *arguments)

    patch.setattr(Membership, "_begin", closing)


def no_majority_needed(patch: Patch) -> None:
    patch.setattr(voting, "has_majority", lambda names, previous: True)


# fmt: off
PLANTS: list[tuple[str, Callable[..., None], Plant]] = [
    ("TRA-1", graph.test_an_answer_enters_behind_what_it_answers,
     without(CausalGraph, "acks", own_alone)),
    ("TRA-2", graph.test_a_lost_vertex_is_known_from_who_acknowledges_it,
     without(CausalGraph, "_last_known", what_its_sender_shows)),
    ("TRA-3", rules.test_what_is_lost_is_sent_again_only_when_asked_for, without(Repair, "ask")),
    ("TRA-3", rules.test_whoever_has_it_answers_for_its_sender,
     without(Repair, "_holder", sender_alone_answers)),
    ("TRA-4", rules.test_a_member_with_nothing_to_say_says_that_it_is_alive,
     once_together(rules, without(Flow, "speak"))),
    ("TRA-5", rules.test_what_one_delivers_all_that_stay_deliver,
     once_together(rules, without(Repair, "answer"))),
    ("TRA-6", graph.test_an_answer_enters_behind_what_it_answers,
     without(CausalGate, "is_open", lambda self, vertex: True)),
    ("TRA-7", agreed.test_no_vertex_that_comes_later_contradicts_what_is_agreed,
     without(AllAckOrder, "_first_to_come", agreed.MajorityOrder._first_to_come)),
    ("TRA-8", graph.test_what_all_hold_is_known_and_forgotten,
     without(CausalGraph, "received_by_all", what_i_hold)),
    ("TRA-8", rules.test_a_safe_message_waits_until_all_are_known_to_have_it,
     without(Ordering, "_is_held_by", lambda self, vertex, floor: True)),
    ("TRA-9", agreed.test_no_vertex_that_comes_later_contradicts_what_is_agreed,
     without(AllAckOrder, "_first_to_come", agreed.CarelessOrder._first_to_come)),
    ("TRA-10", agreed.test_only_the_holder_emits_and_the_token_revolves,
     without(TokenOrder, "may_emit", lambda self: True)),
    ("TRA-11", graph.test_what_all_hold_is_known_and_forgotten,
     without(CausalGraph, "window", lambda self: 0)),
    ("TRA-12", rules.test_a_change_is_suggested_then_agreed_and_has_its_place_in_the_stream,
     once_together(rules, without(Flush, "_end_former"))),
    ("TRA-13", graph.test_the_survivors_of_a_configuration_hold_the_same,
     without(CausalGraph, "limit")),
    ("TRA-13", rules.test_a_last_message_is_delivered_by_all_survivors_or_by_none,
     once_together(rules, without(Repair, "ask"))),
    ("TRA-14", rules.test_messages_flow_while_the_membership_changes, closed_at_once),
    ("TRA-15", rules.test_each_component_goes_on_with_a_view_of_its_own,
     without(SilenceWatch, "silent", lambda self: [])),
    ("TRA-16", rules.test_components_merge_many_at_once_and_the_view_says_what_was_sent_elsewhere,
     without(ComponentSearch, "greet")),
    ("TRA-16", rules.test_links_that_work_one_way_do_not_merge_components,
     without(Suggestion, "lists_me_since", lambda self, packet, stamp: True)),
    ("TRA-17", agreed.test_survivors_end_a_configuration_alike,
     without(AllAckOrder, "_stop_waiting_for")),
    ("TRA-18", primary.test_who_may_form, no_majority_needed),
]
# fmt: on
CASES = [
    pytest.param(*row, id=f"{row[0]} {row[1].__name__[5:]} {at}") for at, row in enumerate(PLANTS)
]
GIVEN: dict[str, Any] = {"lost": "c", "told": primary.those("cd", primary.OF_FOUR), "number": None}
"""The case of a test that has several."""


def test_every_rule_is_taken_away_once() -> None:
    assert {rule for rule, _, _ in PLANTS} == {f"TRA-{number}" for number in range(1, 19)}
    for rule, shown, _ in PLANTS:
        assert rule in rules_of(shown, inspect.getmodule(shown)), shown.__name__


@pytest.mark.parametrize(("rule", "shown", "plant"), CASES)
def test_a_rule_is_missed_when_it_is_gone(
    rule: str, shown: Callable[..., None], plant: Plant, monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    wanted = {name: GIVEN[name] for name in inspect.signature(shown).parameters}
    with pytest.raises((AssertionError, ValueError, LookupError)):
        shown(**wanted)
