"""Each run against every law; for many runs, each protocol against the laws it claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from unisono.laws import LAWS, SENTENCES, Verdict
from unisono.spark.report.broken import NAMED_MAX, SHOWN_MAX
from unisono.spark.report.markup import (
    anchor_of,
    clean,
    column,
    count_of,
    section,
    spaced,
    table,
)
from unisono.spark.report.model import Findings, broken_laws

RUNS_MAX: Final = 40
"""More runs than this are counted by protocol and law."""
LINKED_MAX: Final = 5
"""Runs that are named beside a law that they broke."""

# fmt: off
SIGNS: Final = {
    "kept":        ("kept",   "✓"),
    "broken":      ("broken", "✕"),
    "uncertain":   ("none",   "?"),
    "not yet":     ("none",   "…"),
    "not claimed": ("none",   "–"),
}
# fmt: on


def laws_section(findings: Findings) -> str:
    if not findings.verdicts:
        return ""
    rank = {run: place for place, run in enumerate(findings.broken)}
    if len(findings.verdicts) <= RUNS_MAX:
        note = "Each run against every law; a protocol is judged by those it claims."
        return section("laws", "Laws", note, _by_run(findings, rank), _legend(findings))
    note = (
        f"{count_of(len(findings.verdicts), 'run')}, counted by protocol and law; a protocol is "
        "judged by the laws it claims. The table <code>verdicts</code> has each run."
    )
    return section("laws", "Laws", note, _by_law(findings, rank))


def _legend(findings: Findings) -> str:
    found = {each for verdict in findings.verdicts.values() for each in verdict.laws.values()}
    shown = " &ensp; ".join(
        f'<span class="{kind}"><span aria-hidden="true">{sign}</span></span> {outcome}'
        for outcome, (kind, sign) in SIGNS.items()
        if outcome in found or outcome not in ("uncertain", "not yet")
    )
    return f'<p class="key">{shown}</p>'


def _by_run(findings: Findings, rank: Mapping[str, int]) -> str:
    judged = {law for verdict in findings.verdicts.values() for law in verdict.laws}
    laws = [law for law in SENTENCES if law in LAWS or law in judged]
    head = [column("run")]
    head += [
        f'<th scope="col" title="{clean(SENTENCES[law])}"><span>{spaced(law)}</span></th>'
        for law in laws
    ]
    rows = []
    for run in sorted(findings.verdicts, key=lambda run: (rank.get(run, len(rank)), run)):
        complete = findings.info_of(run).complete
        so_far = "" if complete else ' <small class="so-far">so far</small>'
        cells = "".join(_cell(name, findings.verdicts[run]) for name in laws)
        rows.append(f'<tr><th scope="row">{link_to(run, rank)}{so_far}</th>{cells}</tr>')
    return table("Laws by run", head, rows, "laws")


def _cell(name: str, verdict: Verdict) -> str:
    outcome = verdict.laws.get(name, "not claimed")
    kind, sign = SIGNS[outcome]
    return (
        f'<td class="{kind}" title="{name}: {outcome}"><span aria-hidden="true">{sign}</span>'
        f'<span class="unseen">{outcome}</span></td>'
    )


def link_to(run: str, rank: Mapping[str, int]) -> str:
    """The name of a run, as a link if the page has more about it."""
    if rank.get(run, SHOWN_MAX + NAMED_MAX) < SHOWN_MAX + NAMED_MAX:
        return f'<a href="#{anchor_of(run)}">{clean(run)}</a>'
    return clean(run)


def _by_law(findings: Findings, rank: Mapping[str, int]) -> str:
    counts: Counter[tuple[str, str, str]] = Counter()
    broken_by: dict[tuple[str, str], list[str]] = {}
    for run, verdict in findings.verdicts.items():
        protocol = findings.protocol_of(run)
        counts.update((protocol, law, outcome) for law, outcome in verdict.laws.items())
        for law in broken_laws(verdict):
            broken_by.setdefault((protocol, law), []).append(run)
    order = list(SENTENCES)
    pairs = {(protocol, law) for protocol, law, outcome in counts if outcome != "not claimed"}
    rows = []
    for pair in sorted(pairs, key=lambda p: (p not in broken_by, p[0], order.index(p[1]))):
        protocol, law = pair
        kept, broken = counts[*pair, "kept"], counts[*pair, "broken"]
        open_ones = {name: counts[*pair, name] for name in ("uncertain", "not yet")}
        runs = sorted(broken_by.get(pair, ()), key=lambda run: rank[run])
        left = next((name for name, count in open_ones.items() if count), "kept")
        kind, sign = SIGNS["broken" if broken else left]
        so_far = "".join(f" <small>({n:,} {name})</small>" for name, n in open_ones.items() if n)
        links = ", ".join(link_to(run, rank) for run in runs[:LINKED_MAX])
        more = f" and {len(runs) - LINKED_MAX:,} more" if len(runs) > LINKED_MAX else ""
        rows.append(
            f'<tr><th scope="row" title="{clean(SENTENCES[law])}">'
            f'<span class="sign {kind}" aria-hidden="true">{sign}</span> '
            f"{spaced(law)}</th><td>{clean(protocol)}</td>"
            f'<td class="n">{kept:,}{so_far}</td><td class="n">{broken:,}</td>'
            f"<td>{links}{more}</td></tr>"
        )
    head = (
        column("law"), column("protocol"), column("kept", "n"), column("broken", "n"),
        column("runs that broke it"),
    )  # fmt: skip
    return table("Laws by protocol", head, rows, "counted")
