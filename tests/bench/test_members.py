"""Members of ours and of bare sockets, each a process, as the bench orders them about."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from benchmarks.peers.raw import Raw
from tests.waiting import LIMIT_S
from unisono.bench.cluster import Cluster
from unisono.bench.hosts import hosts_on
from unisono.bench.own import UnisonoSystem
from unisono.bench.recovery import joining_ms, recovery_ms
from unisono.bench.results import delays, throughput
from unisono.bench.system import System, Workload
from unisono.processes import RunFailed

pytestmark = pytest.mark.real
LOAD_S = 0.3


@contextmanager
def running(system: System, workload: Workload) -> Iterator[Cluster]:
    with (
        hosts_on("loopback", workload.members) as hosts,
        system.started(hosts, workload) as cluster,
    ):
        cluster.wait_ready()
        yield cluster
    assert not any(process.is_alive for process in (*cluster.members, *cluster.servers))


@pytest.mark.parametrize("protocol", ["ring", "mtp", "rmcast"])
def test_every_member_counts_every_message(protocol: str) -> None:
    ours = UnisonoSystem(protocol)
    workload = Workload(2, 64, 1, ours.default_service)
    with running(ours, workload) as cluster:
        for senders, size in ((1, 64), (2, 1000), (1, 100_000)):
            begin_ns, answers = cluster.load(LOAD_S, size, senders)
            sent = [each["sent"] for each in answers]
            assert all(sent[:senders]) and not any(sent[senders:])
            assert [each["delivered"] for each in answers] == [sum(sent)] * 2
            assert all(begin_ns < each["first_ns"] <= each["last_ns"] for each in answers)
            assert throughput(begin_ns, answers, 0, 0).messages_per_s > 0
        for process in cluster.members:
            process.write("quit")
        assert [process.wait(LIMIT_S) for process in cluster.members] == [0, 0]


def test_a_delay_is_that_of_others_messages() -> None:
    with running(UnisonoSystem("ring"), Workload(2, 64, 2)) as cluster:
        one = cluster.probe(LOAD_S, 64, 1, 100)
        assert not one[0]["samples_us"] and len(one[1]["samples_us"]) == one[1]["count"] > 1
        both = cluster.probe(LOAD_S, 16, 2, 5000)
        assert all(0 < len(each["samples_us"]) <= each["count"] for each in both)
        assert 0 < delays(both)["p50"] <= delays(both)["p99"]


@pytest.mark.parametrize("service", ["unreliable", "reliable", "fifo", "resilient(all)"])
def test_every_level_of_rmp_is_measured(service: str) -> None:
    """A resilient message until its sender knows: there, and there alone."""
    with running(UnisonoSystem("rmp"), Workload(3, 64, 1, service)) as cluster:
        begin_ns, answers = cluster.load(LOAD_S, 64, 1)
        found = throughput(begin_ns, answers, 0, 0)
        assert found.messages_per_s > 0
        assert found.delivered_share == 1 or service == "unreliable"
        sampled = [bool(each["samples_us"]) for each in cluster.probe(LOAD_S, 64, 1, 100)]
        resilient = service.startswith("resilient")
        assert sampled == [resilient, not resilient, not resilient]


def test_a_member_that_dies_is_reported() -> None:
    with running(UnisonoSystem("ring"), Workload(2, 64, 1)) as cluster:
        cluster.members[1].kill()
        with pytest.raises(RunFailed, match="member 1 ended with code -9"):
            cluster.load(LOAD_S, 64, 1)


def test_a_member_that_falls_out_of_its_group_reports_it() -> None:
    """The victim's death is noticed by a member that has no order to expect it."""
    rmcast = UnisonoSystem("rmcast", {"detect_us": 200_000})
    with running(rmcast, Workload(3, 64, 1, "causal")) as cluster:
        cluster.members[2].kill()
        time.sleep(2)
        with pytest.raises(RunFailed, match=r"member 2 ended|the view fell to 2 members"):
            cluster.load(LOAD_S, 64, 1)


def test_what_a_member_cannot_start_with_is_reported() -> None:
    with hosts_on("loopback", 2) as hosts:
        ours, workload = UnisonoSystem("ring"), Workload(2, 64, 1, service="nonsense")
        assert "no nonsense service" in ours.refuses(workload)
        with (
            ours.started(hosts, workload) as cluster,
            pytest.raises(RunFailed, match="nonsense"),
        ):
            cluster.wait_ready()


@pytest.mark.slow
def test_through_daemons_the_daemons_count_too() -> None:
    with running(UnisonoSystem("ring"), Workload(2, 64, 1, via="daemon")) as cluster:
        assert len(cluster.servers) == 2
        _, answers = cluster.load(LOAD_S, 64, 2)
        assert len({each["delivered"] for each in answers}) == 1
        assert cluster.servers_cpu_ns > 0 and cluster.servers_rss_peak_kb() > 1000


def test_bare_sockets_are_measured_like_a_group() -> None:
    assert Raw().refuses(Workload(3, 64, 3)) and not Raw().refuses(Workload(3, 64, 1))
    with running(Raw(), Workload(3, 64, 1)) as cluster:
        for size in (64, 100_000):
            begin_ns, answers = cluster.load(LOAD_S, size, 1)
            found = throughput(begin_ns, answers, 0, 0)
            assert found.messages_per_s > 0 and 0 < found.delivered_share <= 1
            assert delays(cluster.probe(LOAD_S, size, 1, 100))["p50"] > 0
            assert delays(cluster.probe(LOAD_S, size, 1, found.messages_per_s / 10))["p50"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["ring", "mtp"])
def test_a_killed_member_and_a_new_one_are_timed(protocol: str) -> None:
    workload = Workload(3, 64, 1)
    with hosts_on("loopback", 3) as hosts:
        assert 0 < recovery_ms(UnisonoSystem(protocol), hosts, workload) < 30_000
        assert 0 < joining_ms(UnisonoSystem(protocol), hosts, workload, 100_000) < 30_000
