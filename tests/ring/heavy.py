"""Chaos in which turns take their time."""

from __future__ import annotations

from dataclasses import replace

from unisono.sim import Plan
from unisono.sim.swarm import drawn
from unisono.spec import ProtocolSpec


def heavy(seed: int, spec: ProtocolSpec | None = None) -> Plan:
    """Many messages, small turns and little bandwidth, so that turns take their time."""
    options = {"turn_packets": (2, 3, 6, 40)[seed % 4]}
    chaos = Plan(
        protocol="ring", spec=spec, nodes=3 + seed % 5, seed=seed, messages=60, options=options
    )
    plan = drawn(chaos)
    weather = plan.weather
    assert weather is not None
    slow = replace(weather.link, bytes_per_s=3_000_000, queue_bytes=1 << 18)
    weather = replace(
        weather, large_ppm=500_000, large_packets=12, burst_max=10, window_bytes_max=1 << 20,
        link=slow if seed % 2 else weather.link,
    )  # fmt: skip
    return replace(plan, weather=weather)
