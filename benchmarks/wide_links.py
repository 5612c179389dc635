"""Clusters joined by wide links, in simulation: `python -m benchmarks.wide_links`.

How long a message takes to members of other clusters, in round trips of the wide link, and how many
bytes cross the wide links, as a multiple of the least possible: the payload, once a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from unisono.model import Service
from unisono.sim import Plan
from unisono.sim.nodes import Node
from unisono.sim.plan import LinkPlan, Router, Weather
from unisono.sim.run import checked_spec
from unisono.sim.world import World

EACH_US: Final = 100_000
"""Between two messages of one sender."""
SETTLE_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class WideRun:
    """What one run showed."""

    service: Service
    round_trip_us: int
    senders: int
    latencies: tuple[float, ...]
    """Of each message at each member of other clusters, in round trips."""
    overhead: float
    """Bytes on wide links, as a multiple of the least possible."""

    def row(self) -> str:
        return (
            f"| {self.service.name.lower()} | {self.round_trip_us // 1000} ms | {self.senders} |"
            f" {median(self.latencies):.2f} | {max(self.latencies):.2f} | {self.overhead:.2f} |"
        )


class WideWorld(World):
    """Counts what crosses wide links, and begins to send once all are together."""

    def load(self, senders: Sequence[int], count: int, size: int, service: Service) -> None:
        self._home = {node: at for at, home in enumerate(self.weather.clusters) for node in home}
        self._load = senders, count, size, service
        self.wide_bytes = 0
        self.began_us = 0
        carry = self.network.cast

        def cast(now_us: int, source: int, targets: Sequence[int], packets: list[bytes]) -> None:
            far = sum(self._home[target] != self._home[source] for target in targets)
            self.wide_bytes += far * sum(map(len, packets)) if self.began_us else 0
            carry(now_us, source, targets, packets)

        self.network.cast = cast
        self.post(SETTLE_US, self._look, None, None)

    def _look(self, _: None, __: None) -> None:
        """All in one view since a moment ago."""
        if {_members_seen(node) for node in self.nodes} != {len(self.nodes)}:
            self.post(self.now_us + SETTLE_US, self._look, None, None)
            return
        self.began_us = self.now_us
        senders, count = self._load[:2]
        for at, sender in enumerate(senders):
            first_us = self.now_us + EACH_US * at // len(senders)
            for each in range(count):
                self.post(first_us + each * EACH_US, self._send, self.nodes[sender], None)

    def _send(self, node: Node, _: None) -> None:
        size, service = self._load[2:]
        process = node.process
        assert process is not None
        if process.tap.send_credit() < size:
            self.post(self.now_us + 1_000, self._send, node, None)
            return
        process.multicast([bytes(size)], service)

    def latencies(self) -> Iterator[int]:
        """At members of other clusters."""
        homes = {node.name: self._home[node.index] for node in self.nodes}
        sent = {
            (row.node, row.number): row.t_us
            for row in self.rows
            if row.kind == "send" and row.t_us >= self.began_us
        }
        for row in self.rows:
            sender = row.sender or ""
            if row.kind == "deliver" and (sender, row.number) in sent:
                if homes[row.node] != homes[sender]:
                    yield row.t_us - sent[sender, row.number]


def _members_seen(node: Node) -> int:
    view = node.process.view if node.process is not None else None
    return len(view.members) if view is not None else 0


def measured(
    service: Service,
    round_trip_us: int,
    senders: int,
    clusters: int = 3,
    each: int = 3,
    count: int = 20,
    size: int = 1000,
    **options: int,
) -> WideRun:
    """`senders` members, each of another cluster, send `count` messages each."""
    nodes = clusters * each
    homes = tuple(tuple(range(at * each, (at + 1) * each)) for at in range(clusters))
    link = LinkPlan("constant", round_trip_us // 4)  # Out of a cluster, and into another.
    weather = Weather(
        fault_us=SETTLE_US * 12 + count * EACH_US,
        clusters=homes,
        routers=tuple(Router(home, link) for home in homes),
        window_bytes_max=4 << 20,
        with_state=False,
    )
    plan = Plan(
        protocol="transis", nodes=nodes, faults="none", messages=0, weather=weather, options=options
    )
    world = WideWorld(plan, weather, checked_spec(plan), (service,))
    world.load([homes[at][-1] for at in range(senders)], count, size, service)
    world.post(weather.fault_us - 1, lambda *_: world.stop(), None, None)
    world.run()
    latencies = tuple(each / round_trip_us for each in world.latencies())
    assert len(latencies) == senders * count * (nodes - each)
    least = senders * count * size * (clusters - 1)
    return WideRun(service, round_trip_us, senders, latencies, world.wide_bytes / least)


def table() -> Iterator[str]:
    yield "| service | round trip | senders | median | longest | wide bytes |"
    yield "|---|---|---|---|---|---|"
    for service in (Service.CAUSAL, Service.AGREED):
        for round_trip_us in (20_000, 80_000, 150_000):
            for senders in (1, 3):
                yield measured(service, round_trip_us, senders).row()


if __name__ == "__main__":
    for line in table():
        print(line, flush=True)
