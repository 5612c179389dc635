"""The arrows that scenarios and simulated runs take, to find those that were never tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from tests.scenarios.stage import Stage
from unisono.core import Core, CoreConfig
from unisono.protocols import spec
from unisono.sim.plan import Plan
from unisono.sim.run import run
from unisono.spec import ProtocolSpec


def in_scenarios(protocol: str) -> list[Mapping[str, int]]:
    """The transition counts of every core of the protocol's scenarios."""
    walks: list[Mapping[str, int]] = []
    for path in sorted((Path(__file__).parent / protocol).glob("*.txt")):
        stage = Stage()
        for block in path.read_text().split("\n\n"):
            stage.obey(block.split("----")[0])
        walks += [
            core.transition_counts() for actor in stage.actors.values() for core in actor.lives
        ]
    return walks


def in_runs(
    protocol: str, plans: Callable[[ProtocolSpec], Iterable[Plan]]
) -> list[Mapping[str, int]]:
    """The same of simulated runs. The cores are asked, since a trace of arrows would be slow."""
    cores: list[Core] = []

    def make(config: CoreConfig) -> Core:
        cores.append(spec(protocol).make(config))
        return cores[-1]

    for plan in plans(replace(spec(protocol), make=make)):
        run(plan)
    return [core.transition_counts() for core in cores]
