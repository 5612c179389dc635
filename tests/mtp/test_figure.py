"""The life of a member of MTP is whole, and runs walk it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.scenarios.stage import Stage
from unisono.core import Core, CoreConfig
from unisono.fsa import unwalked
from unisono.protocols import spec
from unisono.protocols.mtp.figure import FIGURE
from unisono.sim.plan import Plan
from unisono.sim.run import run

SCENARIOS = sorted((Path(__file__).parents[1] / "scenarios" / "mtp").glob("*.txt"))

LEADS_NOBODY = (
    "who catches up leads nobody: only a member stands, and only a leader is spoken to so"
)
UNWALKED = {
    "CATCHING_UP --Grant/use_token--> CATCHING_UP": "who catches up has not asked for a token",
    "CATCHING_UP --Nak/answer_nak--> CATCHING_UP": "seldom: only a coordinator asks another master",
    "CATCHING_UP --Deny/take_denial--> CATCHING_UP": "the master holds all that a joiner lacks",
    "CATCHING_UP --TokenRequest/take_request--> CATCHING_UP": LEADS_NOBODY,
    "CATCHING_UP --Report/take_report--> CATCHING_UP": LEADS_NOBODY,
    "CATCHING_UP --LeaveRequest/let_out--> CATCHING_UP": LEADS_NOBODY,
    "CATCHING_UP --StateRequest/give_piece--> CATCHING_UP": LEADS_NOBODY,
    "CATCHING_UP --Captured/keep_state--> CATCHING_UP": LEADS_NOBODY,
    "CATCHING_UP --Ack/count_ack--> CATCHING_UP": LEADS_NOBODY,
    "CATCHING_UP --Support/take_support--> CATCHING_UP": LEADS_NOBODY,
}
"""Arrows that neither stories nor chaos take, and why that is right."""


def test_every_event_is_decided_in_every_state() -> None:
    assert FIGURE.undecided() == []


def walked_in_chaos(seeds: range) -> list[Mapping[str, int]]:
    """What the members of simulated runs walked. Their cores are asked: a trace would be slow."""
    lives: list[Core] = []

    def make(setting: CoreConfig) -> Core:
        lives.append(spec("mtp").make(setting))
        return lives[-1]

    mtp = replace(spec("mtp"), make=make)
    for seed in seeds:
        run(Plan(protocol="mtp", spec=mtp, nodes=3 + seed % 5, seed=seed, faults="mild"))
    return [life.transition_counts() for life in lives]


@pytest.mark.slow
def test_stories_and_chaos_walk_every_arrow_that_does_something() -> None:
    """Discarding and impossibility apart: an arrow that is never taken has never been tried."""
    walks = walked_in_chaos(range(24))
    for path in SCENARIOS:
        stage = Stage()
        for block in path.read_text().split("\n\n"):
            stage.obey(block.split("----")[0])
        walks += [
            life.transition_counts() for actor in stage.actors.values() for life in actor.lives
        ]
    untried = {n for n in unwalked(FIGURE, walks) if "/stay" not in n and "/impossible" not in n}
    assert untried <= UNWALKED.keys()


def test_only_arrows_of_the_figure_are_excused() -> None:
    assert UNWALKED.keys() <= set(FIGURE.names())


def test_the_same_plan_gives_the_same_run() -> None:
    plan = Plan(protocol="mtp", nodes=4, seed=11, faults="mild", messages=60)
    first, second = run(plan), run(plan)
    assert first.history is not None
    assert second.history is not None
    assert first.history.rows == second.history.rows
