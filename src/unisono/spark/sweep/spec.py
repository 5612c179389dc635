"""The specification of a sweep: protocols, seeds, and the plan of each run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from unisono.errors import Misuse
from unisono.model import ServiceLevel
from unisono.sim.campaign import plans_of
from unisono.sim.checking import check_plan
from unisono.sim.plan import Plan
from unisono.sim.run import checked_spec, services_for

RUNS_MAX: Final = 1_000_000
"""A million runs take some 80 GB if all traces are kept, and days on two cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Each protocol with each seed from `first` to `last - 1`."""

    protocols: tuple[str, ...]
    first: int
    last: int
    faults: str = "chaos"
    nodes: tuple[int, int] = (3, 7)
    """The range from which a run's seed draws its number of nodes, as in a campaign."""
    messages: int = 200
    service: ServiceLevel | None = None
    options: Mapping[str, int] = field(default_factory=dict)
    detail: bool = False

    @property
    def count(self) -> int:
        """The number of runs."""
        return (self.last - self.first) * len(self.protocols)

    def plan(self, index: int) -> Plan:
        """The plan of a run: all protocols of a seed are adjacent, so that neighbours take about as
        long."""
        seed, which = divmod(index, len(self.protocols))
        one = plans_of(
            self.protocols[which], (self.first + seed,), self.faults, self.nodes, self.messages
        )
        return replace(next(one), service=self.service, options=self.options, detail=self.detail)

    def check(self) -> None:
        """`Misuse` for what cannot be run, before anything is started."""
        if not self.protocols:
            raise Misuse("no protocol: name one, or all")
        if len(set(self.protocols)) < len(self.protocols):
            raise Misuse(f"a protocol is named twice: {', '.join(self.protocols)}")
        if not 0 <= self.first < self.last:
            raise Misuse(f"seeds {self.first}:{self.last}: give two numbers, the smaller first")
        if self.count > RUNS_MAX:
            raise Misuse(
                f"{self.count:,} runs are more than {RUNS_MAX:,}, the limit of a sweep: give fewer"
                " seeds, and the rest to another"
            )
        low, high = self.nodes
        if not 1 <= low <= high:
            raise Misuse(f"nodes {low}:{high}: give two numbers from 1 on, the smaller first")
        for index, _ in enumerate(self.protocols):
            # A plan that is valid for the largest group is valid for all.
            plan = replace(self.plan(index), nodes=high)
            check_plan(plan)
            services_for(plan, checked_spec(plan))
