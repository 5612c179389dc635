"""The life of a member of MTP is whole, and runs walk it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scenarios.walking import in_runs, in_scenarios
from unisono.fsa import unwalked
from unisono.protocols.mtp.figure import FIGURE
from unisono.sim.plan import Plan
from unisono.spec import ProtocolSpec

LEADS_NOBODY = "a joiner that catches up does not lead: only a leader gets it"
UNWALKED = {
    "CATCHING_UP --Grant/use_token--> CATCHING_UP": "a joiner has not requested a token",
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


def mild(mtp: ProtocolSpec) -> Iterator[Plan]:
    for seed in range(24):
        yield Plan(protocol="mtp", spec=mtp, nodes=3 + seed % 5, seed=seed, faults="mild")


@pytest.mark.slow
def test_stories_and_chaos_walk_every_arrow_that_does_something() -> None:
    """Discarding and impossibility apart: an arrow that is never taken has never been tried."""
    walks = in_runs("mtp", mild) + in_scenarios("mtp")
    untried = {n for n in unwalked(FIGURE, walks) if "/stay" not in n and "/impossible" not in n}
    assert untried <= UNWALKED.keys()


def test_only_arrows_of_the_figure_are_excused() -> None:
    assert UNWALKED.keys() <= set(FIGURE.names())
