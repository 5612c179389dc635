"""Two reform sites, a crash and a cut at packets of the exchange: safe, and it ends."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plants import Patch, Plant
from tests.rmp.reform_explorer import Case, Point, explore, play
from unisono.protocols.rmp.agreement import Attempt, NewList
from unisono.protocols.rmp.group_state import GroupState, MinimumSize
from unisono.protocols.rmp.reformation import RingReformation

STRIDE = 25
"""Every packet: `make explore`."""


@pytest.mark.soak
@pytest.mark.rule("RMP-11", "RMP-13")
def test_two_reform_sites_a_crash_and_a_cut() -> None:
    runs, found = explore("abcde", STRIDE)
    assert runs > 30
    assert not found, "\n".join(found)


@pytest.mark.rule("RMP-13")
@pytest.mark.parametrize("crash_at", [None, 1, 20, 40])
def test_one_crash_and_one_cut(crash_at: int | None) -> None:
    """Some of the runs, for those who wait."""
    assert play(Case("abcde", Point(crash_at, "c"), Point(30, "d"))).broken == ()


def point_of_the_least(patch: Patch) -> None:
    make = Attempt._new_list

    def least(self: Attempt, *arguments: Any) -> NewList:
        found = make(self, *arguments)
        return found._replace(sync=min(answer.held for answer in self.answers.values()))

    patch.setattr(Attempt, "_new_list", least)


def any_part_decides(patch: Patch) -> None:
    patch.setattr(Attempt, "has_quorum", lambda self: True)
    patch.setattr(Attempt, "quorum_confirmed", lambda self: bool(self.proposal and self.confirmed))
    patch.setattr(GroupState, "minimum", lambda self: MinimumSize(1))


def nobody_tries_again(patch: Patch) -> None:
    patch.setattr(RingReformation, "abort", lambda self, event, out: None)


@pytest.mark.parametrize(
    ("plant", "points"),
    [(point_of_the_least, (40, 30)), (any_part_decides, (40, 1)), (nobody_tries_again, (20, 30))],
)
def test_a_planted_bug_is_caught(plant: Plant, points: tuple[int, int], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        assert play(Case("abcde", Point(points[0], "c"), Point(points[1], "d"))).broken == ()
