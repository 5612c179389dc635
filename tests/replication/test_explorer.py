"""Some of the ways through two changes of view with a crash at a write; the explorer takes all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.replication.explorer import Broken, Explorer
from tests.replication.test_mutants import anybody_may_lead, logs_no_runs
from unisono.services.replication import component


def test_some_ways_through_two_changes_of_view_keep_the_laws() -> None:
    explorer = Explorer(thin=25, worlds_max=6)
    explorer.explore()
    assert explorer.changes > 1616 and explorer.ends == 6


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_all_ways_through_two_changes_of_view_keep_the_laws() -> None:
    Explorer().explore()


@pytest.mark.parametrize(
    ("name", "bug"), [("has_majority", anybody_may_lead), ("_log_runs", logs_no_runs)]
)
def test_a_planted_bug_is_found(
    name: str, bug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(component, name, bug)
    with pytest.raises(Broken):
        Explorer(thin=25, worlds_max=6).explore()
