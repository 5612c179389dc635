"""A lossy router before thirty members: how many of them request what all have missed?

`python -m tests.mtp.storm` prints the table of docs/PROTOCOLS.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from unisono.core import Core, CoreConfig
from unisono.model import Service
from unisono.protocols import spec
from unisono.sim.nodes import Node
from unisono.sim.plan import LinkPlan, Plan, Router, Weather
from unisono.sim.run import verdict_on
from unisono.sim.workload import payload_of
from unisono.sim.world import World
from unisono.trace.history import History

BEHIND: Final = 30
OUTSIDE: Final = 2
"""The master, and one more: both send."""
MESSAGES: Final = 200
OCTETS: Final = 4_000
"""Of a message, in four packets."""
LOSS_PPM: Final = 80_000
"""At the router, on the way in and on the way out."""
BEGIN_US: Final = 1_000_000
EVERY_US: Final = 10_000
DALLIES: Final = (0, 2, 4, 8, 16)
HEAD: Final = """\
| f | router dropped | NAK packets | ranges in them | data sent again | all have it, mean | worst |
|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Tally:
    """What one run came to."""

    dally: int
    dropped: int
    packets: int
    """NAKs sent."""
    ranges: int
    """What they asked for."""
    repairs: int
    mean_ms: int
    """From when a message was sent until the last member had it."""
    worst_ms: int
    delivered: int
    stopped: int
    """Lives that had to join again."""
    broken: tuple[str, ...]

    @property
    def row(self) -> str:
        cells = (self.dally, self.dropped, self.packets, self.ranges, self.repairs)
        times = (f"{self.mean_ms} ms", f"{self.worst_ms} ms")
        return f"| {' | '.join((*(f'{cell:,}' for cell in cells), *times))} |\n"


class Storm(World):
    """Those before the router send in turns, those behind it receive."""

    def _plan_bursts(self, node: Node) -> None:
        if node.index < OUTSIDE:
            for turn in range(node.index, MESSAGES, OUTSIDE):
                self.post(BEGIN_US + turn * EVERY_US, self._say, node, OCTETS)

    def _say(self, node: Node, octets: int) -> None:
        process = node.process
        assert process is not None and process.view is not None
        process.multicast([payload_of(process.me, process.sent_count + 1, octets)], Service.AGREED)


def storm(dally: int, seed: int = 1) -> Tally:
    usual, cores = spec("mtp"), list[Core]()

    def make(setting: CoreConfig) -> Core:
        cores.append(usual.make(setting))
        return cores[-1]

    router = Router(tuple(range(OUTSIDE, OUTSIDE + BEHIND)), LinkPlan(loss_ppm=LOSS_PPM))
    weather = Weather(fault_us=BEGIN_US + MESSAGES * EVERY_US + 300_000, routers=(router,))
    plan = Plan(
        protocol="mtp",
        nodes=OUTSIDE + BEHIND,
        seed=seed,
        options={"dally": dally},
        weather=weather,
    )
    world = Storm(plan, weather, replace(usual, make=make), (Service.AGREED,))
    world.run()
    history = History("storm", "mtp", world.group, tuple(world.rows))
    laws, _ = verdict_on(world, history)
    waits_us, delivered = _waits(history)
    count = {
        name: sum(core.counts.get(name, 0) for core in cores)
        for name in ("out.nak", "nak", "repair")
    }
    return Tally(
        dally=dally,
        dropped=world.network.totals()["router_lost"],
        packets=count["out.nak"],
        ranges=count["nak"],
        repairs=count["repair"],
        mean_ms=round(sum(waits_us) / len(waits_us) / 1000),
        worst_ms=round(max(waits_us) / 1000),
        delivered=delivered,
        stopped=world.counts["stopped"],
        broken=tuple(law for law, how in laws.items() if how == "broken"),
    )


def _waits(history: History) -> tuple[list[int], int]:
    """How long each message took to its last member, and deliveries in all; probes apart."""
    said: dict[tuple[str | None, int | None], int] = {}
    last: dict[tuple[str | None, int | None], int] = {}
    delivered = 0
    for row in history.rows:
        message = row.sender, row.number
        if (row.size or 0) < OCTETS:
            continue
        if row.kind == "send":
            said[message] = row.t_us
        elif row.kind == "deliver":
            last[message] = max(row.t_us, last.get(message, 0))
            delivered += 1
    return [last[message] - said[message] for message in said], delivered


def table(tallies: list[Tally]) -> str:
    return HEAD + "".join(tally.row for tally in tallies)


if __name__ == "__main__":
    print(table([storm(dally) for dally in DALLIES]), end="")
