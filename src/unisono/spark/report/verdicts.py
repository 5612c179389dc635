"""Each run against every law; where there are many runs, each protocol against those it claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from unisono.laws import LAWS, Verdict
from unisono.spark.report.broken import NAMED_MAX, SHOWN_MAX
from unisono.spark.report.found import Findings
from unisono.spark.report.words import anchor_of, clean, column, count_of, section, table

RUNS_MAX: Final = 40
"""More runs than this are counted, by protocol and law."""
LINKED_MAX: Final = 5
"""So many of the runs that broke a law are named beside it."""

# fmt: off
SIGNS: Final = {
    "kept":        ("kept",   "✓"),
    "broken":      ("broken", "✕"),
    "not yet":     ("none",   "…"),
    "not claimed": ("none",   "–"),
}
# fmt: on


def _key(findings: Findings) -> str:
    """What the signs mean; the rare one only where it stands."""
    rare = any("not yet" in verdict.laws.values() for verdict in findings.verdicts.values())
    shown = " &ensp; ".join(
        f'<span class="{kind}"><span aria-hidden="true">{sign}</span></span> {word}'
        for word, (kind, sign) in SIGNS.items()
        if rare or word != "not yet"
    )
    return f'<p class="key">{shown}</p>'


def laws_section(findings: Findings) -> str:
    if not findings.verdicts:
        return ""
    broken = findings.broken
    places = {run: place for place, run in enumerate(broken)}
    if len(findings.verdicts) <= RUNS_MAX:
        note = "Each run against every law; a protocol is judged by those it claims."
        shown = _by_run(findings, places)
        return section("laws", "Laws", note, shown, _key(findings))
    note = (
        f"{count_of(len(findings.verdicts), 'run')}, counted by protocol and law; a protocol is "
        "judged by the laws it claims. The table <code>verdicts</code> has each run."
    )
    return section("laws", "Laws", note, _by_law(findings, places))


def _by_run(findings: Findings, places: Mapping[str, int]) -> str:
    head = [column("run")]
    head += [
        f'<th scope="col" title="{clean(law.sentence)}"><span>{name.replace("_", " ")}</span></th>'
        for name, law in LAWS.items()
    ]
    order = sorted(findings.verdicts, key=lambda run: (places.get(run, len(places)), run))
    rows = [_law_row(findings, run, places) for run in order]
    return table("Laws by run", head, rows, "laws")


def _law_row(findings: Findings, run: str, places: Mapping[str, int]) -> str:
    verdict, about = findings.verdicts[run], findings.about.get(run)
    so_far = ' <small class="so-far">so far</small>' if about and not about.whole else ""
    cells = "".join(_cell(name, verdict) for name in LAWS)
    return f'<tr><th scope="row">{link_to(run, places)}{so_far}</th>{cells}</tr>'


def _cell(name: str, verdict: Verdict) -> str:
    word = verdict.laws[name]
    kind, sign = SIGNS[word]
    return (
        f'<td class="{kind}" title="{name}: {word}"><span aria-hidden="true">{sign}</span>'
        f'<span class="unseen">{word}</span></td>'
    )


def link_to(run: str, places: Mapping[str, int]) -> str:
    """The name of a run, as a link where the page tells more of it."""
    if places.get(run, SHOWN_MAX + NAMED_MAX) < SHOWN_MAX + NAMED_MAX:
        return f'<a href="#{anchor_of(run)}">{clean(run)}</a>'
    return clean(run)


# -- many ------------------------------------------------------------------------------------------


def _by_law(findings: Findings, places: Mapping[str, int]) -> str:
    counts: Counter[tuple[str, str, str]] = Counter()
    guilty: dict[tuple[str, str], list[str]] = {}
    for run, verdict in findings.verdicts.items():
        protocol = findings.protocol_of(run)
        counts.update((protocol, law, word) for law, word in verdict.laws.items())
        for law, word in verdict.laws.items():
            if word == "broken":
                guilty.setdefault((protocol, law), []).append(run)
    order = list(LAWS)
    pairs = {(protocol, law) for protocol, law, word in counts if word != "not claimed"}
    ranked = sorted(pairs, key=lambda p: (p not in guilty, p[0], order.index(p[1])))
    rows = []
    for protocol, law in ranked:
        kept, broken, later = (
            counts[protocol, law, word] for word in ("kept", "broken", "not yet")
        )
        runs = sorted(guilty.get((protocol, law), ()), key=lambda run: places[run])
        kind, sign = SIGNS["broken" if broken else "not yet" if later else "kept"]
        so_far = f" <small>({later:,} not yet)</small>" if later else ""
        links = ", ".join(link_to(run, places) for run in runs[:LINKED_MAX])
        more = f" and {len(runs) - LINKED_MAX:,} more" if len(runs) > LINKED_MAX else ""
        rows.append(
            f'<tr><th scope="row" title="{clean(LAWS[law].sentence)}">'
            f'<span class="sign {kind}" aria-hidden="true">{sign}</span> '
            f"{law.replace('_', ' ')}</th><td>{clean(protocol)}</td>"
            f'<td class="n">{kept:,}{so_far}</td><td class="n">{broken:,}</td>'
            f"<td>{links}{more}</td></tr>"
        )
    head = (
        column("law"), column("protocol"), column("kept", "n"), column("broken", "n"),
        column("runs that broke it"),
    )  # fmt: skip
    return table("Laws by protocol", head, rows, "counted")
