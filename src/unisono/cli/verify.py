"""`unisono verify`: the laws on a trace, in this process."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from unisono.cli import BAD_INPUT, BROKEN, OK
from unisono.cli.show import out, print_json, print_violations, status, verdicts
from unisono.errors import BadTrace
from unisono.laws import Verdict, judge_all
from unisono.laws.verdict import verdict_json
from unisono.protocols import specs
from unisono.trace.files import Trace, read_trace

CLAIMED_BY_ALL: Final = ("no_creation", "no_duplication")
"""Checked for an unknown protocol: every service level implies them."""


def claimed() -> dict[str, tuple[str, ...]]:
    """The laws that each protocol of the catalogue claims."""
    return {name: spec.laws for name, spec in specs().items()}


def claims(protocol: str) -> tuple[str, ...]:
    return claimed().get(protocol, CLAIMED_BY_ALL)


def verify(directory: Path, as_json: bool, allow_quarantined: bool = False) -> int:
    with status("reading and judging …"):
        trace = read_trace(directory)
        check_some(directory, trace.events, len(trace.quarantined))
        found = judge_all(trace.histories(), claims)
    if as_json:
        print_json(as_object(trace, found))
    else:
        show(trace, found)
    kept = not trace.contradicted and all(verdict.kept for verdict in found.values())
    uncertain = any(verdict.uncertain for verdict in found.values())
    return exit_code(kept, len(trace.unjudged), allow_quarantined, uncertain)


def exit_code(kept: bool, unjudged: int, allow_quarantined: bool, uncertain: bool) -> int:
    """Rows that could not be judged are a failure, unless they are allowed; so is a law that
    depends on them."""
    if not kept:
        return BROKEN
    return OK if not uncertain and (allow_quarantined or not unjudged) else BAD_INPUT


def print_unjudged(
    console: Console, contradicted: Mapping[str, Collection[str]], unjudged: int
) -> None:
    for run, lives in sorted(contradicted.items()):
        for life in sorted(lives):
            console.print(
                f"{run}: two files contradict each other about {life}", style="red", markup=False
            )
    if unjudged:
        console.print(
            f"[yellow]{unjudged:,} rows or files could not be judged; --allow-quarantined"
            " accepts that[/]"
        )


def check_some(directory: Path, events: int, quarantined: int) -> None:
    """`BadTrace` if nothing could be judged."""
    if not events:
        raise BadTrace(
            f"{directory}: no event in it can be judged ({quarantined} rows or files are not of a"
            " trace); give the directory that --trace wrote"
        )


def as_object(trace: Trace, found: Mapping[str, Verdict]) -> dict[str, Any]:
    """The shape that `verify --json` and `pipeline --json` share."""
    runs = {run: verdict_json(verdict) for run, verdict in sorted(found.items())}
    return {
        "runs": runs,
        "events": trace.events,
        "quarantined": len(trace.quarantined),
        "contradicted": {run: sorted(found) for run, found in sorted(trace.contradicted.items())},
    }


def show(trace: Trace, found: Mapping[str, Verdict]) -> None:
    console = out()
    for run, verdict in sorted(found.items()):
        rows = trace.runs.get(run, ())
        names = sorted({row.protocol for row in rows})
        lives = len({(row.node, row.incarnation) for row in rows})
        console.print(f"[bold]{run}[/]  {', '.join(names)}, {len(rows):,} events, {lives} members")
        console.print(verdicts(verdict.laws))
        if unknown := [name for name in names if name not in claimed()]:
            console.print(
                f"[yellow]{', '.join(unknown)} is not in the catalogue: only"
                f" {' and '.join(CLAIMED_BY_ALL)} were checked[/]"
            )
        print_violations(console, verdict.violations)
    if trace.quarantined:
        console.print(f"[yellow]not judged: {len(trace.quarantined)} rows or files[/]")
        for each in trace.quarantined[:5]:
            where = each.path if each.row is None else f"{each.path} row {each.row}"
            console.print(f"  {where}: {each.reason}", markup=False)
    print_unjudged(console, trace.contradicted, len(trace.unjudged))
