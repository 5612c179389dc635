"""`unisono verify`: the laws on a trace, in this process."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from unisono.cli import BAD_INPUT, BROKEN, OK
from unisono.cli.show import out, print_json, print_violations, status, verdicts
from unisono.errors import BadTrace
from unisono.laws import LAWS, Verdict, judge_all
from unisono.laws.verdict import verdict_json
from unisono.protocols import offers
from unisono.trace.files import Trace, read_trace

SAID_BY_ALL: Final = ("no_creation", "no_duplication")
"""What is asked of a protocol that is not in the catalogue: no level of service allows less."""


def claimed() -> dict[str, tuple[str, ...]]:
    """The laws that each protocol of the catalogue claims."""
    return {name: offer.laws for name, offer in offers().items()}


def claims(protocol: str) -> tuple[str, ...]:
    return claimed().get(protocol, SAID_BY_ALL)


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
    return exit_code(kept, len(trace.unjudged), allow_quarantined)


def exit_code(kept: bool, unjudged: int, allow_quarantined: bool) -> int:
    """What was there and not judged is no success, unless that is allowed."""
    if not kept:
        return BROKEN
    return OK if allow_quarantined or not unjudged else BAD_INPUT


def print_unjudged(
    console: Console, contradicted: Mapping[str, Collection[str]], unjudged: int
) -> None:
    for run, lives in sorted(contradicted.items()):
        for life in sorted(lives):
            told = f"{run}: two files tell {life} in different ways"
            console.print(told, style="red", markup=False)
    if unjudged:
        told = f"{unjudged:,} rows or files were there and not judged"
        console.print(f"[yellow]{told}; --allow-quarantined says that this is well[/]")


def check_some(directory: Path, events: int, quarantined: int) -> None:
    """Where nothing could be judged, nothing is kept."""
    if not events:
        raise BadTrace(
            f"{directory}: no event in it can be judged ({quarantined} rows or files are not of a"
            " trace); give the directory that --trace wrote"
        )


def as_object(trace: Trace, found: Mapping[str, Verdict]) -> dict[str, Any]:
    """The shape that `verify --json` and `pipeline --json` share."""
    runs = {run: verdict_json(verdict) for run, verdict in sorted(found.items())}
    told = {run: sorted(lives) for run, lives in sorted(trace.contradicted.items())}
    return {
        "runs": runs,
        "events": trace.events,
        "quarantined": len(trace.quarantined),
        "contradicted": told,
    }


def show(trace: Trace, found: Mapping[str, Verdict]) -> None:
    console = out()
    sentences = {name: law.sentence for name, law in LAWS.items()}
    for run, verdict in sorted(found.items()):
        rows = trace.runs.get(run, ())
        names = sorted({row.protocol for row in rows})
        lives = len({(row.node, row.incarnation) for row in rows})
        console.print(f"[bold]{run}[/]  {', '.join(names)}, {len(rows):,} events, {lives} lives")
        console.print(verdicts(verdict.laws, sentences))
        if unknown := [name for name in names if name not in claimed()]:
            console.print(
                f"[yellow]{', '.join(unknown)} is not in the catalogue: only"
                f" {' and '.join(SAID_BY_ALL)} were asked of it[/]"
            )
        print_violations(console, verdict.violations)
    if trace.quarantined:
        console.print(f"[yellow]not judged: {len(trace.quarantined)} rows or files[/]")
        for each in trace.quarantined[:5]:
            where = each.path if each.row is None else f"{each.path} row {each.row}"
            console.print(f"  {where}: {each.reason}", markup=False)
    print_unjudged(console, trace.contradicted, len(trace.unjudged))
