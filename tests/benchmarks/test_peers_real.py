"""Peers for real, three members in namespaces: all hear the same, in the same order."""

from __future__ import annotations

import pytest

from benchmarks.peers import peers
from benchmarks.peers.client import DIGEST
from tests.waiting import LIMIT_S
from unisono.bench.crew import Crew
from unisono.bench.stage import stage
from unisono.bench.system import Load

pytestmark = [pytest.mark.root, pytest.mark.real, pytest.mark.slow]


@pytest.mark.parametrize("name", [name for name in peers() if name != "raw"])
def test_every_member_hears_the_same_in_the_same_order(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = peers()[name]
    if why := peer.missing():
        pytest.skip(why)
    monkeypatch.setenv(DIGEST, "1")
    with stage("namespaces", 3) as here, peer.started(here, Load(3, 100_000, 3)) as troupe:
        crew = Crew(troupe, here)
        assert all(each["ready"] for each in crew.wait_ready())
        for size in (64, 100_000):
            begin_ns, poured = crew.pour(0.3, size, 3)
            sent = sum(each["sent"] for each in poured)
            assert sent > 0
            assert [each["delivered"] for each in poured] == [sent] * 3
            assert len({each["digest"] for each in poured}) == 1
            assert all(begin_ns <= each["first_ns"] <= each["last_ns"] for each in poured)
            assert all(each["cpu_ns"] > 0 and each["rss_kb"] > 0 for each in poured)
        probed = crew.probe(0.5, 64, 1, 100)
        assert probed[0]["count"] == 0, "what it said itself is no sample"
        assert probed[1]["count"] == probed[2]["count"] > 0
        assert len({each["digest"] for each in probed}) == 1
        assert all(sample > 0 for each in probed for sample in each["samples_us"])
        for member in troupe.members:
            assert member.stdin is not None
            member.stdin.write("quit\n")
            member.stdin.flush()
        assert [member.wait(LIMIT_S) for member in troupe.members] == [0, 0, 0]
