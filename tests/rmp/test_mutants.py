"""Bugs planted in RMP, each caught by the law it breaks in simulated runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plants import Mutant, Patch
from unisono.core import Effect
from unisono.parts.locks import LockTable
from unisono.protocols.rmp import token
from unisono.protocols.rmp.agreement import Attempt, NewList, Slave
from unisono.protocols.rmp.delivery import OrderedDelivery
from unisono.protocols.rmp.group_state import GroupState, MinimumSize
from unisono.protocols.rmp.holdings import ReformHoldings
from unisono.protocols.rmp.membership import Membership
from unisono.protocols.rmp.ordering import OrderingQueue
from unisono.protocols.rmp.quorums import ViewQuorums
from unisono.protocols.rmp.repair import Repair
from unisono.protocols.rmp.resilience import Resilience
from unisono.protocols.rmp.token import TokenRotation
from unisono.sim.plan import Plan
from unisono.sim.run import run

SEEDS_MAX = 25


def stable_at_one_holder_less(patch: Patch) -> None:
    suffices = Resilience._suffices

    def hasty(self: Any, one: Any, quorums: Any, primary: bool) -> Any:
        if one.k > 0:
            one = one._replace(k=one.k - 1)
        found = suffices(self, one, quorums, primary)
        return found or (self.holders(one.timestamp) if one.k == 0 else found)

    patch.setattr(Resilience, "_suffices", hasty)


def a_majority_of_one(patch: Patch) -> None:
    """What its orderer holds is reported as held by a majority."""
    reached = Resilience.reached

    def hasty(self: Any, quorums: Any, primary: bool) -> Any:
        with pytest.MonkeyPatch.context() as local:
            local.setattr(ViewQuorums, "has_majority", lambda self, present: bool(present))
            return reached(self, quorums, primary)

    patch.setattr(Resilience, "reached", hasty)


def lock_granted_to_two(patch: Patch) -> None:
    applied = LockTable.applied

    def generous(self: Any, key: Any, request: Any) -> Any:
        return applied(LockTable(), key, request)

    patch.setattr(LockTable, "applied", generous)


def minimum_size_ignored(patch: Patch) -> None:
    patch.setattr(GroupState, "minimum", lambda self: MinimumSize(1, needs_quorum=False))


def hold_rule_dropped(patch: Patch) -> None:
    """A site takes the token, and orders behind the last known slot, though slots are empty here:
    others take its ACK for a proof that it holds them."""
    make = token.next_ack

    def behind(site: int, queue: OrderingQueue, *rest: Any) -> Any:
        return make(site, queue, *rest)._replace(timestamp=queue.highest + 1)

    def hasty(self: Any, event: object) -> bool:
        latest = self._queue.latest
        mine = latest is None or latest.site == self._state.key
        return bool(self.is_named(event) and not (mine and self._queue.has_gap()))

    patch.setattr(TokenRotation, "may_accept", hasty)
    patch.setattr(token, "next_ack", behind)


def no_common_point(patch: Patch) -> None:
    """Each survivor goes on from where it is."""
    patch.setattr(ReformHoldings, "suffice", lambda self, new_list: True)
    patch.setattr(
        Slave,
        "accept",
        lambda self, ballot, new_list, held: (
            setattr(self, "accepted", (ballot, new_list)) or True  # type: ignore[func-returns-value]
        ),
    )
    begin = OrderingQueue.begin

    def wherever(self: Any, sync: int, base: int, first_holder: int) -> None:
        self.held = sync
        begin(self, sync, base, first_holder)

    patch.setattr(OrderingQueue, "begin", wherever)


def common_point_of_the_least(patch: Patch) -> None:
    make = Attempt._new_list

    def least(self: Any, *arguments: Any) -> NewList:
        found = make(self, *arguments)
        return found._replace(sync=min(answer.held for answer in self.answers.values()))

    patch.setattr(Attempt, "_new_list", least)


def leftovers_dropped_by_one(patch: Patch) -> None:
    """The first on the new list delivers nothing of what the lost left behind."""
    begin = Membership.begin_epoch

    def forgetful(self: Any, new_list: NewList, out: list[Effect]) -> None:
        if new_list.members[0] == self._state.key:
            self._delivery.messages, held = (lambda found, ordered: []), self._delivery.messages
            begin(self, new_list, out)
            self._delivery.messages = held
        else:
            begin(self, new_list, out)

    patch.setattr(Membership, "begin_epoch", forgetful)


def gaps_never_requested(patch: Patch) -> None:
    patch.setattr(Repair, "ask", lambda self, out: None)


def any_part_goes_on(patch: Patch) -> None:
    patch.setattr(GroupState, "minimum", lambda self: MinimumSize(1))
    patch.setattr(ViewQuorums, "has_majority", lambda self, present: bool(present))


def forgotten_when_one_holds_it(patch: Patch) -> None:
    patch.setattr(Resilience, "needed", lambda self: max(self._passed.values(), default=0))


def place_not_handed_on(patch: Patch) -> None:
    """A member that joins counts from the beginning."""
    start = OrderedDelivery.start
    patch.setattr(OrderedDelivery, "start", lambda self, place, state: start(self, 0, state))


MUTANTS = [
    Mutant(stable_at_one_holder_less, "stable", "chaos", 9),
    Mutant(a_majority_of_one, "stable", "chaos"),
    Mutant(lock_granted_to_two, "one_lock_holder", "chaos", 7),
    Mutant(minimum_size_ignored, "minimum_size", "chaos", 125),
    Mutant(hold_rule_dropped, "one_place", "chaos"),
    Mutant(no_common_point, "one_place", "chaos", 13),
    Mutant(common_point_of_the_least, "agreement", "chaos", 29),
    Mutant(leftovers_dropped_by_one, "virtual_synchrony", "chaos", 1),
    Mutant(gaps_never_requested, "progress", "loss", 4),
    Mutant(any_part_goes_on, "one_primary", "chaos", 1),
    Mutant(forgotten_when_one_holds_it, "progress", "loss", 49),
    Mutant(place_not_handed_on, "one_place", "mild"),
]
CASES = [
    pytest.param(mutant, id=mutant.name, marks=pytest.mark.catches(mutant.law))
    for mutant in MUTANTS
]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", CASES)
def test_a_planted_bug_is_caught(mutant: Mutant, monkeypatch: Patch) -> None:
    mutant.plant(monkeypatch)
    broken: set[str] = set()
    for seed in range(mutant.first, mutant.first + SEEDS_MAX):
        plan = Plan(
            protocol="rmp", nodes=3 + seed % 5, seed=seed, faults=mutant.faults, messages=60
        )
        broken |= set(run(plan).broken)
        if mutant.law in broken:
            return
    raise AssertionError(f"{mutant.law} was kept; broken: {sorted(broken)}")
