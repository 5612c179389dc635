"""What routers do to packets: shared fate for those behind, one queue for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any

import pytest

from tests.sim.flood import DOUBLE, FLOOD
from tests.sim.test_runs import fingerprint
from unisono.core import EVERYONE, CoreConfig, Effect, Event, Expired, Join, Received, Send
from unisono.errors import Misuse
from unisono.model import Address, Member, Service
from unisono.sim import (
    LinkPlan,
    Plan,
    Router,
    Weather,
    plan_from_json,
    plan_to_json,
    run,
    shrunk,
)
from unisono.sim.network import Network
from unisono.sim.shrink import _without_node
from unisono.sim.world import World

STEADY = LinkPlan("constant", 100, 0)
NAK_BYTES = 100


class Nodes:
    """The nodes of a network with routers, and a queue that runs dry."""

    def __init__(self, nodes: int, *routers: Router, link: LinkPlan = STEADY) -> None:
        self.heard: dict[int, list[bytes]] = {node: [] for node in range(nodes)}
        self.when_us: dict[int, list[int]] = {node: [] for node in range(nodes)}
        self._queue: list[tuple[int, int, Callable[[Any, Any], None], Any, Any]] = []
        self._count = 0
        weather = Weather(link=link, routers=routers)
        self.network = Network(nodes, 7, weather, self._arrive, self.post)

    def post(self, at_us: int, act: Callable[[Any, Any], None], a: Any, b: Any) -> None:
        self._count += 1
        heappush(self._queue, (at_us, self._count, act, a, b))

    def _arrive(self, at_us: int, source: int, target: int, packets: list[bytes]) -> None:
        self.post(at_us, self._hear, (at_us, target), packets)

    def _hear(self, where: tuple[int, int], packets: list[bytes]) -> None:
        at_us, target = where
        self.heard[target] += packets
        self.when_us[target].append(at_us)

    def cast(self, at_us: int, source: int, targets: list[int], *packets: bytes) -> None:
        self.post(at_us, self._cast, (at_us, source, targets), list(packets))

    def _cast(self, journey: tuple[int, int, list[int]], packets: list[bytes]) -> None:
        self.network.cast(*journey, packets)

    def run(self) -> None:
        while self._queue:
            _, _, act, a, b = heappop(self._queue)
            act(a, b)

    def multicast(self, times: int, source: int, targets: list[int]) -> None:
        for turn in range(times):
            self.cast(turn * 1000, source, targets, turn.to_bytes(4, "big") + bytes(60))
        self.run()


# -- what happens there happens to all behind ------------------------------------------------------


def test_what_a_router_drops_all_behind_it_miss() -> None:
    nodes = Nodes(5, Router((2, 3, 4), replace(STEADY, loss_ppm=300_000)))
    nodes.multicast(500, 0, [1, 2, 3, 4])
    assert len(nodes.heard[1]) == 500, "who is outside hears all"
    assert nodes.heard[2] == nodes.heard[3] == nodes.heard[4]
    lost = 500 - len(nodes.heard[2])
    assert 100 < lost < 200
    totals = nodes.network.totals()
    assert (totals["router_carried"], totals["router_lost"], totals["lost"]) == (500, lost, 0)


def test_what_a_router_corrupts_or_doubles_all_behind_it_get_so() -> None:
    worse = replace(STEADY, corrupt_ppm=200_000, duplicate_ppm=200_000)
    nodes = Nodes(4, Router((2, 3), worse))
    nodes.multicast(300, 0, [1, 2, 3])
    assert nodes.heard[2] == nodes.heard[3] != nodes.heard[1]
    totals = nodes.network.totals()
    assert len(nodes.heard[2]) == 300 + totals["router_duplicated"] > 320
    assert len(set(nodes.heard[2]) - set(nodes.heard[1])) == totals["router_corrupted"] > 20


def test_behind_the_router_each_one_s_own_link_applies() -> None:
    nodes = Nodes(3, Router((1, 2), STEADY), link=replace(STEADY, loss_ppm=300_000))
    nodes.multicast(300, 0, [1, 2])
    assert set(nodes.heard[1]) != set(nodes.heard[2])
    assert nodes.network.totals()["router_carried"] == 300
    assert nodes.when_us[1][0] % 1000 == 200, "one delay at the router, one behind it"


def test_reordering_at_a_router_is_not_undone_behind_it() -> None:
    nodes = Nodes(2, Router((1,), replace(STEADY, reorder_ppm=100_000, reorder_us=9_000)))
    nodes.multicast(300, 0, [1])
    assert len(nodes.heard[1]) == 300
    assert nodes.heard[1] != sorted(nodes.heard[1])
    late = sum(a > b for a, b in zip(nodes.heard[1], nodes.heard[1][1:], strict=False))
    assert 0 < late <= nodes.network.totals()["router_reordered"]


def test_a_block_behind_a_router_takes_only_its_own() -> None:
    nodes = Nodes(3, Router((1, 2), STEADY))
    nodes.network.block([(0, 1)])
    nodes.multicast(3, 0, [1, 2])
    assert (len(nodes.heard[1]), len(nodes.heard[2])) == (0, 3)


# -- who crosses what ------------------------------------------------------------------------------


def test_neighbours_do_not_cross_their_router() -> None:
    nodes = Nodes(4, Router((0, 1), replace(STEADY, loss_ppm=1_000_000)))
    nodes.multicast(10, 0, [0, 1, 2, 3])
    assert [len(nodes.heard[node]) for node in range(4)] == [10, 10, 0, 0]


def test_between_two_routers_both_are_crossed_once_each() -> None:
    first, second = Router((0, 1), STEADY), Router((2, 3), STEADY)
    nodes = Nodes(5, first, second)
    nodes.multicast(10, 0, [1, 2, 3, 4])
    assert all(len(nodes.heard[node]) == 10 for node in (1, 2, 3, 4))
    assert nodes.network.totals()["router_carried"] == 20
    first_heard_us = [nodes.when_us[node][0] for node in (1, 4, 2)]
    assert first_heard_us == [100, 200, 300]


# -- bandwidth -------------------------------------------------------------------------------------

NARROW = replace(STEADY, bytes_per_s=100_000, queue_bytes=1_000)


def test_the_bandwidth_inward_is_shared_and_a_multicast_takes_it_once() -> None:
    nodes = Nodes(31, Router(tuple(range(1, 31)), NARROW))
    nodes.cast(0, 0, list(range(1, 31)), *([bytes(100)] * 10))
    nodes.run()
    assert all(len(nodes.heard[node]) == 10 for node in range(1, 31))
    alone = Nodes(31, Router(tuple(range(1, 31)), NARROW))
    for node in range(1, 31):
        alone.cast(0, 0, [node], bytes(100))
    alone.run()
    assert sum(map(len, alone.heard.values())) == 10
    assert alone.network.totals()["router_overflowed"] == 20


def test_a_storm_of_naks_overflows_the_way_out_and_not_the_way_in() -> None:
    nodes = Nodes(31, Router(tuple(range(1, 31)), NARROW))
    for node in range(1, 31):
        nodes.cast(0, node, [0], node.to_bytes(1, "big") * NAK_BYTES)
    nodes.cast(1, 0, [1], bytes(500))
    nodes.run()
    assert len(nodes.heard[0]) == 10
    assert len(nodes.heard[1]) == 1
    assert nodes.network.totals()["router_overflowed"] == 20


def test_a_healed_router_stays_and_does_no_harm() -> None:
    nodes = Nodes(3, Router((1, 2), replace(NARROW, loss_ppm=900_000)))
    nodes.network.heal()
    nodes.multicast(100, 0, [1, 2])
    assert len(nodes.heard[1]) == len(nodes.heard[2]) == 100
    assert nodes.network.totals()["router_carried"] == 100


# -- in a world ------------------------------------------------------------------------------------


class Shouter:
    """Node a sends one packet to everyone, one to a list, and one to each: ten times."""

    heard: dict[str, list[bytes]] = {}

    def __init__(self, setting: CoreConfig) -> None:
        self.me = setting.me
        self.counts: dict[str, int] = {}
        Shouter.heard[self.me.name] = []

    def step(self, now_us: int, event: Event) -> list[Effect]:
        if isinstance(event, Received):
            Shouter.heard[self.me.name] += [bytes(packet) for packet in event.packets]
        if self.me.name == "a" and isinstance(event, Join | Expired):
            listed = tuple(Address(f"10.0.0.{place}", 7000) for place in (2, 3, 4))
            singly = [Send((each,), [b"each"]) for each in listed]
            return [Send(EVERYONE, [b"all"]), Send(listed, [b"list"]), *singly]
        return []

    def send_credit(self) -> int:
        return 0

    def held(self) -> Mapping[Member, int]:
        return {}

    def transition_counts(self) -> Mapping[str, int]:
        return {}


def test_a_multicast_and_a_list_cross_once_and_single_sends_each() -> None:
    weather = Weather(fault_us=1000, link=STEADY, routers=(Router((2, 3), STEADY),))
    spec = replace(FLOOD, make=Shouter, laws=())
    plan = Plan(protocol="x", spec=spec, nodes=4, messages=0, progress_us=1000)
    world = World(plan, weather, spec, (Service.FIFO,))
    world.run()
    assert all(Shouter.heard[name] == [b"all", b"list", b"each"] for name in "bcd")
    assert world.network.totals()["router_carried"] == 1 + 1 + 2


ROUTED = Weather(
    routers=(
        Router((1, 2), LinkPlan(loss_ppm=50_000, bytes_per_s=200_000, queue_bytes=4_000)),
        Router((3,), LinkPlan(duplicate_ppm=50_000)),
    )
)
PLAN = Plan(protocol="flood", spec=FLOOD, nodes=5, messages=60, weather=ROUTED)


def test_a_run_with_routers_is_one_run_and_heals() -> None:
    one, two = run(PLAN), run(PLAN)
    assert fingerprint(one) == fingerprint(two)
    assert not one.violations
    assert one.counts["router_lost"] > 0 and one.counts["router_carried"] > 100
    without = run(replace(PLAN, weather=replace(ROUTED, routers=())))
    assert not any(name.startswith("router") for name in without.counts)


def test_routers_survive_the_file_and_a_plan_without_them_does_not_name_them() -> None:
    kept = plan_from_json(plan_to_json(replace(PLAN, spec=None)))
    assert kept.weather == ROUTED
    assert "router" not in plan_to_json(replace(PLAN, weather=Weather()))
    told = '{"protocol": "x", "nodes": 3, "weather": {"routers": [{"behind": [1, 2]}]}}'
    weather = plan_from_json(told).weather
    assert weather is not None and weather.routers == (Router((1, 2)),)


@pytest.mark.parametrize(
    "router, says",
    [
        ("1", "routers must be an object"),
        ("{}", "behind is missing"),
        ('{"behind": [1], "speed": 1}', "unknown field 'speed'"),
        ('{"behind": 1}', "behind must be a list"),
        ('{"behind": ["b"]}', "whole number"),
        ('{"behind": []}', "name the nodes behind it"),
        ('{"behind": [1, 9]}', "node 9 is not one of"),
        ('{"behind": [1]}, {"behind": [2, 1]}', "node 1 is named twice"),
        ('{"behind": [1], "link": {"loss_ppm": -1}}', "loss_ppm must not be negative"),
    ],
)
def test_a_router_that_cannot_be_is_refused(router: str, says: str) -> None:
    with pytest.raises(Misuse, match=says):
        plan_from_json('{"protocol": "x", "weather": {"routers": [' + router + "]}}")


# -- shrinking -------------------------------------------------------------------------------------


def test_a_node_less_is_a_node_less_behind_its_router() -> None:
    fewer = _without_node(ROUTED, 1)
    assert [router.behind for router in fewer.routers] == [(1,), (2,)]
    assert [router.behind for router in _without_node(ROUTED, 3).routers] == [(1, 2)]


def test_shrinking_keeps_the_router_that_matters_and_no_other() -> None:
    bad = Router((1, 2), LinkPlan(duplicate_ppm=300_000, loss_ppm=20_000))
    weather = Weather(routers=(bad, Router((3,), LinkPlan(loss_ppm=1_000))))
    plan = replace(PLAN, weather=weather, nodes=4, options={"bug": DOUBLE})
    small = shrunk(plan, attempts_max=150)
    assert small.law == "no_duplication" and small.attempts < 150
    assert small.plan.weather is not None
    (kept,) = small.plan.weather.routers
    assert kept.link.duplicate_ppm and not kept.link.loss_ppm
    irrelevant = replace(weather, link=LinkPlan(duplicate_ppm=1_000_000))
    small = shrunk(replace(plan, weather=irrelevant), attempts_max=150)
    assert small.plan.weather is not None and not small.plan.weather.routers
