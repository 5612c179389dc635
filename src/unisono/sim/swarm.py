"""Faults drawn by swarm: some kinds off, the rest at wildly different rates, all from the seed.
So are the options that a protocol wants varied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Final

from unisono.sim.chaos import log_uniform, with_chaos
from unisono.sim.plan import SECOND_US, Clock, FaultEvent, LinkPlan, Plan, Router, Weather, dice
from unisono.spec import ProtocolSpec

LINK_FAULTS: Final = ("loss", "burst", "duplicate", "reorder", "corrupt", "bandwidth", "unlike")
"""Kinds that act on packets all the time; `unlike` makes some links differ."""

PROCESS_FAULTS: Final = ("crash", "amnesia", "pause", "leave", "slow", "drift", "late")
"""Kinds that act on processes; `drift` is their clocks, `late` their first joining."""

WIDE_US: Final = 10_000, 75_000
"""From a cluster to the middle of the wide network, and from there to a cluster."""

PARTITIONS: Final = ("block", "split")

MILD: Final = (*LINK_FAULTS, *PROCESS_FAULTS, *PARTITIONS)

PROFILE_KINDS: Final = {
    "none": (),
    "loss": LINK_FAULTS,
    "crash": PROCESS_FAULTS,
    "partition": (*PARTITIONS, "loss", "late"),
    "mild": MILD,
    "chaos": MILD,
}
"""What may be on; `chaos` has the kinds of `chaos.py` beside these."""

ALWAYS: Final = {"none": (), "loss": ("loss", "burst"), "crash": ("crash", "amnesia", "pause")} | {
    "partition": PARTITIONS,
    "mild": (),
    "chaos": (),
}
"""Of these at least one is on, so that a profile keeps its promise."""


def drawn(plan: Plan) -> Plan:
    """The plan with its weather and its options made explicit; one that has its weather stays as
    it is."""
    if plan.weather is not None:
        return plan
    kinds = kinds_of(plan.faults, dice(plan.seed, "kinds"))
    roll = dice(plan.seed, "weather")
    fault_us = roll.randint(3, 10) * SECOND_US
    late = "late" in kinds
    weather = Weather(
        fault_us=fault_us,
        link=link_of(kinds, dice(plan.seed, "link"), plan.faults == "none"),
        schedule=schedule_of(kinds, plan.nodes, fault_us, dice(plan.seed, "schedule")),
        clocks=tuple(clock_of(dice(plan.seed, "clock", index)) for index in range(plan.nodes))
        if "drift" in kinds
        else (),
        starts_us=tuple(
            start_of(late, fault_us, dice(plan.seed, "start", index)) for index in range(plan.nodes)
        ),
        packet_bytes_max=roll.choice((600, 1400)),
        window_bytes_max=1 << roll.randint(15, 20),
        burst_max=roll.choice((1, 3, 10)),
        large_ppm=log_uniform(roll, 1_000, 200_000),
        large_packets=roll.randint(2, 8),
        with_state=roll.random() < 0.5,
        loopback=roll.random() < 0.5,
    )
    if "unlike" in kinds:
        links = unlike_links(kinds, plan.nodes, dice(plan.seed, "unlike"))
        weather = replace(weather, links=links)
    spec = spec_of(plan)
    plan = replace(plan, weather=weather, options=options_of(plan, spec))
    if plan.faults == "chaos":
        plan = with_chaos(plan, weather, spec)
    return in_clusters(plan) if plan.clusters else plan


def in_clusters(plan: Plan) -> Plan:
    """The plan with its nodes in clusters, each behind a router that stands for the wide link, and
    with partitions of whole clusters where there are faults."""
    weather, roll = plan.weather, dice(plan.seed, "clusters")
    assert weather is not None
    homes = [tuple(range(plan.nodes))[at :: plan.clusters] for at in range(plan.clusters)]
    loss_ppm = weather.link.loss_ppm // 10
    links = [LinkPlan(delay_us=roll.randint(*WIDE_US), loss_ppm=loss_ppm) for _ in homes]
    routers = tuple(map(Router, homes, links))
    splits = []
    if plan.faults in ("mild", "chaos", "partition") and plan.clusters > 1:
        for _ in range(roll.randint(0, 3)):
            order = roll.sample(homes, plan.clusters)
            border = roll.randrange(1, plan.clusters)
            here, there = (
                tuple(sorted(node for home in side for node in home))
                for side in (order[:border], order[border:])
            )
            at_us = roll.randrange(weather.fault_us)
            for_us = log_uniform(roll, 100_000, weather.fault_us)
            splits.append(FaultEvent("split", at_us, for_us, here, there))
    # No namesakes: a process elsewhere is in no cluster.
    events = [each for each in weather.schedule if each.kind != "namesake"]
    schedule = sorted((*events, *splits), key=lambda each: each.at_us)
    weather = replace(
        weather, clusters=tuple(homes), routers=routers, schedule=tuple(schedule), parts=()
    )
    return replace(plan, weather=weather)


def spec_of(plan: Plan) -> ProtocolSpec | None:
    """The protocol that the plan brings or the catalogue has, or None."""
    from unisono.protocols import specs

    found = plan.spec or specs().get(plan.protocol)
    return found.clustered if found is not None and plan.clusters else found


def options_of(plan: Plan, spec: ProtocolSpec | None) -> Mapping[str, int]:
    """The plan's options, and those that the protocol wants varied. Each has its own dice, so
    that setting one leaves the others as drawn."""
    if spec is None or plan.faults == "none":
        return plan.options
    wanted = {**spec.swarm, **(spec.chaos if plan.faults == "chaos" else {})}
    varied = {
        name: dice(plan.seed, "option", name).choice(values) for name, values in wanted.items()
    }
    return {**{name: value for name, value in varied.items() if value is not None}, **plan.options}


def kinds_of(profile: str, roll: Random) -> tuple[str, ...]:
    """The kinds that are on in this run: each with the toss of a coin."""
    kinds = [kind for kind in PROFILE_KINDS[profile] if roll.random() < 0.5]
    must = ALWAYS[profile] or PROFILE_KINDS[profile]
    if must and not any(kind in kinds for kind in must):
        kinds.append(roll.choice(must))
    return tuple(kinds)


def link_of(kinds: tuple[str, ...], roll: Random, calm: bool = False) -> LinkPlan:
    """A link with the kinds that are on, each at its own rate. Always the same number of draws."""
    loss, burst = log_uniform(roll, 1_000, 300_000), log_uniform(roll, 500, 50_000)
    burst_end, burst_loss = log_uniform(roll, 20_000, 500_000), roll.randint(500, 1000) * 1000
    duplicate, reorder = log_uniform(roll, 1_000, 200_000), log_uniform(roll, 1_000, 300_000)
    reorder_us, corrupt = log_uniform(roll, 500, 100_000), log_uniform(roll, 500, 50_000)
    bandwidth, queue = log_uniform(roll, 100_000, 10_000_000), log_uniform(roll, 8_192, 262_144)
    delay = roll.choice(("constant", "uniform", "exponential", "lognormal"))
    delay_us, spread_us = log_uniform(roll, 50, 5_000), log_uniform(roll, 50, 20_000)
    if calm:
        return LinkPlan()
    return LinkPlan(
        delay=delay,
        delay_us=delay_us,
        spread_us=spread_us,
        loss_ppm=loss if "loss" in kinds else 0,
        burst_ppm=burst if "burst" in kinds else 0,
        burst_end_ppm=burst_end,
        burst_loss_ppm=burst_loss,
        duplicate_ppm=duplicate if "duplicate" in kinds else 0,
        reorder_ppm=reorder if "reorder" in kinds else 0,
        reorder_us=reorder_us,
        corrupt_ppm=corrupt if "corrupt" in kinds else 0,
        bytes_per_s=bandwidth if "bandwidth" in kinds else 0,
        queue_bytes=queue,
    )


def unlike_links(
    kinds: tuple[str, ...], nodes: int, roll: Random
) -> tuple[tuple[int, int, LinkPlan], ...]:
    """A few directed links with rates of their own."""
    pairs = [(a, b) for a in range(nodes) for b in range(nodes) if a != b]
    some = roll.sample(pairs, roll.randint(0, min(len(pairs), nodes)))
    return tuple((a, b, link_of(kinds, roll)) for a, b in some)


def clock_of(roll: Random) -> Clock:
    """Some clocks are true, most are off by parts per million, a few by percents."""
    worst = roll.choice((0, 100, 1_000, 20_000))
    return Clock(ppm=roll.randint(-worst, worst), offset_us=roll.randrange(1 << 40))


def start_of(late: bool, fault_us: int, roll: Random) -> int:
    """Most join in the first moments; when `late` is on, one in three well into the run."""
    soon, later, chance = roll.randrange(300_000), roll.randrange(fault_us), roll.random()
    return later if late and chance < 0.34 else soon


def schedule_of(
    kinds: tuple[str, ...], nodes: int, fault_us: int, roll: Random
) -> tuple[FaultEvent, ...]:
    """For each kind that is on, one to a dozen events anywhere in the faults' time."""
    events = []
    for kind in (*PROCESS_FAULTS, *PARTITIONS):
        if kind not in kinds or kind in ("drift", "late") or (kind in PARTITIONS and nodes < 2):
            continue
        for _ in range(log_uniform(roll, 1, 12)):
            at_us = roll.randrange(fault_us)
            for_us = log_uniform(roll, 10_000, max(fault_us // 2, 10_001))
            here, there = sides_of(kind, nodes, roll)
            events.append(FaultEvent(kind, at_us, for_us, here, there))
    return tuple(sorted(events, key=lambda event: (event.at_us, event.kind, event.nodes)))


def sides_of(kind: str, nodes: int, roll: Random) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The nodes of an event: one, now and then several; of a partition, the two sides."""
    order = list(range(nodes))
    roll.shuffle(order)
    if kind in PARTITIONS:
        border = roll.randrange(1, nodes)
        there = order[border:]
        if kind == "block":
            there = there[: roll.randint(1, len(there))]
        return tuple(sorted(order[:border])), tuple(sorted(there))
    many = roll.randint(1, nodes) if roll.random() < 0.15 else 1
    return tuple(sorted(order[:many])), ()
