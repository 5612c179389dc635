"""The figure of the membership is whole, and the README shows it as it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.scenarios.walking import in_runs, in_scenarios
from unisono.fsa import unwalked
from unisono.protocols.transis.figure import FIGURE
from unisono.sim.plan import Plan


def test_every_event_is_decided_in_every_state() -> None:
    assert FIGURE.undecided() == []


def test_the_readme_shows_the_figure_as_it_is(rewrite: bool) -> None:
    path = Path("src") / "unisono" / "protocols" / "transis" / "README.md"
    text = path.read_text(encoding="utf-8")
    if rewrite:
        before, _, rest = text.partition("```mermaid\n")
        _, _, after = rest.partition("```")
        path.write_text(f"{before}```mermaid\n{FIGURE.mermaid()}\n```{after}", encoding="utf-8")
    assert FIGURE.mermaid() in path.read_text(encoding="utf-8")


@pytest.mark.slow
def test_stories_and_chaos_walk_every_arrow_that_does_something() -> None:
    """Discarding apart: an arrow that is never taken has never been tried."""
    plans = [Plan(protocol="transis", nodes=5, seed=seed, faults="chaos") for seed in range(12)]
    walks = in_runs("transis", lambda spec: (replace(each, spec=spec) for each in plans))
    walks += in_scenarios("transis")
    assert [name for name in unwalked(FIGURE, walks) if "/stay" not in name] == []
