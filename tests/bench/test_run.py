"""The plan of a run: the order of systems, and what happens when one fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from benchmarks.peers.raw import Raw
from unisono.bench.cluster import Cluster
from unisono.bench.hosts import Hosts
from unisono.bench.measure import ALL, BenchPlan, BenchRun, variants, workloads
from unisono.bench.own import UnisonoSystem
from unisono.bench.results import HALF
from unisono.bench.system import Workload
from unisono.processes import Processes, RunFailed

MEMBER = """
import json, sys
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    what, number, begin, seconds, size, *rest = line.split()
    told = {"did": what, "round": int(number), "cpu_ns": 1000}
    if what == "load":
        end = int(begin) + int(float(seconds) * 1e9)
        told |= {"sent": 500, "delivered": 1000, "first_ns": end, "last_ns": end, "rss_kb": 9}
    else:
        told |= {"count": 3, "samples_us": [1.0, 2.0, float(rest[0])]}
    if size == "FAILS":
        told = {"trouble": "not this size"}
    print(json.dumps(told), flush=True)
"""
PLAN = BenchPlan(members=(2,), sizes=(64, 1000), senders=(1, ALL), seconds=0.1, warm_s=0, rounds=3)


class Fake:
    """A system whose members answer at once, without having done anything."""

    services: tuple[str, ...] = ()
    default_service = "agreed"

    def __init__(self, name: str, calls: list[str], fails: int = 0, absent: str = "") -> None:
        self.name = name
        self._calls = calls
        self._fails = fails
        self._absent = absent

    def missing(self) -> str:
        return self._absent

    def refuses(self, workload: Workload) -> str:
        return f"{self.name} takes no {workload.service}" if workload.service == "safe" else ""

    @contextmanager
    def started(self, hosts: Hosts, workload: Workload) -> Iterator[Cluster]:
        self._calls.append(f"{self.name} {workload.size} {workload.senders}")
        if self._fails == -1:
            raise RunFailed("cannot start")
        program = MEMBER.replace("FAILS", str(self._fails))
        with Processes() as members:
            for host in hosts.members:
                members.start(f"member {host.index}", (sys.executable, "-c", program))
            yield Cluster([*members])


def test_systems_take_turns_and_are_asked_for_all_loads_at_once() -> None:
    calls: list[str] = []
    told: list[str] = []
    fakes = [Fake("a", calls), Fake("b", calls)]
    found = BenchRun(PLAN, fakes, lambda words: None, told.append).run()
    assert [call.split()[0] for call in calls] == ["a", "b", "b", "a", "a", "b"]
    assert {call.partition(" ")[2] for call in calls} == {"1000 2"}
    assert not told and not found.troubles and not found.skipped
    assert len(found.rows) == 2 * 4
    for row in found.rows.values():
        assert list(row.throughput) == [0, 1, 2] or list(row.throughput) == [0, 2, 1]
        assert [round(each.messages_per_s) for each in row.throughput.values()] == [10_000] * 3
        # Low load is a twentieth of the peak here or a hundred; then comes half of the peak.
        peak = 10_000 / row.key.senders
        assert [each["p99"] for each in row.lone] == [min(100, peak / 20)] * 3
        assert [each["p99"] for each in row.by_load[HALF]] == [pytest.approx(peak / 2)] * 3


def test_a_system_that_is_missing_or_refuses_is_reported_once() -> None:
    told: list[str] = []
    fakes = [Fake("a", [], absent="a is not installed"), Fake("b", [])]
    plan = BenchPlan(members=(2,), sizes=(64, 1000), services=("safe",), rounds=1)
    found = BenchRun(plan, fakes, lambda words: None, told.append).run()
    assert told == ["skipped: a is not installed", "skipped: b takes no safe"]
    assert not found.rows and len(found.skipped) == 5


def test_a_load_that_fails_twice_is_skipped_and_the_others_continue() -> None:
    calls: list[str] = []
    told: list[str] = []
    plan = BenchPlan(
        members=(2,), sizes=(64, 1000, 128), senders=(1,), seconds=0.1, warm_s=0, rounds=1
    )
    found = BenchRun(plan, [Fake("a", calls, fails=1000)], lambda words: None, told.append).run()
    assert [key.size for key, row in found.rows.items() if row.throughput] == [64, 128]
    assert len(calls) == 3
    assert len(told) == len(found.troubles) == 1
    assert "1 of 2 sending 1000 B" in told[0] and "not this size" in told[0]


def test_a_system_that_cannot_start_is_given_up() -> None:
    calls: list[str] = []
    told: list[str] = []
    found = BenchRun(PLAN, [Fake("a", calls, fails=-1)], lambda words: None, told.append).run()
    assert len(calls) == 2 and len(told) == 1 and "cannot start" in told[0]
    assert not any(row.throughput for row in found.rows.values())


def test_each_system_is_asked_for_what_it_has() -> None:
    systems = [UnisonoSystem("ring"), UnisonoSystem("rmcast"), Raw(), Fake("peer", [])]
    assert [(str(part), part.service) for part in variants(BenchPlan(), systems)] == [
        ("unisono-ring", "agreed"),
        ("unisono-rmcast causal", "causal"),
        ("raw unreliable", "unreliable"),
        ("peer", "agreed"),
    ]
    plan = BenchPlan(services=("agreed", "safe"), vias=("library", "daemon"))
    assert len(variants(plan, systems[:1])) == 4 and len(variants(plan, systems[3:])) == 2


def test_all_senders_and_as_many_as_there_are_is_one_load() -> None:
    (part,) = variants(BenchPlan(), [UnisonoSystem("ring")])
    plan = BenchPlan(sizes=(64,), senders=(1, 3, ALL, 5))
    assert [load.senders for load in workloads(plan, part, 3)] == [1, 3]


@pytest.mark.parametrize(
    ("protocol", "load", "words"),
    [
        ("mtp", Workload(3, 64, 1, "safe"), "has no safe"),
        ("ring", Workload(3, 64, 1, "reliable"), ""),
        ("ring", Workload(3, 64, 1, "resilient(all)"), "has no resilient(all)"),
        ("rmp", Workload(3, 64, 1, "resilient(majority)"), ""),
        ("rmp", Workload(3, 64, 1, "resilient(4)"), "at least 4"),
        ("rmcast", Workload(3, 64, 1, "causal", "daemon"), "no total order"),
        ("rmcast", Workload(33, 64, 1, "causal"), "at most 32"),
        ("ring", Workload(3, 64, 3, "safe", "daemon"), ""),
    ],
)
def test_ours_refuse_what_they_cannot_carry(protocol: str, load: Workload, words: str) -> None:
    why = UnisonoSystem(protocol).refuses(load)
    assert (words in why) if words else not why
