"""`unisono sim`: one simulated run, or a campaign of many."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rich.markup import escape

from unisono.cli import BROKEN, OK
from unisono.cli.options import integer, integers, options_of
from unisono.cli.show import (
    out,
    print_json,
    print_violations,
    progress_bar,
    status,
    verdicts,
)
from unisono.core import DEFAULT_PROTOCOL
from unisono.errors import Misuse
from unisono.sim import Outcome, Plan, Shrunk, Summary, outcome_json, read_plan, run, shrunk
from unisono.sim import campaign as run_campaign
from unisono.sim.plan import service_of
from unisono.sim.planfile import write_plan
from unisono.sim.programs import PROGRAM_LAWS
from unisono.sim.run import WORLD_LAWS, checked_spec

NODES_DRAWN: Final = (3, 7)
"""The default range of a campaign, from which each seed draws."""


def single(
    wanted: dict[str, Any],
    plan: Path | None,
    trace: Path | None,
    detail: bool,
    shrink: bool,
    as_json: bool,
) -> int:
    if detail and trace is None:
        raise Misuse("--detail needs a trace: write --trace DIR too")
    chosen = plan_of(wanted, plan)
    with status(f"simulating {chosen.run_name} …"):
        outcome = run(replace(chosen, trace=trace, detail=detail), time.perf_counter)
    line = outcome.replay if plan is None else _replay(chosen, plan)
    outcome = replace(outcome, replay=line)
    if trace is not None:
        from unisono.trace.files import note_replay

        note_replay(trace, chosen.run_name, line)
    small = file = None
    if shrink and outcome.broken:
        small, file = _shrunk(chosen)
    if as_json:
        print_json(outcome_json(outcome) | (_small_json(small, file) if small and file else {}))
    else:
        show(outcome, shrink)
        if small is not None and file is not None:
            show_small(small, file)
    return BROKEN if outcome.broken else OK


def with_program(wanted: dict[str, Any], name: str | None) -> dict[str, Any]:
    if name is None:
        return wanted
    if "messages" in wanted:
        raise Misuse("--messages is the simulator's own load: with --app the program sends")
    from unisono.programs import named_program

    return {**wanted, "program": named_program(name), "messages": 0}


def plan_of(wanted: Mapping[str, Any], file: Path | None) -> Plan:
    if file is not None:
        wanted = dict(wanted)
        program = wanted.pop("program", None)
        if program is not None:
            del wanted["messages"]
        if wanted:
            named = ", ".join(f"--{name.replace('options', 'option')}" for name in wanted)
            raise Misuse(f"the plan determines everything: leave out {named}, or edit {file}")
        return replace(read_plan(file), program=program)
    fields = dict(wanted)
    if "nodes" in fields:
        fields["nodes"] = integer(fields["nodes"], "--nodes")
    return Plan(**{"protocol": DEFAULT_PROTOCOL} | _read(fields))


def _read(fields: dict[str, Any]) -> dict[str, Any]:
    """The service and the options, from their text."""
    if "service" in fields:
        fields["service"] = service_of(fields["service"])
    if "options" in fields:
        fields["options"] = options_of(fields["options"])
    return fields


# -- one run -------------------------------------------------------------------------------------


def show(outcome: Outcome, shrink: bool) -> None:
    console = out()
    options = "".join(f", {name} {value}" for name, value in outcome.options.items())
    console.print(
        f"[bold]{outcome.protocol}[/]  {outcome.nodes} nodes, faults {outcome.faults},"
        f" seed {outcome.seed}{options}"
    )
    console.print(verdicts(outcome.laws, {**WORLD_LAWS, **PROGRAM_LAWS}))
    console.print(
        f"{outcome.sent:,} sent, {outcome.delivered:,} delivered, {outcome.steps:,} steps;"
        f" {outcome.virtual_s:.1f} s simulated in {outcome.wall_s:.2f} s:"
        f" {outcome.rate:.0f} simulated seconds a second"
    )
    if outcome.broken:
        console.print(f"[bold red]broken:[/] {', '.join(outcome.broken)}")
        print_violations(console, outcome.violations)
        console.print(f"replay: {escape(outcome.replay)}")
        if not shrink:
            console.print("[dim]add --shrink to reduce it[/]")
    elif shrink:
        console.print("nothing to shrink: no law is broken")


def _shrunk(plan: Plan) -> tuple[Shrunk, Path]:
    with status("shrinking …") as spinner:

        def report(text: str) -> None:
            if spinner is not None:
                spinner.update(f"shrinking … {text}")

        small = shrunk(plan, report=report)
    file = Path(f"small-{plan.run_name}.json")
    try:
        write_plan(small.plan, file)
        if plan.program is not None:
            from unisono.programs.seeds import drawing_of

            file.with_suffix(".svg").write_text(drawing_of(small.plan), encoding="utf-8")
    except OSError as error:
        raise Misuse(
            f"cannot write {file}: {error.strerror}; run it in a writable directory"
        ) from None
    return small, file


def _small_json(small: Shrunk, file: Path) -> dict[str, Any]:
    return {
        "shrunk": {
            "law": small.law,
            "plan": str(file),
            "nodes": small.plan.nodes,
            "messages": small.plan.messages,
            "faults": [str(event) for event in small.plan.schedule],
            "attempts": small.attempts,
            "replay": _replay(small.plan, file),
        }
    }


def show_small(small: Shrunk, file: Path) -> None:
    console, plan = out(), small.plan
    console.print(
        f"[bold]shrunk[/] in {small.attempts} attempts: {plan.nodes} nodes, {plan.messages}"
        f" messages, {len(plan.schedule)} faults still break [red]{small.law}[/]"
    )
    for event in plan.schedule:
        console.print(f"  {event}", markup=False)
    print_violations(console, small.outcome.violations)
    console.print(f"written to {file}; replay: {_replay(plan, file)}", markup=False)
    if plan.program is not None:
        console.print(f"drawn in {file.with_suffix('.svg')}", markup=False)


def _replay(plan: Plan, file: Path) -> str:
    app = f"--app {plan.program.name} " if plan.program is not None else ""
    return f"unisono sim {app}--plan {file}"


# -- a campaign ----------------------------------------------------------------------------------


def campaign(
    seeds: str,
    wanted: dict[str, Any],
    misplaced: Mapping[str, Any],
    jobs: int | None,
    as_json: bool,
) -> int:
    first, last = integers(seeds, "--seeds")
    if first == last:
        raise Misuse(f"--seeds {seeds!r} is empty: B must exceed A")
    for name in (*misplaced, *({"seed"} & wanted.keys())):
        raise Misuse(f"--{name} is for one run: leave it out, or --seeds")
    fields = _read(dict(wanted))
    nodes = _nodes(fields.pop("nodes", None))
    common = Plan(**{"protocol": DEFAULT_PROTOCOL} | fields)
    checked_spec(replace(common, nodes=nodes[1]))
    with progress_bar(last - first, as_json) as update:

        def report(summary: Summary) -> None:
            failures = f"{len(summary.failures)} failures"
            update(summary.runs, f"{_runs_per_s(summary):.1f} runs/s, {failures}")

        summary = run_campaign(
            common.protocol,
            range(first, last),
            common.faults,
            nodes,
            jobs or _cores(),
            common.messages,
            progress=report,
            plan=common,
        )
    if as_json:
        print_json(_summary_json(summary, common, first, last))
    else:
        show_summary(summary, common, last - first)
    return BROKEN if summary.failures else OK


def _cores() -> int:
    """How many this process may use; of more than 256, 256."""
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1, 256)


def _nodes(text: str | None) -> tuple[int, int]:
    if text is None:
        return NODES_DRAWN
    if ":" in text:
        return integers(text, "--nodes")
    return (integer(text, "--nodes"),) * 2


def _summary_json(summary: Summary, plan: Plan, first: int, last: int) -> dict[str, Any]:
    failures: Sequence[Any] = summary.failures
    return {
        "protocol": plan.protocol,
        "faults": plan.faults,
        "seeds": [first, last],
        "runs": summary.runs,
        "failures": [
            {
                "seed": each.seed,
                "broken": list(each.broken),
                "violation": each.text,
                "replay": each.replay,
            }
            for each in failures
        ],
        "sent": summary.sent,
        "delivered": summary.delivered,
        "steps": summary.steps,
        "virtual_s": summary.virtual_s,
        "wall_s": summary.wall_s,
        "rate": summary.rate,
        "runs_per_s": _runs_per_s(summary),
        "excluded": summary.excluded,
        "excluded_unforced": summary.unforced,
    }


def _runs_per_s(summary: Summary) -> float:
    """Of all processes together."""
    return summary.runs / summary.wall_s if summary.wall_s else 0.0


def show_summary(summary: Summary, plan: Plan, total: int) -> None:
    console = out()
    verdict = (
        f"[bold red]{len(summary.failures)} broke a law[/]"
        if summary.failures
        else "[green]no law broken, progress after healing in every run[/]"
    )
    console.print(
        f"[bold]{plan.protocol}[/]  {summary.runs:,} of {total:,} runs of {plan.faults}: {verdict}"
    )
    console.print(
        f"{summary.sent:,} sent, {summary.delivered:,} delivered, {summary.steps:,} steps;"
        f" {summary.virtual_s:,.0f} s simulated in {summary.wall_s:.1f} s:"
        f" {_runs_per_s(summary):.1f} runs and {summary.rate:.0f} simulated seconds a second"
    )
    console.print(
        f"{summary.excluded:,} members excluded by others, {summary.unforced:,} of them unforced:"
        " no fault had affected them"
    )
    for each in summary.failures:
        console.print(f"  [red]•[/] {', '.join(each.broken)}: {escape(each.text)}")
        console.print(f"    replay: {escape(each.replay)}")
