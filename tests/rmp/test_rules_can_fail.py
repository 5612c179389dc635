"""Each rule of RMP is taken away once, and the test that shows it fails.

RMP-20 is of the services, and RMP-21 of the network: they are shown there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from tests.plants import Patch, Plant, once_together, rules_of, without
from tests.rmp import test_flow as flow
from tests.rmp import test_rules_group as group
from tests.rmp import test_rules_order as order
from tests.rmp import test_rules_reform as reform
from unisono.core import Effect
from unisono.model import Change
from unisono.parts import locks
from unisono.parts.message_runs import MessageRuns
from unisono.protocols.rmp import ordering, sources, token
from unisono.protocols.rmp.agreement import Attempt, NewList, ReformBallot, Slave
from unisono.protocols.rmp.core import Rmp
from unisono.protocols.rmp.flow import CongestionWindow, RetransmissionTimer
from unisono.protocols.rmp.group_state import Applied, GroupState, MinimumSize
from unisono.protocols.rmp.membership import Membership
from unisono.protocols.rmp.ordering import OrderingQueue
from unisono.protocols.rmp.parameters import Parameters
from unisono.protocols.rmp.reformation import RingReformation
from unisono.protocols.rmp.repair import Repair
from unisono.protocols.rmp.resilience import Resilience
from unisono.protocols.rmp.sources import Sources
from unisono.protocols.rmp.state import TokenRing
from unisono.protocols.rmp.token import TokenRotation
from unisono.protocols.rmp.token_watch import TokenWatch


def keep_the_token(patch: Patch) -> None:
    patch.setattr(token, "successor", lambda site, ring: site)


def two_slots_too_far(patch: Patch) -> None:
    make = ordering.next_ack

    def far(*arguments: Any) -> Any:
        ack = make(*arguments)
        return ack._replace(timestamp=ack.timestamp + 2)

    patch.setattr(token, "next_ack", far)


def accept_with_gaps(patch: Patch) -> None:
    patch.setattr(TokenRotation, "may_accept", TokenRotation.is_named)
    patch.setattr(OrderingQueue, "has_gap", lambda self: False)


def origin_alone_answers(self: Repair, origin: int, number: int, round: int) -> bool:
    return origin == self._state.key


def stays_at_rest(self: TokenRotation, event: object, out: list[Effect]) -> None:
    """Nothing passes a token that nobody needs."""


def all_in_order(patch: Patch) -> None:
    """Nothing is delivered before its timestamp."""
    take = Sources.take

    def late(self: Sources, packet: Any) -> list[Any]:
        self.held_back = [*getattr(self, "held_back", []), *take(self, packet)]  # type: ignore[attr-defined]
        return []

    patch.setattr(Sources, "take", late)


def source_order_ignored(patch: Patch) -> None:
    put, read = Sources.put, sources.read_block

    def at_once(*arguments: Any) -> Any:
        contents = read(*arguments)
        contents.at_once.extend(contents.in_sequence)
        contents.in_sequence.clear()
        return contents

    def hasty(self: Sources, key: int, block: Any) -> Any:
        is_early = self.by_key[key].passed + 1 < block.s
        patch.setattr(sources, "read_block", at_once if is_early else read)
        return put(self, key, block)

    patch.setattr(Sources, "put", hasty)


def one_holder_less(patch: Patch) -> None:
    suffices = Resilience._suffices

    def hasty(self: Any, one: Any, quorums: Any, primary: bool) -> Any:
        holders = self.holders(one.timestamp)
        if len(holders) >= max(1, (one.k if one.k > 0 else len(self._passed)) - 1):
            return holders
        return suffices(self, one, quorums, primary)

    patch.setattr(Resilience, "_suffices", hasty)


def every_message_stable(patch: Patch) -> None:
    read = Rmp._read_order

    def eager(self: Any, out: list[Effect]) -> None:
        messages = self._delivery.messages

        def noted(found: Any, ordered: bool) -> Any:
            placed = messages(found, ordered=ordered)
            if ordered and placed:
                self._resilience.expect(self._queue.held, 1, MessageRuns(placed))
            return placed

        self._delivery.messages = noted
        read(self, out)
        del self._delivery.messages

    patch.setattr(Rmp, "_read_order", eager)


def everything_is_global(self: Change, me: Any) -> tuple[Change, ...]:
    return (self,)


def views_too_late(patch: Patch) -> None:
    """One member is shown each view when the next change comes."""
    show = Membership._show
    waiting: list[Any] = []

    def late(self: Any, *arguments: Any) -> None:
        if self._state.key != self._state.token_list[1]:
            show(self, *arguments)
            return
        for each in waiting:
            show(self, *each)
        waiting[:] = [arguments]

    patch.setattr(Membership, "_show", late)


def locks_outlive(self: GroupState, keys: Any, what: Any) -> Applied:
    gone = tuple(self.entries[key].member for key in keys)
    entries = {key: entry for key, entry in self.entries.items() if key not in keys}
    return Applied(self._replace(entries=entries), (Change(what, gone),) if gone else ())


def smallest_vote(self: GroupState) -> MinimumSize:
    return MinimumSize(1, needs_quorum=any(e.vote == -2 for e in self.entries.values()))


def common_point_of_the_least(patch: Patch) -> None:
    make = Attempt._new_list

    def least(self: Attempt, *arguments: Any) -> NewList:
        found = make(self, *arguments)
        return found._replace(sync=min(answer.held for answer in self.answers.values()))

    patch.setattr(Attempt, "_new_list", least)


def everyone_who_answers(patch: Patch) -> None:
    make = Attempt._new_list

    def generous(self: Attempt, epoch: int, trid: int, order: Any, primary: bool) -> NewList:
        order = tuple(order)
        found = make(self, epoch, trid, order, primary)
        return found._replace(members=tuple(site for site in order if site in self.answers))

    patch.setattr(Attempt, "_new_list", generous)


def accepts_early(self: Slave, ballot: ReformBallot, new_list: NewList, held: int) -> bool:
    self.promised, self.accepted = ballot, (ballot, new_list)
    return True


def same_wait(self: RingReformation, event: object, out: list[Effect]) -> None:
    self._attempt, self._list = None, None
    self._outgoing.arm(reform.Timer.REFORM, 100_000, out)


def same_trid(patch: Patch) -> None:
    find = RingReformation._find_list

    def unchanged(self: Any) -> Any:
        found = find(self)
        if isinstance(found, NewList):
            found = self._attempt.proposal = found._replace(trid=self._state.trid)
        return found

    patch.setattr(RingReformation, "_find_list", unchanged)


def any_trid(patch: Patch) -> None:
    def take(self: Any, kind: int, trid: int, packet: Any, source: Any, out: Any) -> None:
        self._take_own_ring(kind, packet, source, out)

    patch.setattr(Rmp, "_take_foreign", take)


def scope_kept(patch: Patch) -> None:
    change = GroupState._requested

    def stubborn(self: GroupState, key: int, what: Any) -> Applied:
        found = change(self, key, what)
        return found._replace(state=found.state._replace(hops=self.hops))

    patch.setattr(GroupState, "_requested", stubborn)


def lock_for_all(patch: Patch) -> None:
    applied = locks.LockTable.applied

    def generous(self: Any, key: Any, request: Any) -> Any:
        return applied(locks.LockTable(), key, request)

    patch.setattr(locks.LockTable, "applied", generous)


def vote_unbounded(patch: Patch) -> None:
    change = GroupState._requested

    def any_vote(self: GroupState, key: int, what: Any) -> Applied:
        return change(self, key, what)._replace(denied="")

    patch.setattr(GroupState, "_requested", any_vote)


def always_primary(patch: Patch) -> None:
    reached = Resilience.reached
    patch.setattr(Resilience, "reached", lambda self, q, primary: reached(self, q, True))


# fmt: off
PLANTS: list[tuple[str, Callable[..., None], Plant]] = [
    ("RMP-1", order.test_each_ack_continues_the_one_before_and_the_token_goes_round,
     once_together(order, keep_the_token)),
    ("RMP-1", order.test_the_timestamps_follow_the_list_of_the_ack,
     once_together(order, two_slots_too_far)),
    ("RMP-2", order.test_a_site_with_an_empty_slot_does_not_accept_the_token, accept_with_gaps),
    ("RMP-2", order.test_a_rotation_proves_that_all_hold_what_was_ordered_before, one_holder_less),
    ("RMP-3", order.test_an_empty_slot_is_requested_by_a_multicast_nack, without(Repair, "ask")),
    ("RMP-3", order.test_any_site_that_has_it_may_answer,
     without(Repair, "_should_answer", origin_alone_answers)),
    ("RMP-3", order.test_a_missing_ack_is_requested_too,
     without(OrderingQueue, "acks", lambda self, first, last: [])),
    ("RMP-4", order.test_a_quiet_token_moves_on_by_null_acks_after_a_time_out,
     once_together(order, without(TokenRotation, "acknowledge", stays_at_rest))),
    ("RMP-5", order.test_figure_1_at_three_sites, once_together(order, two_slots_too_far)),
    ("RMP-6", order.test_each_level_is_delivered_as_early_as_it_promises, all_in_order),
    ("RMP-6", order.test_source_order_waits_for_the_source_and_reliable_does_not, all_in_order),
    ("RMP-6", order.test_source_order_waits_for_the_source_and_reliable_does_not,
     source_order_ignored),
    ("RMP-7", order.test_order_comes_first_and_resilience_with_the_passes_of_the_token,
     one_holder_less),
    ("RMP-7", order.test_only_what_asked_for_it_is_reported_stable, every_message_stable),
    ("RMP-8", group.test_a_view_reports_what_happened_and_where,
     without(Change, "seen_by", everything_is_global)),
    ("RMP-8", group.test_views_stand_at_the_same_place_among_the_messages,
     once_together(group, views_too_late)),
    ("RMP-8", group.test_a_change_that_its_token_site_alone_has_ordered_is_shown_to_nobody,
     without(Resilience, "is_decided", lambda self, *arguments: True)),
    ("RMP-8", group.test_one_whose_removal_nobody_else_has_is_excluded_and_has_not_left,
     without(Membership, "has_left", lambda self: self.removed_at is not None)),
    ("RMP-8", group.test_one_whose_removal_the_others_keep_has_left_though_it_hears_no_ack,
     once_together(group, without(TokenRing, "decide"))),
    ("RMP-9", group.test_each_of_256_locks_has_one_holder, lock_for_all),
    ("RMP-9", group.test_locks_of_a_lost_member_are_released_in_the_order,
     without(GroupState, "_without", locks_outlive)),
    ("RMP-10", group.test_the_largest_vote_is_the_minimum_size,
     without(GroupState, "minimum", smallest_vote)),
    ("RMP-10", group.test_a_vote_beyond_the_group_is_refused, vote_unbounded),
    ("RMP-10", group.test_a_part_goes_on_by_a_small_vote_of_all_and_claims_no_majority,
     always_primary),
    ("RMP-11", reform.test_a_reformation_has_two_phases_and_slaves_answer_the_reform_site,
     without(Attempt, "everyone_confirmed", lambda self: self.proposal is not None)),
    ("RMP-11", reform.test_the_recovery_follows_all_that_a_survivor_has_ordered,
     common_point_of_the_least),
    ("RMP-12", reform.test_below_the_minimum_size_the_verdict_is_failure_and_the_site_is_idle,
     without(RingReformation, "give_verdict")),
    ("RMP-12", reform.test_a_member_that_delivered_what_the_others_cannot_get_stops,
     without(RingReformation, "leaves_me_out", lambda self, event: False)),
    ("RMP-13", reform.test_when_the_reform_site_dies_another_begins,
     without(RingReformation, "abort")),
    ("RMP-13", reform.test_sites_of_an_attempt_that_was_given_up_wait_for_different_times,
     without(RingReformation, "wait_randomly", same_wait)),
    ("RMP-13", reform.test_two_reform_sites_end_in_one_list,
     without(Slave, "promise", lambda self, ballot: True)),
    ("RMP-14", reform.test_when_all_sites_answer_the_ring_goes_on_as_it_was,
     without(RingReformation, "is_false_alarm", lambda self, event: False)),
    ("RMP-15", reform.test_a_new_list_names_nobody_who_was_not_a_member, everyone_who_answers),
    ("RMP-16", reform.test_each_reformation_renames_the_ring_and_packets_of_others_are_dropped,
     same_trid),
    ("RMP-16", reform.test_packets_of_another_ring_are_counted_and_change_nothing,
     once_together(reform, any_trid)),
    ("RMP-17", reform.test_a_site_is_faulty_after_r_tries_by_the_scope,
     without(Parameters, "tries_within", lambda self, hops: 2)),
    ("RMP-17", reform.test_the_papers_numbers_are_the_defaults,
     without(Parameters, "tries_within", lambda self, hops: 10)),
    ("RMP-17", reform.test_a_fault_is_suspected_after_the_token_stood_still,
     without(TokenWatch, "is_silent")),
    ("RMP-18", flow.test_a_time_out_doubles_the_period_until_something_is_measured,
     without(RetransmissionTimer, "back_off")),
    ("RMP-18", flow.test_the_period_follows_round_trips, without(RetransmissionTimer, "measure")),
    ("RMP-18", flow.test_the_window_doubles_a_round_trip_until_it_loses_then_grows_by_some_packets,
     without(CongestionWindow, "lost")),
    ("RMP-19", group.test_the_scope_changes_at_one_place_for_all, scope_kept),
]
# fmt: on
CASES = [
    pytest.param(*row, id=f"{row[0]} {row[1].__name__[5:]} {at}") for at, row in enumerate(PLANTS)
]
GIVEN: dict[str, Any] = {
    "k": 3,
    "after": 3,
    "vote": 4,
    "stops": True,
    "kind": reform.PacketKind.SYNC,
    "hops": 8,
    "tries": 12,
}
"""The case of a test that has several."""


def test_every_rule_is_taken_away_once() -> None:
    assert {rule for rule, _, _ in PLANTS} == {f"RMP-{number}" for number in range(1, 20)}
    for rule, shown, _ in PLANTS:
        assert rule in rules_of(shown, inspect.getmodule(shown)), shown.__name__


@pytest.mark.parametrize(("rule", "shown", "plant"), CASES)
def test_a_rule_is_missed_when_it_is_gone(
    rule: str, shown: Callable[..., None], plant: Plant, monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    wanted = {name: GIVEN[name] for name in inspect.signature(shown).parameters}
    with pytest.raises((AssertionError, ValueError, LookupError)) as caught:
        shown(**wanted)
    assert "not together" not in str(caught.value), "it never came to what it shows"
