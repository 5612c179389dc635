"""Each fault at each state of each machine in each role: all end in one ring, as documented."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.ring import faults
from tests.ring.faults import FIGURES, LONG_US, SIZES, STORIES, STRIKES, Story
from tests.ring.soaking import soak

SOAK_SEEDS = int(os.environ.get("UNISONO_SEEDS") or 3000) // 100
"""Each is struck some hundred times."""

LATE_US = LONG_US + 1_000_000
"""Where no majority is left, one is back after LONG_US, and has to find the others."""


@pytest.fixture(scope="module")
def page() -> dict[int, list[faults.Row]]:
    return faults.read_page(faults.PAGE.read_text())


CASES = [
    pytest.param(
        story,
        nodes,
        id=f"{story.words.replace(' ', '_')}-{nodes}",
        # Five walk the ways of three, at twice the price: some of them here, all in a soak.
        marks=pytest.mark.slow if nodes == 3 or story in STORIES[:2] else pytest.mark.soak,
    )
    for nodes in SIZES
    for story in STORIES
]


@pytest.mark.parametrize(("story", "nodes"), CASES)
def test_every_fault_ends_in_one_ring_as_documented(
    story: Story, nodes: int, page: dict[int, list[faults.Row]]
) -> None:
    told = faults.results(nodes, story)
    assert told, "no fault was injected"
    assert not wrong(told)
    now = [outcomes(row) for row in faults.rows(told)]
    then = [outcomes(row) for row in page[nodes] if row.story == story.words]
    assert now == then, "python -m tests.ring.faults --rewrite"


def wrong(told: faults.Results) -> list[str]:
    """Those that did not end in one ring, or not soon enough."""
    return [
        f"{case.nodes} nodes, seed {case.seed}, {case.story.words}, {how.words} at {case.sight}:"
        f" {happened}"
        for case, each in told.items()
        for how, happened in zip(STRIKES, each, strict=True)
        if happened.broken or not 0 <= happened.again_us < LATE_US
    ]


@soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("nodes", SIZES)
def test_every_fault_of_many_seeds_ends_in_one_ring(nodes: int) -> None:
    todo = [(nodes, story, seed) for seed in range(SOAK_SEEDS) for story in STORIES]
    runs, found = 0, list[str]()
    with ProcessPoolExecutor(2) as pool:
        for told in pool.map(faults.results, *zip(*todo, strict=True)):
            runs += len(told) * len(STRIKES)
            found += wrong(told)
    print(f"{nodes} nodes: {runs} faults")
    assert not found, "\n".join(found)


def outcomes(row: faults.Row) -> tuple[str, ...]:
    """Times are left out: they may move by a little when a timer does."""
    return (*row[:4], *map(faults.outcome, row.cells))


def test_every_state_and_every_role_is_struck(page: dict[int, list[faults.Row]]) -> None:
    assert list(page) == list(SIZES)
    assert {row.role for rows in page.values() for row in rows} == faults.ROLES.keys()
    for rows in page.values():
        struck = {(row.machine, row.state) for row in rows}
        assert struck == {(each.name, state.name) for each in FIGURES for state in each.states()}
        assert {row.story for row in rows} == {story.words for story in STORIES}


@pytest.mark.parametrize("nodes", SIZES)
def test_a_pause_shorter_than_suspicion_brings_no_new_ring(
    nodes: int, page: dict[int, list[faults.Row]]
) -> None:
    short = [how.words for how in STRIKES].index("paused, short")
    calm = [row for row in page[nodes] if row.story == "the ring works"]
    assert calm
    assert {faults.outcome(row.cells[short]) for row in calm} == {"no ring; same life"}


def test_a_killed_holder_is_followed_by_the_one_before_it(
    page: dict[int, list[faults.Row]],
) -> None:
    """[RNG-11]"""
    for rows in page.values():
        (row,) = [r for r in rows if r[:3] == ("send", "NORMAL", "holder")]
        assert "by prior" in row.cells[0]
