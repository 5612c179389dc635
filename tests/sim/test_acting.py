"""A plan brings its own application: it is told, it speaks, it is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pytest

from tests.sim.flood import FLOOD
from unisono.model import Message, ServiceLevel, View
from unisono.sim import FaultEvent, Plan, Weather, campaign, plan_to_json, run
from unisono.sim.applications import ApplicationContext, ApplicationEnd, ApplicationSpec


class Echo:
    """Says `ask` when prompted, and answers each ask of another once."""

    def __init__(self, scene: ApplicationContext) -> None:
        self.scene = scene
        self.heard: list[bytes] = []
        self.views = 0
        self.asked = 0
        self.answers = 0
        scene.records.append(str(scene.me).encode())

    def deliver(self, message: Message) -> Sequence[bytes]:
        self.heard.append(message.payload)
        if message.payload == b"answer":
            self.answers += 1
        other = message.payload == b"ask" and message.sender != self.scene.me
        return [b"answer"] if other else []

    def install(self, view: View) -> Sequence[bytes]:
        self.views += 1
        return []

    def prompt(self) -> Sequence[bytes]:
        self.asked += 1
        return [b"ask"]

    def state(self) -> bytes:
        return b"\n".join((b"state", *self.heard))

    def adopt(self, state: bytes) -> Sequence[bytes]:
        first, *self.heard = state.split(b"\n")
        assert first == b"state"
        return []

    def is_idle(self) -> bool:
        return True


LIVES: list[ApplicationEnd] = []


def noted(lives: Sequence[ApplicationEnd], services: Sequence[ServiceLevel]) -> Iterable[str]:
    LIVES[:] = lives
    return ()


def complains(lives: Sequence[ApplicationEnd], services: Sequence[ServiceLevel]) -> Iterable[str]:
    yield f"{len(lives)} lives, {services!r}"


def plan(play: ApplicationSpec, **more: object) -> Plan:
    weather = Weather(with_state=False)
    common = Plan(protocol="flood", spec=FLOOD, nodes=3, messages=12, weather=weather)
    return replace(common, application=play, **more)  # type: ignore[arg-type]


def test_it_is_prompted_and_receives_what_the_others_send() -> None:
    outcome = run(plan(ApplicationSpec(Echo, noted)))
    assert not outcome.violations and outcome.laws["application"] == "kept"
    echoes: list[Echo] = [each.application for each in LIVES]
    assert [str(each.me) for each in LIVES] == ["a#1", "b#1", "c#1"]
    assert sum(echo.asked for echo in echoes) == 12
    assert all(echo.views and echo.heard.count(b"ask") == 12 for echo in echoes)
    assert all(echo.answers == 24 for echo in echoes), "each is answered by both others"
    assert outcome.sent == 12 + 24 + 6, "and the probes are the world's"


def test_records_survive_a_crash_and_not_amnesia() -> None:
    crash = FaultEvent("crash", 500_000, 100_000, (0,))
    loss = FaultEvent("amnesia", 1_500_000, 100_000, (1,))
    weather = Weather(schedule=(crash, loss))
    assert not run(plan(ApplicationSpec(Echo, noted), weather=weather)).violations
    kept = {each.me: (each.application.scene.records, each.alive) for each in LIVES}
    told = {str(me): (records, alive) for me, (records, alive) in kept.items()}
    assert told["a#1"][1] is False and told["a#2"] == ([b"a#1", b"a#2"], True)
    assert told["b#1"][1] is False and told["b#2"] == ([b"b#2"], True)


def test_a_state_is_handed_over_whatever_the_weather() -> None:
    crash = FaultEvent("crash", 1_500_000, 100_000, (1,))
    weather = Weather(schedule=(crash,), with_state=False)
    outcome = run(plan(ApplicationSpec(Echo, noted), weather=weather, protocol="mtp", spec=None))
    assert outcome.counts["captured"] and outcome.counts["adopted"]
    (back,) = [each.application for each in LIVES if str(each.me) == "b#2"]
    assert back.heard.count(b"ask") >= 1


def test_what_the_judge_finds_breaks_the_law_of_the_application() -> None:
    outcome = run(plan(ApplicationSpec(Echo, complains)))
    assert outcome.broken == ("application",)
    assert outcome.violations[0].detail == "3 lives, (<Service.FIFO: 2>,)"
    assert outcome.replay.startswith("run(Plan(protocol='flood', nodes=3, seed=1,")


class Raises(Echo):
    def install(self, view: View) -> Sequence[bytes]:
        raise ZeroDivisionError("planted")


class Restless(Echo):
    def is_idle(self) -> bool:
        return self.asked > 99


def test_an_application_that_raises_breaks_it_too() -> None:
    outcome = run(plan(ApplicationSpec(Raises, noted)))
    assert "application" in outcome.broken
    assert outcome.violations[0].detail.startswith("ZeroDivisionError: planted [test_acting.py:")


def test_a_run_waits_until_all_are_idle_up_to_its_bound() -> None:
    outcome = run(plan(ApplicationSpec(Restless, noted), progress_us=5_000_000))
    assert outcome.laws["progress"] == "kept" and outcome.virtual_s > 7.5
    assert run(plan(ApplicationSpec(Echo, noted), progress_us=5_000_000)).virtual_s < 7.5


def test_a_plan_without_one_has_no_such_law_and_no_file_names_one() -> None:
    bare = replace(plan(ApplicationSpec(Echo, noted)), application=None)
    assert "application" not in run(bare).laws
    assert plan_to_json(bare) == plan_to_json(plan(ApplicationSpec(Echo, noted)))


@pytest.mark.parametrize("make", [Echo, Raises])
def test_a_campaign_carries_it_to_its_workers(make: Callable[[ApplicationContext], Echo]) -> None:
    common = Plan(protocol="flood", application=ApplicationSpec(make, complains))
    summary = campaign(FLOOD, range(2), "none", (2, 3), jobs=2, messages=3, plan=common)
    assert [each.broken for each in summary.failures] == [("application",)] * 2
