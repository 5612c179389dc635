"""Each kind of fault beyond the mild ones bites: a bug is planted that others do not show."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sim.toys import (
    ByLevel,
    Complete,
    Deaf,
    Expelling,
    Growing,
    Hasty,
    Open,
    Prompt,
    Punctual,
    Rising,
    Suspicious,
    Toy,
    Transitive,
    Trusting,
    TwoRecords,
    Working,
    spec_of,
)
from unisono.errors import Misuse
from unisono.model import Service
from unisono.sim import Outcome, Plan, plan_from_json, plan_to_json, run
from unisono.sim.plan import FaultEvent, LinkPlan, Weather

SECOND = 1_000_000
CRASHES = tuple(
    FaultEvent("crash", at_us, 40_000, (at_us // 10_007 % 3,))
    for at_us in range(310_000, 3 * SECOND, 190_007)
)
"""Crashes as they are drawn without aiming, and many."""

SPLITS = tuple(
    FaultEvent("split", at_us, 300_000, (alone,), tuple({0, 1, 2} - {alone}))
    for at_us in range(600_000, 3 * SECOND, 500_000)
    for alone in (at_us // 500_000 % 3,)
)
"""Each node alone for a while."""

Case = tuple[type[Toy], str, Weather, Weather]


def weather(*faults: FaultEvent, **more: object) -> Weather:
    calm = Weather(link=LinkPlan("constant", 200, 0), schedule=faults, with_state=False)
    return replace(calm, **more)  # type: ignore[arg-type]


def lasting(*faults: FaultEvent) -> Weather:
    return weather(*faults, fault_us=10 * SECOND)


def aimed(kind: str, **at: object) -> FaultEvent:
    return FaultEvent(kind, 500_000, 100_000, (0, 1, 2), **at)  # type: ignore[arg-type]


CASES: dict[str, Case] = {
    "between two effects": (
        TwoRecords, "no_crash", weather(*CRASHES),
        weather(aimed("crash", at_effect="after Persist", nth=3)),
    ),
    "before an effect": (
        Hasty, "no_crash", weather(*CRASHES),
        weather(aimed("crash", at_effect="before Persist", nth=7)),
    ),
    "a torn record": (
        Hasty, "no_crash", weather(*CRASHES),
        weather(aimed("torn", at_effect="after Persist", nth=5)),
    ),
    "a full disk": (
        Hasty, "no_crash", weather(*CRASHES), weather(FaultEvent("full", SECOND, 200_000, (1,))),
    ),
    "a node that is not durable": (
        Trusting, "no_crash", weather(*CRASHES),
        weather(*CRASHES, durable=(True, False, True)),
    ),
    "a packet from another time": (
        Prompt, "no_crash",
        weather(*SPLITS, link=LinkPlan(
            reorder_ppm=300_000, reorder_us=100_000, duplicate_ppm=50_000)),
        weather(link=LinkPlan(hold_ppm=100_000, hold_us=8 * SECOND)),
    ),
    "at an arrow": (
        Working, "no_crash", weather(*CRASHES),
        weather(aimed("crash", at_arrow="--> BUSY", done=1000)),
    ),
    "at a view": (
        Growing, "no_crash", weather(*CRASHES), weather(aimed("crash", at_view=3)),
    ),
    "a link that flaps": (
        Suspicious, "no_crash", weather(*SPLITS),
        lasting(FaultEvent("flap", 0, 10 * SECOND, (0,), (1,), every_us=200_000)),
    ),
    "cuts that rotate": (
        Transitive, "no_crash", weather(*SPLITS),
        lasting(FaultEvent("rotate", SECOND, 9 * SECOND, (0, 1, 2), every_us=2 * SECOND)),
    ),
    "one that is isolated": (
        Suspicious, "no_crash", weather(*SPLITS),
        lasting(*(
            FaultEvent("isolate", at_us, 250_000, (0,)) for at_us in range(0, 9 * SECOND, 500_000)
        )),
    ),
    "a clock that runs fast": (
        Punctual, "no_crash", weather(),
        weather(FaultEvent("drift", SECOND, SECOND, (0,), ppm=400_000)),
    ),
    "a clock that jumps": (
        Punctual, "no_crash", weather(), weather(FaultEvent("jump", SECOND, SECOND, (0,))),
    ),
    "a clock that stands": (
        Punctual, "no_crash", weather(), weather(FaultEvent("stand", SECOND, SECOND, (0,))),
    ),
    "a clock set back": (
        Rising, "no_crash", weather(*CRASHES),
        weather(FaultEvent("setback", SECOND, 100_000, (0,))),
    ),
    "a namesake": (
        Open, "one_name", weather(*CRASHES), weather(FaultEvent("namesake", SECOND, SECOND, (0,))),
    ),
    "an end apart": (
        Complete, "progress", weather(), weather(parts=((0, 1), (2,))),
    ),
    "levels in one run": (
        ByLevel, "no_duplication", weather(services=(Service.FIFO,)),
        weather(services=(Service.FIFO, Service.CAUSAL)),
    ),
    "a request": (
        Deaf, "no_crash", weather(*CRASHES),
        weather(FaultEvent("request", SECOND, 0, (0,), what="go_on")),
    ),
}  # fmt: skip


def lived(toy: type[Toy], law: str, under: Weather) -> Outcome:
    claimed = () if law in ("no_crash", "one_name") else (law,)
    spec = spec_of(toy, *claimed)
    bound_us = 3 * SECOND
    plan = Plan(
        protocol="toy", spec=spec, nodes=3, messages=30, weather=under, progress_us=bound_us
    )
    told = plan_from_json(plan_to_json(plan))
    assert replace(told, spec=spec) == plan, "a file says all of it"
    return run(plan)


@pytest.mark.parametrize("case", CASES)
def test_a_kind_of_fault_shows_a_bug_that_others_do_not(case: str) -> None:
    toy, law, without, under = CASES[case]
    calm = lived(toy, law, without)
    assert law not in calm.broken, calm.violations
    found = lived(toy, law, under)
    assert law in found.broken, found.counts
    again = lived(toy, law, under)
    assert again.violations == found.violations, "the same plan is the same run"


def test_one_is_thrown_out_for_nothing() -> None:
    assert "exclusion" in lived(Expelling, "exclusion", weather()).broken
    excused = lived(Expelling, "exclusion", weather(FaultEvent("pause", 100_000, 300_000, (2,))))
    assert "exclusion" not in excused.broken
    assert excused.counts["excluded"] and not excused.counts.get("excluded_unforced")


def test_what_was_not_performed_is_not_in_the_trace() -> None:
    struck = weather(aimed("crash", at_effect="before Install", nth=1))
    outcome = lived(Growing, "no_crash", struck)
    assert outcome.history is not None and outcome.counts["crashed"] == 1
    died = next(row for row in outcome.history.rows if row.kind == "crash")
    mine = [r for r in outcome.history.rows if (r.node, r.incarnation) == (died.node, 1)]
    before = [r for r in mine if r.kind == "view" and r.t_us == died.t_us]
    assert not before, "the view that it was about to install"


def test_a_process_paused_amid_a_step_goes_on_from_there() -> None:
    struck = weather(replace(aimed("pause", at_effect="after Persist", nth=1), nodes=(0,)))
    outcome = lived(TwoRecords, "no_crash", struck)
    assert outcome.counts["paused"] == 1 and not outcome.broken


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (FaultEvent("leave", 0, 0, (0,), at_view=1), "cannot wait for"),
        (FaultEvent("crash", 0, 0, (0,), at_view=1, at_arrow="x"), "aim at one"),
        (FaultEvent("crash", 0, 0, (0,), at_effect="amid Send"), "at_effect must be one of"),
        (FaultEvent("torn", 0, 0, (0,)), "only a write can be torn"),
        (FaultEvent("flap", 0, 0, (0,), (1,)), "every_us"),
        (FaultEvent("request", 0, 0, (0,)), "name the request"),
        (FaultEvent("drift", 0, 0, (0,), ppm=-1_000_000), "ppm must be within"),
    ],
)
def test_a_fault_that_cannot_strike_is_refused(fault: FaultEvent, words: str) -> None:
    with pytest.raises(Misuse, match=words):
        run(Plan(protocol="rmcast", nodes=2, weather=weather(fault)))


def test_parts_that_overlap_are_refused() -> None:
    with pytest.raises(Misuse, match="one of the parts"):
        run(Plan(protocol="rmcast", nodes=3, weather=weather(parts=((0, 1), (1, 2)))))
