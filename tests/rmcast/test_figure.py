"""The figure of rmcast is whole, and what runs walk it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.scenarios.walking import in_runs, in_scenarios
from unisono.fsa import unwalked
from unisono.protocols.rmcast.figure import FIGURE
from unisono.sim.plan import Plan


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
    plans = [Plan(protocol="rmcast", nodes=5, seed=seed, faults="mild") for seed in range(24)]
    walks = in_runs("rmcast", lambda spec: (replace(each, spec=spec) for each in plans))
    walks += in_scenarios("rmcast")
    untried = [n for n in unwalked(FIGURE, walks) if "/stay" not in n and "/impossible" not in n]
    assert untried == []
