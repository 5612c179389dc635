"""Campaigns: many seeds, several processes, one summary."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from unisono.errors import Misuse
from unisono.sim.checking import check_plan
from unisono.sim.plan import Plan, dice
from unisono.sim.run import checked_spec, run, services_for
from unisono.spec import ProtocolSpec

CHUNK: Final = 4
"""Seeds that a worker takes at a time."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a campaign keeps of one run."""

    seed: int
    broken: tuple[str, ...]
    replay: str
    text: str
    """The first violation, as text."""
    sent: int
    delivered: int
    steps: int
    virtual_s: float
    wall_s: float
    excluded: int = 0
    """Processes that the group went on without."""
    unforced: int = 0
    """Of these, the ones without a fault to cause it."""


@dataclass(slots=True)
class Summary:
    """What a campaign found so far."""

    runs: int = 0
    failures: list[RunResult] = field(default_factory=list)
    sent: int = 0
    delivered: int = 0
    steps: int = 0
    virtual_s: float = 0.0
    wall_s: float = 0.0
    """Of the whole campaign, all workers side by side."""
    excluded: int = 0
    unforced: int = 0

    @property
    def rate(self) -> float:
        """Simulated seconds per wall second, all workers together."""
        return self.virtual_s / self.wall_s if self.wall_s > 0 else 0.0

    def add(self, result: RunResult) -> None:
        self.runs += 1
        self.sent += result.sent
        self.delivered += result.delivered
        self.steps += result.steps
        self.virtual_s += result.virtual_s
        self.excluded += result.excluded
        self.unforced += result.unforced
        if result.broken:
            self.failures.append(result)


def plans_of(
    protocol: str | ProtocolSpec,
    seeds: Iterable[int],
    faults: str,
    nodes: tuple[int, int],
    messages: int,
) -> Iterator[Plan]:
    """A plan a seed; how many nodes it has is drawn from the seed too."""
    spec = protocol if isinstance(protocol, ProtocolSpec) else None
    name = spec.name if spec else str(protocol)
    for seed in seeds:
        count = dice(seed, "nodes").randint(*nodes)
        yield Plan(
            protocol=name, spec=spec, nodes=count, seed=seed, faults=faults, messages=messages
        )


def campaign(
    protocol: str | ProtocolSpec,
    seeds: Iterable[int],
    faults: str = "chaos",
    nodes: tuple[int, int] = (3, 7),
    jobs: int = 2,
    messages: int = 200,
    failures_max: int = 20,
    progress: Callable[[Summary], None] | None = None,
    plan: Plan | None = None,
) -> Summary:
    """Run every seed and sum up; stop early after `failures_max` failures.

    `plan` gives what the runs have in common beyond the other arguments (service, options,
    progress bound).
    """
    if jobs < 1:
        raise Misuse(f"jobs must be at least 1, not {jobs}")
    if not 1 <= nodes[0] <= nodes[1]:
        raise Misuse(f"nodes must be a range such as (3, 7), not {nodes}")
    plans = plans_of(protocol, seeds, faults, nodes, messages)
    if plan is not None:
        common = plan
        plans = (
            replace(
                common,
                **{name: getattr(each, name) for name in ("protocol", "spec", "nodes", "seed")},
                faults=faults,
                messages=messages,
            )
            for each in plans
        )
    summary, started = Summary(), time.perf_counter()
    for result in _results(plans, jobs):
        summary.add(result)
        summary.wall_s = time.perf_counter() - started
        if progress is not None:
            progress(summary)
        if len(summary.failures) >= failures_max:
            break
    return summary


def _results(plans: Iterator[Plan], jobs: int) -> Iterator[RunResult]:
    """Results in the order of the plans, whatever worker was first."""
    first = next(plans, None)
    if first is None:
        return
    # A mistake in the arguments shows here, in one line, and not from inside a worker.
    check_plan(first)
    services_for(first, checked_spec(first))
    if jobs == 1:
        yield one(first)
        yield from map(one, plans)
        return
    # Workers are born fresh, so that nothing of the parent (threads, sockets) comes along.
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        waiting = [pool.apply_async(several, ([first],))]
        while waiting:
            # Few are handed out ahead, so that a campaign over endless seeds stays small.
            while len(waiting) < jobs * 2 and (some := list(islice(plans, CHUNK))):
                waiting.append(pool.apply_async(several, (some,)))
            yield from waiting.pop(0).get()


def several(plans: list[Plan]) -> list[RunResult]:
    return [one(plan) for plan in plans]


def one(plan: Plan) -> RunResult:
    """Run one plan and keep what a summary needs. Importable, so that a fresh worker finds it."""
    from unisono.laws import sentence

    outcome = run(plan, time.perf_counter)
    return RunResult(
        seed=outcome.seed,
        broken=outcome.broken,
        replay=outcome.replay,
        text=sentence(outcome.violations[0]) if outcome.violations else "",
        sent=outcome.sent,
        delivered=outcome.delivered,
        steps=outcome.steps,
        virtual_s=outcome.virtual_s,
        wall_s=outcome.wall_s,
        excluded=outcome.counts.get("excluded", 0),
        unforced=outcome.counts.get("excluded_unforced", 0),
    )
