"""Many seeds of a program, and the failing one made small: as a decorator of tests."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from unisono.core import DEFAULT_PROTOCOL
from unisono.draw import draw
from unisono.programs.program import Judge, Main, Program
from unisono.sim.plan import Plan
from unisono.sim.planfile import plan_to_json
from unisono.sim.run import Outcome, run
from unisono.sim.shrink import Shrunk, shrunk

SEEDS: Final = 100


class ProgramFailed(AssertionError):
    """A seed under which the program breaks a law; the message has its smallest case."""

    def __init__(self, text: str, small: Shrunk) -> None:
        super().__init__(text)
        self.small = small


def chaos(
    *,
    seeds: int | Iterable[int] = SEEDS,
    nodes: int = 5,
    faults: str = "chaos",
    protocol: str = DEFAULT_PROTOCOL,
    options: Mapping[str, int] | None = None,
    invariant: Judge | None = None,
    converged: Judge | None = None,
    files: str | Path = ".",
) -> Callable[[Main], Callable[[], None]]:
    """Make a test of `async def main(group, state: State)`: it runs under so many seeds, and the
    first that fails is shrunk, drawn into the directory `files`, and raised."""

    def decorate(main: Main) -> Callable[[], None]:
        program = Program(main, invariant, converged)
        plan = Plan(
            protocol=protocol,
            nodes=nodes,
            faults=faults,
            messages=0,
            options=options or {},
            program=program,
        )
        numbers = range(seeds) if isinstance(seeds, int) else tuple(seeds)

        @functools.wraps(main)
        def test() -> None:
            for seed in numbers:
                outcome = run(replace(plan, seed=seed))
                if outcome.broken:
                    raise failure(replace(plan, seed=seed), outcome, Path(files))

        del test.__wrapped__  # Its parameters are no fixtures.
        return test

    return decorate


def failure(plan: Plan, outcome: Outcome, files: Path) -> ProgramFailed:
    small = shrunk(plan)
    drawing = files / f"small-{plan.run_name}.svg"
    drawing.write_text(drawing_of(small.plan), encoding="utf-8")
    drawing.with_suffix(".json").write_text(plan_to_json(small.plan), encoding="utf-8")
    violation = small.outcome.violations[0] if small.outcome.violations else outcome.violations[0]
    faults = "".join(f"\n  {event}" for event in small.plan.schedule)
    return ProgramFailed(
        f"{violation.law}: {violation.detail}\n"
        f"first under seed {plan.seed} (replay with seeds=[{plan.seed}]), with {plan.nodes} nodes;"
        f" shrunk in {small.attempts} attempts to {small.plan.nodes} nodes and"
        f" {len(small.plan.schedule)} faults:{faults}\n"
        f"drawn in {drawing}",
        small,
    )


def drawing_of(plan: Plan) -> str:
    """The run as a space-time diagram."""
    history = run(replace(plan, detail=True)).history
    assert history is not None
    return draw(history).svg
