"""Bugs planted in the replication algorithm, and the law that finds each under chaos."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.replication.test_chaos import broken
from unisono.services.replication import component, exchange, voting
from unisono.services.replication.component import Component
from unisono.services.replication.order import UpdateOrder
from unisono.services.replication.records import Update
from unisono.services.replication.voting import PrimaryChoice


def nobody_is_vulnerable(votes: Any, primary: Any) -> dict[str, Any]:
    """After a crash of all, those that are back go on without the others."""
    return {}


def anybody_may_lead(names: Any, previous: Any) -> bool:
    """Every component is primary."""
    return bool(names)


def forgets_yellow(self: PrimaryChoice, updates: Sequence[Update]) -> None:
    """What came at the end of a component is sorted with the rest."""


def counts_at_once(self: Component, updates: Any, out: Any) -> None:
    """Stable is what is ordered, logged or not."""
    mark_green(self, updates, out)
    self._lines.write(self._order.green + 1)


def newest_first(self: UpdateOrder) -> list[Update]:
    """Red updates become green in no order of their submitters."""
    return sorted(reds(self), key=lambda each: -each.number)


def late_ones_count(self: Component, message: Any) -> bool:
    """Messages of an earlier component are taken for new ones."""
    return True


mark_green, reds = Component.mark_green, UpdateOrder.reds


@pytest.mark.parametrize(
    ("law", "places", "bug", "seed"),
    [
        ("green_prefix", [(voting, "vulnerable_in"), (exchange, "vulnerable_in")],
         nobody_is_vulnerable, 25),
        ("green_prefix", [(component, "has_majority")], anybody_may_lead, 0),
        ("green_prefix", [(PrimaryChoice, "mark_yellow")], forgets_yellow, 186),
        ("stable_is_logged", [(Component, "mark_green")], counts_at_once, 0),
        ("kept_to_the_end", [(UpdateOrder, "reds")], newest_first, 0),
        ("green_prefix", [(Component, "is_here")], late_ones_count, 0),
    ],
)  # fmt: skip
def test_a_planted_bug_is_found(
    law: str,
    places: list[tuple[Any, str]],
    bug: Callable[..., Any],
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for owner, name in places:
        monkeypatch.setattr(owner, name, bug)
    assert any(law in each for each in broken([seed]))
