"""Members of ours and of bare sockets, each a process, as the bench orders them about."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from benchmarks.peers.raw import Raw
from tests.waiting import LIMIT_S
from unisono.bench.crew import Crew
from unisono.bench.ours import Ours
from unisono.bench.processes import Trouble
from unisono.bench.results import delays, poured
from unisono.bench.stage import stage
from unisono.bench.standing import joining_ms, recovery_ms
from unisono.bench.system import Load, System, Troupe

pytestmark = pytest.mark.real
POUR_S = 0.3


@contextmanager
def playing(system: System, load: Load) -> Iterator[tuple[Crew, Troupe]]:
    with stage("loopback", load.members) as here, system.started(here, load) as troupe:
        crew = Crew(troupe, here)
        crew.wait_ready()
        yield crew, troupe
    assert all(process.poll() is not None for process in troupe.members)


@pytest.mark.parametrize("protocol", ["ring", "mtp", "rmcast"])
def test_every_member_counts_every_message(protocol: str) -> None:
    ours = Ours(protocol)
    load = Load(2, 64, 1, ours.usual)
    with playing(ours, load) as (crew, troupe):
        for senders, size in ((1, 64), (2, 1000), (1, 100_000)):
            begin_ns, answers = crew.pour(POUR_S, size, senders)
            sent = [each["sent"] for each in answers]
            assert all(sent[:senders]) and not any(sent[senders:])
            assert [each["delivered"] for each in answers] == [sum(sent)] * 2
            assert all(begin_ns < each["first_ns"] <= each["last_ns"] for each in answers)
            assert poured(begin_ns, answers, 0, 0).messages_per_s > 0
        for process in troupe.members:
            assert process.stdin is not None
            process.stdin.write("quit\n")
            process.stdin.flush()
        assert [process.wait(LIMIT_S) for process in troupe.members] == [0, 0]


def test_a_delay_is_that_of_what_others_said() -> None:
    with playing(Ours("ring"), Load(2, 64, 2)) as (crew, _):
        one = crew.probe(POUR_S, 64, 1, 100)
        assert not one[0]["samples_us"] and len(one[1]["samples_us"]) == one[1]["count"] > 1
        both = crew.probe(POUR_S, 16, 2, 5000)
        assert all(0 < len(each["samples_us"]) <= each["count"] for each in both)
        assert 0 < delays(both)["p50"] <= delays(both)["p99"]


def test_a_member_that_dies_is_told() -> None:
    with playing(Ours("ring"), Load(2, 64, 1)) as (crew, troupe):
        troupe.members[1].kill()
        with pytest.raises(Trouble, match="member 1 ended with code -9"):
            crew.pour(POUR_S, 64, 1)


def test_a_member_that_falls_behind_its_group_says_so() -> None:
    """The victim's death is noticed by a member that has no order to expect it."""
    with playing(Ours("rmcast", {"detect_us": 200_000}), Load(3, 64, 1, "causal")) as (
        crew,
        troupe,
    ):
        troupe.members[2].kill()
        time.sleep(2)
        with pytest.raises(Trouble, match=r"member 2 ended|the view fell to 2 members"):
            crew.pour(POUR_S, 64, 1)


def test_what_a_member_cannot_start_with_is_told() -> None:
    with stage("loopback", 2) as here:
        ours, load = Ours("ring"), Load(2, 64, 1, service="nonsense")
        assert "no nonsense service" in ours.refuses(load)
        with ours.cast(here, load) as cast:
            members = [cast.enter(seat, 2) for seat in here.seats]
            crew = Crew(Troupe(members), here)
            crew.wait_ready()
            with pytest.raises(Trouble, match="nonsense"):
                crew.pour(POUR_S, 64, 2)


@pytest.mark.slow
def test_through_daemons_the_daemons_count_too() -> None:
    with playing(Ours("ring"), Load(2, 64, 1, via="daemon")) as (crew, troupe):
        assert len(troupe.servers) == 2
        _, answers = crew.pour(POUR_S, 64, 2)
        assert len({each["delivered"] for each in answers}) == 1
        assert crew.servers_cpu_ns > 0 and crew.rss_peak_kb() > 1000


def test_bare_sockets_are_measured_like_a_group() -> None:
    assert Raw().refuses(Load(3, 64, 3)) and not Raw().refuses(Load(3, 64, 1))
    with playing(Raw(), Load(3, 64, 1)) as (crew, _):
        for size in (64, 100_000):
            begin_ns, answers = crew.pour(POUR_S, size, 1)
            found = poured(begin_ns, answers, 0, 0)
            assert found.messages_per_s > 0 and 0 < found.delivered_share <= 1
            assert delays(crew.probe(POUR_S, size, 1, 100))["p50"] > 0
            assert delays(crew.probe(POUR_S, size, 1, found.messages_per_s / 10))["p50"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["ring", "mtp"])
def test_a_killed_member_and_a_new_one_are_timed(protocol: str) -> None:
    load = Load(3, 64, 1)
    with stage("loopback", 3) as here:
        assert 0 < recovery_ms(Ours(protocol), here, load) < 30_000
        assert 0 < joining_ms(Ours(protocol), here, load, 100_000) < 30_000
