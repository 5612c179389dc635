"""What a sweep is asked for: which protocols, which seeds, and the plan of each run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from unisono.errors import Misuse
from unisono.model import ServiceLevel
from unisono.sim.campaign import plans_of
from unisono.sim.checking import check_plan
from unisono.sim.plan import Plan
from unisono.sim.run import offered, services_for

RUNS_MAX: Final = 1_000_000
"""Runs of one sweep. A million take some 80 GB with all traces kept, and days on two cores."""
NAME: Final = "run={}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Each protocol with each seed from `first` to `last - 1`."""

    protocols: tuple[str, ...]
    first: int
    last: int
    faults: str = "chaos"
    nodes: tuple[int, int] = (3, 7)
    """How many nodes a run has is drawn from its seed between these, as a campaign does."""
    messages: int = 200
    service: ServiceLevel | None = None
    options: Mapping[str, int] = field(default_factory=dict)
    detail: bool = False

    @property
    def count(self) -> int:
        """How many runs it is."""
        return (self.last - self.first) * len(self.protocols)

    def plan(self, index: int) -> Plan:
        """The plan of a run by its place: all protocols of a seed stand side by side, so that
        neighbours take about as long."""
        seed, which = divmod(index, len(self.protocols))
        one = plans_of(
            self.protocols[which], (self.first + seed,), self.faults, self.nodes, self.messages
        )
        return replace(next(one), service=self.service, options=self.options, detail=self.detail)

    def check(self) -> None:
        """Refuse what cannot be run before anything is started."""
        if not self.protocols:
            raise Misuse("name a protocol, or all")
        if len(set(self.protocols)) < len(self.protocols):
            raise Misuse(f"a protocol is named twice: {', '.join(self.protocols)}")
        if not 0 <= self.first < self.last:
            raise Misuse(f"seeds {self.first}:{self.last}: write two numbers, the lesser first")
        if self.count > RUNS_MAX:
            raise Misuse(
                f"{self.count:,} runs are more than {RUNS_MAX:,}, the most of one sweep: give"
                " fewer seeds, and the rest to another"
            )
        low, high = self.nodes
        if not 1 <= low <= high:
            raise Misuse(f"nodes {low}:{high}: write two numbers from 1 on, the lesser first")
        for index, _ in enumerate(self.protocols):
            # What holds for the largest group holds for all.
            plan = replace(self.plan(index), nodes=high)
            check_plan(plan)
            services_for(plan, offered(plan))
