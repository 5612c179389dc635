"""The figure of rmcast is whole, and what runs walk it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.stage import Stage
from unisono.fsa import unwalked
from unisono.protocols.rmcast.figure import FIGURE
from unisono.sim.plan import Plan
from unisono.sim.run import run

SCENARIOS = sorted((Path(__file__).parents[1] / "scenarios" / "rmcast").glob("*.txt"))


def test_every_event_is_decided_in_every_state() -> None:
    assert FIGURE.undecided() == []


def test_the_readme_shows_the_figure_as_it_is(rewrite: bool) -> None:
    path = Path("src") / "unisono" / "protocols" / "rmcast" / "README.md"
    text = path.read_text(encoding="utf-8")
    if rewrite:
        before, _, rest = text.partition("```mermaid\n")
        _, fence, after = rest.partition("```\n")
        text = f"{before}```mermaid\n{FIGURE.mermaid()}\n{fence}{after}"
        path.write_text(text, encoding="utf-8", newline="\n")
    assert FIGURE.mermaid() in text, "read it, then pytest --rewrite"


@pytest.mark.slow
def test_stories_and_chaos_walk_every_arrow_that_does_something() -> None:
    """Discarding and impossibility apart: an arrow that is never taken has never been tried."""
    walks = []
    for seed in range(24):
        plan = Plan(protocol="rmcast", nodes=5, seed=seed, faults="mild", detail=True)
        outcome = run(plan)
        assert outcome.history is not None
        walks.append({r.detail: 1 for r in outcome.history.rows if r.kind == "arrow" and r.detail})
    for path in SCENARIOS:
        stage = Stage()
        for block in path.read_text().split("\n\n"):
            stage.obey(block.split("----")[0])
        walks += [
            life.transition_counts() for actor in stage.actors.values() for life in actor.lives
        ]
    untried = [n for n in unwalked(FIGURE, walks) if "/stay" not in n and "/impossible" not in n]
    assert untried == []


def test_the_same_plan_gives_the_same_run() -> None:
    plan = Plan(protocol="rmcast", nodes=4, seed=11, faults="mild", messages=60)
    first, second = run(plan), run(plan)
    assert first.history is not None
    assert second.history is not None
    assert first.history.rows == second.history.rows
