"""Peers for real, three members in namespaces: all hear the same, in the same order."""

from __future__ import annotations

import pytest

from benchmarks.peers import peers
from benchmarks.peers.client import DIGEST
from tests.waiting import LIMIT_S
from unisono.bench.hosts import hosts_on
from unisono.bench.system import Workload

pytestmark = [pytest.mark.root, pytest.mark.real, pytest.mark.slow]


@pytest.mark.parametrize("name", [name for name in peers() if name not in ("raw", "asyncio")])
def test_every_member_delivers_the_same_in_the_same_order(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = peers()[name]
    if why := peer.missing():
        pytest.skip(why)
    monkeypatch.setenv(DIGEST, "1")
    workload = Workload(3, 100_000, 3)
    with hosts_on("namespaces", 3) as hosts, peer.started(hosts, workload) as cluster:
        assert all(each["ready"] for each in cluster.wait_ready())
        for size in (64, 100_000):
            begin_ns, loaded = cluster.load(0.3, size, 3)
            sent = sum(each["sent"] for each in loaded)
            assert sent > 0
            assert [each["delivered"] for each in loaded] == [sent] * 3
            assert len({each["digest"] for each in loaded}) == 1
            assert all(begin_ns <= each["first_ns"] <= each["last_ns"] for each in loaded)
            assert all(each["cpu_ns"] > 0 and each["rss_kb"] > 0 for each in loaded)
        probed = cluster.probe(0.5, 64, 1, 100)
        assert probed[0]["count"] == 0, "what it said itself is no sample"
        assert probed[1]["count"] == probed[2]["count"] > 0
        assert len({each["digest"] for each in probed}) == 1
        assert all(sample > 0 for each in probed for sample in each["samples_us"])
        for member in cluster.members:
            member.write("quit")
        assert [member.wait(LIMIT_S) for member in cluster.members] == [0, 0, 0]
