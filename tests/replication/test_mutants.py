"""Bugs planted in the replication algorithm, and the law that finds each under chaos."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.replication.test_chaos import broken
from unisono.core import Persist
from unisono.services.replication import component, exchange, voting
from unisono.services.replication.component import Component
from unisono.services.replication.exchange import KnowledgeExchange
from unisono.services.replication.order import UpdateOrder
from unisono.services.replication.records import (
    CheckpointRecord,
    LogCheckpoint,
    Update,
    record_bytes,
)
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


def logs_no_runs(updates: list[Update], out: list[Any]) -> None:
    """That logged updates are green is not logged."""
    updates.clear()


def takes_any(self: UpdateOrder, update: Update) -> bool:
    """What comes is green, known or not, with a gap before it or without."""
    self.green += 1
    self.greens[update.submitter] = update.number
    self._red.pop(update.submitter, None)
    self.cuts[update.submitter] = max(update.number, self.cuts.get(update.submitter, 0))
    return True


def is_always_due(self: Component, update: Update) -> bool:
    return True


def adopts_in_silence(self: Component, event: LogCheckpoint, out: list[Any]) -> None:
    """The order goes on after a checkpoint that the application never gets."""
    if event.position > self._order.green:
        self._order.adopt(event)
        out.append(Persist(record_bytes(CheckpointRecord(event))))


def stays_in_its_epoch(self: KnowledgeExchange, component: str) -> None:
    """The members have changed: states are exchanged under the name of the exchange before."""
    self._clear()


def leaves_out_the_removed(self: KnowledgeExchange, members: Any, previous: Any) -> Any:
    """One that is taken out has no vote at once, though a primary component may need it."""
    return tuple(name for name in self.sound if name in members)


mark_green, reds = Component.mark_green, UpdateOrder.reds


@pytest.mark.parametrize(
    ("law", "places", "bug", "seed"),
    [
        ("green_prefix", [(voting, "vulnerable_in"), (exchange, "vulnerable_in")],
         nobody_is_vulnerable, 57),
        ("green_prefix", [(component, "has_majority")], anybody_may_lead, 2),
        ("green_prefix", [(PrimaryChoice, "mark_yellow")], forgets_yellow, 77),
        ("stable_is_logged", [(Component, "mark_green")], counts_at_once, 0),
        ("kept_to_the_end", [(UpdateOrder, "reds")], newest_first, 0),
        ("green_prefix", [(Component, "is_here")], late_ones_count, 28),
        ("durable", [(component, "_log_runs")], logs_no_runs, 14),
        ("red_fifo", [(UpdateOrder, "mark_green")], takes_any, 92),
        ("applied_once", [(UpdateOrder, "mark_green")], takes_any, 68),
        ("green_without_gap", [(Component, "take_checkpoint")], adopts_in_silence, 123),
        ("kept_to_the_end", [(KnowledgeExchange, "begin_again")], stays_in_its_epoch, 170),
        ("kept_to_the_end", [(KnowledgeExchange, "voters")], leaves_out_the_removed, 168),
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
