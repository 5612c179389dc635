"""The runs that broke a law: what happened, how to see it again, and a picture of it."""

from __future__ import annotations

from itertools import groupby
from typing import Final

from unisono.laws import VIOLATIONS_MAX, Violation
from unisono.spark.report.found import Findings, Picture, RunAbout
from unisono.spark.report.words import (
    anchor_of,
    clean,
    column,
    command,
    count_of,
    section,
    table,
)

SHOWN_MAX: Final = 12
"""So many are told at length."""
NAMED_MAX: Final = 200
"""So many more are named."""
TOLD_MAX: Final = 10
"""Of one law in one run; the table `violations` has more."""


def broken_section(findings: Findings) -> str:
    broken = findings.broken
    if not broken:
        return ""
    told = [_told(findings, run) for run in broken[:SHOWN_MAX]]
    rest = broken[SHOWN_MAX:]
    note = "What should not have been, with its witnesses. Each run has an address of its own."
    if rest:
        note += (
            f" Told at length: {SHOWN_MAX} of {count_of(len(broken), 'run')}, of each kind some."
        )
    return section("broken", "Broken runs", note, *told, _named(findings, rest))


def _told(findings: Findings, run: str) -> str:
    anchor, verdict = anchor_of(run), findings.verdicts[run]
    about = findings.about.get(run, RunAbout(""))
    laws = [law.replace("_", " ") for law, word in verdict.laws.items() if word == "broken"]
    facts = [about.protocol] if about.protocol else []
    facts += [f"broken: {', '.join(laws)}"] + ([] if about.whole else ["so far"])
    return (
        f'<article id="{anchor}" aria-labelledby="{anchor}-name">'
        f'<h3 id="{anchor}-name">{clean(run)} <a class="self" href="#{anchor}" '
        f'aria-label="Link to run {clean(run)}">#</a></h3>'
        f'<p class="note">{clean("; ".join(facts))}</p>'
        f'<ul class="told">{_violations(verdict.violations)}</ul>{_replay(about)}'
        f"{_picture(findings.pictures.get(run))}</article>"
    )


def _violations(violations: list[Violation]) -> str:
    parts = []
    for law, group in groupby(violations, key=lambda violation: violation.law):
        told = list(group)
        parts += [f"<li>{_sentence(each)}</li>" for each in told[:TOLD_MAX]]
        if len(told) > TOLD_MAX:
            at_least = "at least " if len(told) >= VIOLATIONS_MAX else ""
            parts.append(
                f'<li class="more">{clean(law.replace("_", " "))}: {at_least}'
                f"{len(told) - TOLD_MAX} more, in the table <code>violations</code></li>"
            )
    return "".join(parts)


def _sentence(violation: Violation) -> str:
    where = f"at <code>{clean(violation.life)}</code>" if violation.life else "in the group"
    parts = [f"<strong>{clean(violation.law.replace('_', ' '))}</strong> {where}"]
    if violation.message:
        parts.append(f"message <code>{clean(violation.message)}</code>")
    if violation.other:
        parts.append(f"with <code>{clean(violation.other)}</code>")
    return f"{', '.join(parts)}: {clean(violation.detail)}"


def _replay(about: RunAbout) -> str:
    if about.replay:
        return command(about.replay, "Make this run again")
    return (
        '<p class="note">No command is known that makes this run again: it was not simulated, or '
        "has no <code>replay.txt</code>.</p>"
    )


def _picture(picture: Picture | None) -> str:
    if picture is None:
        return ""
    line = command(picture.command, "Draw it into a file of its own") if picture.command else ""
    if not picture.svg:
        return f'<p class="note no-picture">No diagram: {clean(picture.told)}</p>{line}'
    return (
        f'<figure class="diagram"><figcaption class="note">{clean(picture.told)}</figcaption>'
        '<div class="scroll drawing" tabindex="0" role="region" aria-label="Space-time diagram">'
        f"{picture.svg}</div></figure>{line}"
    )


def _named(findings: Findings, rest: list[str]) -> str:
    if not rest:
        return ""
    rows = []
    for run in rest[:NAMED_MAX]:
        about, verdict = findings.about.get(run, RunAbout("")), findings.verdicts[run]
        laws = (law.replace("_", " ") for law, word in verdict.laws.items() if word == "broken")
        replay = f"<code>{clean(about.replay)}</code>" if about.replay else "–"
        rows.append(
            f'<tr id="{anchor_of(run)}"><th scope="row">{clean(run)}</th>'
            f"<td>{clean(', '.join(laws))}</td><td>{replay}</td></tr>"
        )
    hidden = len(rest) - NAMED_MAX
    more = (
        f" {count_of(hidden, 'run')} more in the table <code>verdicts</code>." if hidden > 0 else ""
    )
    head = (column("run"), column("laws broken"), column("makes it again"))
    return f'<h3 id="broken-others">The others</h3><p class="note">Named only.{more}</p>' + table(
        "Other broken runs", head, rows, "others"
    )
