"""The runs that broke a law: the violations, how to reproduce them, and a diagram."""

from __future__ import annotations

from itertools import groupby
from typing import Final

from unisono.laws import VIOLATIONS_MAX, Violation
from unisono.spark.report.markup import (
    anchor_of,
    clean,
    column,
    command,
    count_of,
    more_in,
    section,
    spaced,
    table,
)
from unisono.spark.report.model import Diagram, Findings, RunInfo, broken_laws

SHOWN_MAX: Final = 12
"""Runs that are shown in full."""
NAMED_MAX: Final = 200
"""Further runs that are named."""
VIOLATIONS_SHOWN_MAX: Final = 10
"""Of one law in one run; the table `violations` has more."""


def broken_section(findings: Findings) -> str:
    broken = findings.broken
    if not broken:
        return ""
    rest = broken[SHOWN_MAX:]
    note = "Violations with their witnesses. Each run has its own link."
    if rest:
        note += f" In full: {SHOWN_MAX} of {count_of(len(broken), 'run')}, some of each kind."
    shown = [_run(findings, run) for run in broken[:SHOWN_MAX]]
    return section("broken", "Broken runs", note, *shown, _named(findings, rest))


def uncertain_section(findings: Findings) -> str:
    """Runs that break no law for certain, and may break one."""
    runs = [run for run, each in sorted(findings.verdicts.items()) if each.kept and each.uncertain]
    if not runs:
        return ""
    shown = "".join(
        f'<h3>{clean(run)}</h3><ul class="told">{_violations(findings.verdicts[run].violations)}'
        f"</ul>{_replay(findings.info_of(run))}"
        for run in runs[:SHOWN_MAX]
    )
    note = f"Rows that could not be read may explain these.{more_in(len(runs) - SHOWN_MAX, 'runs')}"
    return section("uncertain", "Uncertain runs", note, shown)


def _run(findings: Findings, run: str) -> str:
    anchor, verdict, info = anchor_of(run), findings.verdicts[run], findings.info_of(run)
    laws = ", ".join(map(spaced, broken_laws(verdict)))
    facts = [info.protocol, f"broken: {laws}", "" if info.complete else "so far"]
    return (
        f'<article id="{anchor}" aria-labelledby="{anchor}-name">'
        f'<h3 id="{anchor}-name">{clean(run)} <a class="self" href="#{anchor}" '
        f'aria-label="Link to run {clean(run)}">#</a></h3>'
        f'<p class="note">{clean("; ".join(filter(None, facts)))}</p>'
        f'<ul class="told">{_violations(verdict.violations)}</ul>{_replay(info)}'
        f"{_diagram(findings.diagrams.get(run))}</article>"
    )


def _violations(violations: list[Violation]) -> str:
    parts = []
    for law, group in groupby(violations, key=lambda violation: violation.law):
        found = list(group)
        parts += [f"<li>{_sentence(each)}</li>" for each in found[:VIOLATIONS_SHOWN_MAX]]
        hidden = len(found) - VIOLATIONS_SHOWN_MAX
        if hidden > 0:
            at_least = "at least " if len(found) >= VIOLATIONS_MAX else ""
            parts.append(
                f'<li class="more">{clean(spaced(law))}: {at_least}'
                f"{hidden} more, in the table <code>violations</code></li>"
            )
    return "".join(parts)


def _sentence(violation: Violation) -> str:
    where = f"at <code>{clean(violation.life)}</code>" if violation.life else "in the group"
    parts = [f"<strong>{clean(spaced(violation.law))}</strong> {where}"]
    if violation.message:
        parts.append(f"message <code>{clean(violation.message)}</code>")
    if violation.other:
        parts.append(f"with <code>{clean(violation.other)}</code>")
    return f"{', '.join(parts)}: {clean(violation.detail)}"


def _replay(info: RunInfo) -> str:
    if info.replay:
        return command(info.replay, "Reproduce this run")
    return (
        '<p class="note">No command reproduces this run: it was not simulated, or has no '
        "<code>replay.txt</code>.</p>"
    )


def _diagram(diagram: Diagram | None) -> str:
    if diagram is None:
        return ""
    line = command(diagram.command, "Draw it into a file") if diagram.command else ""
    if not diagram.svg:
        return f'<p class="note no-picture">No diagram: {clean(diagram.caption)}</p>{line}'
    return (
        f'<figure class="diagram"><figcaption class="note">{clean(diagram.caption)}</figcaption>'
        '<div class="scroll drawing" tabindex="0" role="region" aria-label="Space-time diagram">'
        f"{diagram.svg}</div></figure>{line}"
    )


def _named(findings: Findings, rest: list[str]) -> str:
    if not rest:
        return ""
    rows = []
    for run in rest[:NAMED_MAX]:
        laws, replay = broken_laws(findings.verdicts[run]), findings.info_of(run).replay
        rows.append(
            f'<tr id="{anchor_of(run)}"><th scope="row">{clean(run)}</th>'
            f"<td>{clean(', '.join(map(spaced, laws)))}</td>"
            f"<td>{f'<code>{clean(replay)}</code>' if replay else '–'}</td></tr>"
        )
    more = more_in(len(rest) - NAMED_MAX, "verdicts", "run")
    head = (column("run"), column("laws broken"), column("reproduced by"))
    return f'<h3 id="broken-others">The others</h3><p class="note">By name only.{more}</p>' + table(
        "Other broken runs", head, rows, "others"
    )
