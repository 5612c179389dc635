"""What the network does to packets, one fault at a time."""

from __future__ import annotations

from statistics import mean, median

import pytest

from unisono.sim.network import Network
from unisono.sim.pipe import corrupted, drawn_delay_us
from unisono.sim.plan import LinkPlan, Weather, dice

STEADY = LinkPlan(delay="constant", delay_us=100, spread_us=0)


class Far:
    """The far ends: remembers every burst that arrives, in order of time."""

    def __init__(self, link: LinkPlan, nodes: int = 3, **weather: object) -> None:
        self.bursts: list[tuple[int, int, int, list[bytes]]] = []
        full = Weather(link=link, **weather)  # type: ignore[arg-type]
        self.network = Network(nodes, 7, full, self.arrive, self.post)

    def arrive(self, at_us: int, source: int, target: int, packets: list[bytes]) -> None:
        self.bursts.append((at_us, source, target, packets))

    def post(self, at_us: int, act: object, a: object, b: object) -> None:
        raise AssertionError("without routers nothing stops on the way")

    def send(self, times: int, packets: int = 1, size: int = 100, every_us: int = 10) -> int:
        for turn in range(times):
            burst = [turn.to_bytes(4, "big") + bytes(size - 4) for _ in range(packets)]
            self.network.carry(turn * every_us, 0, 1, burst)
        return times * packets

    @property
    def arrived(self) -> list[bytes]:
        by_time = sorted(self.bursts, key=lambda burst: burst[0])
        return [packet for *_, packets in by_time for packet in packets]


def test_a_calm_link_keeps_bursts_and_order() -> None:
    far = Far(LinkPlan())
    far.send(200, packets=5)
    assert len(far.bursts) == 200
    assert all(len(packets) == 5 for *_, packets in far.bursts)
    assert far.arrived == sorted(far.arrived)


@pytest.mark.parametrize(
    "link, least, middle, most",
    [
        (LinkPlan("constant", 100, 50), 100, 100, 100),
        (LinkPlan("uniform", 100, 1000), 100, 600, 1100),
        (LinkPlan("exponential", 100, 1000), 100, 100 + 693, 100 + 17_000),
        (LinkPlan("lognormal", 100, 1000), 225, 1100, 8200),
    ],
)
def test_delays_follow_their_distribution(
    link: LinkPlan, least: int, middle: int, most: int
) -> None:
    roll = dice(1, "delays")
    drawn = [drawn_delay_us(link, roll) for _ in range(4000)]
    assert least <= min(drawn) and max(drawn) <= most
    assert abs(median(drawn) - middle) <= middle // 10
    if link.delay == "exponential":
        assert abs(mean(drawn) - 1100) < 150


def test_loss_takes_its_share() -> None:
    far = Far(LinkPlan(loss_ppm=200_000))
    sent = far.send(2000)
    lost = far.network.counts["lost"]
    assert lost == sent - len(far.arrived)
    assert 300 < lost < 500


def test_burst_loss_comes_in_runs() -> None:
    far = Far(LinkPlan(burst_ppm=5_000, burst_end_ppm=50_000, burst_loss_ppm=1_000_000))
    sent = far.send(5000)
    there = {int.from_bytes(packet[:4], "big") for packet in far.arrived}
    lost = [turn for turn in range(sent) if turn not in there]
    assert far.network.counts["burst_lost"] == len(lost) > 100
    neighbours = sum(1 for turn in lost if turn + 1 not in there)
    assert neighbours / len(lost) > 0.8


def test_duplicates_arrive_besides() -> None:
    far = Far(LinkPlan(duplicate_ppm=100_000))
    sent = far.send(2000)
    assert len(far.arrived) == sent + far.network.counts["duplicated"] > sent + 100


def test_reordering_overtakes_and_nothing_else_does() -> None:
    far = Far(LinkPlan(reorder_ppm=100_000, reorder_us=5_000))
    sent = far.send(2000)
    assert len(far.arrived) == sent
    assert far.network.counts["reordered"] > 100
    assert far.arrived != sorted(far.arrived)


def test_corruption_flips_cuts_and_stretches() -> None:
    roll, packet = dice(3), bytes(100)
    damaged = [corrupted(packet, roll) for _ in range(400)]
    assert all(each != packet for each in damaged)
    assert {len(each) < 100 for each in damaged} == {True, False}
    assert any(len(each) > 100 for each in damaged)
    flipped = [each for each in damaged if len(each) == 100]
    assert {sum(byte.bit_count() for byte in each) for each in flipped} == set(range(1, 9))
    assert corrupted(b"", roll)
    far = Far(LinkPlan(corrupt_ppm=100_000))
    far.send(1000)
    assert far.network.counts["corrupted"] > 50


def test_bandwidth_queues_and_then_overflows() -> None:
    far = Far(LinkPlan("constant", 0, 0, bytes_per_s=1_000_000, queue_bytes=1000))
    far.send(1, packets=20, size=100)
    ((at_us, _, _, packets),) = far.bursts
    assert (at_us, len(packets)) == (1000, 10)
    assert far.network.counts["overflowed"] == 10
    far.network.carry(2000, 0, 1, [bytes(100)])
    assert far.bursts[-1][0] == 2100


def test_a_block_is_one_way_and_overlaps_are_counted() -> None:
    far = Far(STEADY)
    net = far.network
    net.block([(0, 1), (0, 2)])
    net.block([(0, 1)])
    net.carry(0, 0, 1, [b"no"])
    net.carry(0, 1, 0, [b"yes"])
    assert [(source, target) for _, source, target, _ in far.bursts] == [(1, 0)]
    net.block([(0, 1)], by=-1)
    assert net.blocked(0, 1)
    net.block([(0, 1)], by=-1)
    assert not net.blocked(0, 1) and net.blocked(0, 2)
    net.heal()
    assert not net.blocked(0, 2)
    assert net.counts["blocked"] == 1


def test_links_may_differ_by_direction() -> None:
    far = Far(STEADY, links=((0, 1, LinkPlan("constant", 9000, 0)),))
    far.network.carry(0, 0, 1, [b"slow"])
    far.network.carry(0, 1, 0, [b"fast"])
    assert sorted((at, source) for at, source, _, _ in far.bursts) == [(100, 1), (9000, 0)]
