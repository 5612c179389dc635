"""`unisono verify`: the laws on a trace, in this process."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from unisono.cli import BAD_INPUT, BROKEN, OK
from unisono.cli.show import out, print_json, print_violations, status, verdicts
from unisono.errors import BadTrace
from unisono.laws.columnar import JudgedRun, judge_trace
from unisono.laws.verdict import verdict_json
from unisono.protocols import specs
from unisono.trace.reading import Quarantined

CLAIMED_BY_ALL: Final = ("no_creation", "no_duplication")
"""Checked for an unknown protocol: every service level implies them."""
QUARANTINED_SHOWN_MAX: Final = 5


def claimed() -> dict[str, tuple[str, ...]]:
    """The laws that each protocol of the catalogue claims."""
    return {name: spec.laws for name, spec in specs().items()}


def claims(protocol: str) -> tuple[str, ...]:
    return claimed().get(protocol, CLAIMED_BY_ALL)


def verify(directory: Path, as_json: bool, allow_quarantined: bool = False) -> int:
    with status("reading and judging …"):
        found = judge_trace(directory, claims)
    quarantined = [each for run in found.values() for each in run.quarantined]
    check_some(directory, sum(run.events for run in found.values()), len(quarantined))
    if as_json:
        print_json(as_object(found))
    else:
        show(found, quarantined)
    kept = not any(run.contradicted or not run.verdict.kept for run in found.values())
    uncertain = any(run.verdict.uncertain for run in found.values())
    return exit_code(kept, _unjudged(quarantined), allow_quarantined, uncertain)


def _unjudged(quarantined: Iterable[Quarantined]) -> int:
    """What was there and was not judged: all but what a killed process could not write."""
    return sum(not each.is_cut for each in quarantined)


def exit_code(kept: bool, unjudged: int, allow_quarantined: bool, uncertain: bool) -> int:
    """Rows that could not be judged are a failure, unless they are allowed; so is a law that
    depends on them."""
    if not kept:
        return BROKEN
    return OK if not uncertain and (allow_quarantined or not unjudged) else BAD_INPUT


def print_quarantined(
    console: Console, first: Sequence[tuple[str, int | None, str]], count: int
) -> None:
    """The first of them: path, row and reason."""
    if count:
        console.print(f"[yellow]not judged: {count:,} rows or files[/]")
    for path, row, reason in first[:QUARANTINED_SHOWN_MAX]:
        where = path if row is None else f"{path} row {row}"
        console.print(f"  {where}: {reason}", markup=False)


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


def as_object(found: Mapping[str, JudgedRun]) -> dict[str, Any]:
    """The shape that `verify --json` and `pipeline --json` share."""
    runs = sorted(found.items())
    return {
        "runs": {name: verdict_json(run.verdict) for name, run in runs if run.verdict.laws},
        "events": sum(run.events for run in found.values()),
        "quarantined": sum(len(run.quarantined) for run in found.values()),
        "contradicted": {name: run.contradicted for name, run in runs if run.contradicted},
    }


def show(found: Mapping[str, JudgedRun], quarantined: Sequence[Quarantined]) -> None:
    console = out()
    for name, run in sorted(found.items()):
        if not run.verdict.laws:
            continue
        console.print(
            f"[bold]{name}[/]  {', '.join(run.protocols)}, {run.events:,} events,"
            f" {run.lives} members"
        )
        console.print(verdicts(run.verdict.laws))
        if unknown := [each for each in run.protocols if each not in claimed()]:
            console.print(
                f"[yellow]{', '.join(unknown)} is not in the catalogue: only"
                f" {' and '.join(CLAIMED_BY_ALL)} were checked[/]"
            )
        print_violations(console, run.verdict.violations)
    print_quarantined(console, quarantined, len(quarantined))
    contradicted = {name: run.contradicted for name, run in found.items()}
    print_unjudged(console, contradicted, _unjudged(quarantined))
