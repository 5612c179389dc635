"""The page for people: one HTML file that needs nothing else, in light and dark, wide and narrow.

Every name in it comes from a trace, and a trace may hold anything: all text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from unisono.laws import LAWS, VIOLATIONS_MAX, Verdict, sentence
from unisono.spark.measures import CURVE
from unisono.spark.plots import line_plot, linear, logarithmic

RUNS_SHOWN_MAX: Final = 200
TOLD_SHOWN_MAX: Final = 10
"""Of one law in one run; the table `violations` has more."""

# fmt: off
SIGNS: Final = {
    "kept":        ("kept",   "✓"),
    "broken":      ("broken", "✕"),
    "not claimed": ("none",   "–"),
}
# fmt: on


@dataclass(frozen=True)
class Findings:
    """What the pipeline found out, small enough to be read."""

    verdicts: dict[str, Verdict]
    measures: list[dict[str, Any]]
    events: int
    quarantined: int
    quarantine: Sequence[tuple[str, int | None, str]]
    """Path, row and reason: the first of them."""


@dataclass(frozen=True)
class Curves:
    """What is plotted: a series a run, or a protocol where there are many runs."""

    by: str
    latency: Mapping[str, Sequence[int]]
    """In microseconds, at the quantiles of `CURVE`."""
    rates: Mapping[str, Sequence[tuple[float, float]]]
    """Seconds since the run's first delivery, and deliveries a second at a member."""


def page(findings: Findings, curves: Curves) -> str:
    """The whole page."""
    style = (Path(__file__).parent / "report.css").read_text(encoding="utf-8")
    body = "".join(
        (
            _header(findings),
            _laws(findings),
            _violations(findings),
            _plots(curves),
            _measures(findings),
            _quarantine(findings),
            "<footer>Made by <code>unisono pipeline</code>. The tables beside this page hold "
            "everything it shows, and more.</footer>",
        )
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<title>Unisono: verdicts and measures</title>"
        f"<style>{style}</style></head>\n<body><main>{body}</main></body></html>\n"
    )


def _header(findings: Findings) -> str:
    runs = len(findings.verdicts)
    broken = sum(not verdict.kept for verdict in findings.verdicts.values())
    if not runs:
        title = "Nothing to judge"
    elif broken:
        title = f'<span class="bad">Laws broken in {broken:,} of {_count(runs, "run")}</span>'
    else:
        title = f"Every law kept in {_count(runs, 'run')}"
    whole = [row for row in findings.measures if row["node"] is None]
    facts = {
        "runs": runs,
        "events": findings.events,
        "messages sent": sum(row["sent"] for row in whole),
        "deliveries": sum(row["delivered"] for row in whole),
        "quarantined": findings.quarantined,
    }
    listed = "".join(f"<div><dt>{name}</dt><dd>{n:,}</dd></div>" for name, n in facts.items())
    return (
        f'<header><p class="name">Unisono</p><h1>{title}</h1><dl class="facts">{listed}</dl>'
        "</header>"
    )


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


# -- verdicts ------------------------------------------------------------------------------------


def _laws(findings: Findings) -> str:
    in_order = sorted(findings.verdicts.items(), key=lambda item: (item[1].kept, item[0]))
    head = "".join(
        f'<th title="{escape(law.sentence)}"><span>{escape(name.replace("_", " "))}</span></th>'
        for name, law in LAWS.items()
    )
    rows = "".join(_law_row(run, verdict) for run, verdict in in_order[:RUNS_SHOWN_MAX])
    hidden = len(in_order) - RUNS_SHOWN_MAX
    more = (
        f" {_count(hidden, 'run')} more in the table <code>verdicts</code>." if hidden > 0 else ""
    )
    return (
        "<h2>Laws</h2><p class='note'>Each run against every law; a protocol is judged by those it "
        f"claims.{more}</p><div class='scroll'><table class='laws'><thead><tr><th>run</th>{head}"
        f"</tr></thead><tbody>{rows}</tbody></table></div>"
        "<p class='key'><b class='kept'>✓</b> kept &ensp; <b class='broken'>✕</b> broken &ensp; "
        "<b class='none'>–</b> not claimed</p>"
    )


def _law_row(run: str, verdict: Verdict) -> str:
    cells = []
    for name in LAWS:
        kind, sign = SIGNS[verdict.laws[name]]
        cells.append(f'<td class="{kind}" title="{name}: {verdict.laws[name]}">{sign}</td>')
    return f"<tr><th>{escape(run)}</th>{''.join(cells)}</tr>"


def _violations(findings: Findings) -> str:
    broken = [(run, verdict) for run, verdict in findings.verdicts.items() if not verdict.kept]
    if not broken:
        return ""
    parts = [
        "<h2>Violations</h2><p class='note'>What should not have been, with its witnesses.</p>"
    ]
    for run, verdict in broken[:RUNS_SHOWN_MAX]:
        parts.append(f"<h3>{escape(run)}</h3><ul class='told'>")
        for _, group in groupby(verdict.violations, key=lambda violation: violation.law):
            told = list(group)
            parts += [f"<li>{escape(sentence(each))}</li>" for each in told[:TOLD_SHOWN_MAX]]
            if len(told) > TOLD_SHOWN_MAX:
                at_least = "at least " if len(told) == VIOLATIONS_MAX else ""
                parts.append(
                    f"<li class='more'>{escape(told[0].law)}: {at_least}"
                    f"{len(told) - TOLD_SHOWN_MAX} more, in the table <code>violations</code></li>"
                )
        parts.append("</ul>")
    return "".join(parts)


# -- measures ------------------------------------------------------------------------------------


def _plots(curves: Curves) -> str:
    if not curves.latency and not any(curves.rates.values()):
        return ""
    return (
        f"<div class='plots'><section><h2>Delivery latency</h2><p class='note'>Part of all "
        f"deliveries that took no longer than this, by {curves.by}.</p>{_latency(curves)}</section>"
        "<section><h2>Throughput over time</h2><p class='note'>Messages delivered a second at a "
        f"member, by {curves.by}.</p>{_rates(curves)}</section></div>"
    )


def _latency(curves: Curves) -> str:
    # A logarithm knows no zero: what took no time, or (by clocks that differ) less, stands at the
    # left edge.
    positive = [us for line in curves.latency.values() for us in line if us > 0] or [1000]
    points = {
        name: [
            (max(us, min(positive)) / 1000, part * 100)
            for us, part in zip(line, CURVE, strict=True)
        ]
        for name, line in curves.latency.items()
    }
    title = "milliseconds from send to delivery"
    across = logarithmic(min(positive) / 1000, max(positive) / 1000, title)
    up = linear(100, "percent")
    return line_plot(points, across, up._replace(ticks=_percents(up.ticks)), "Delivery latency")


def _percents(ticks: Iterable[tuple[float, str]]) -> list[tuple[float, str]]:
    return [(value, f"{text} %") for value, text in ticks]


def _rates(curves: Curves) -> str:
    points = [point for line in curves.rates.values() for point in line]
    across = linear(max((at for at, _ in points), default=1.0), "seconds since the first delivery")
    up = linear(max((rate for _, rate in points), default=1.0), "messages a second")
    return line_plot(curves.rates, across, up, "Throughput over time")


MEASURES: Final = {
    "sent": ("sent", 1.0, 0),
    "delivered": ("delivered", 1.0, 0),
    "views": ("views", 1.0, 0),
    "messages_per_s": ("messages/s", 1.0, 0),
    "mb_per_s": ("MB/s", 1.0, 3),
    "p50_us": ("p50 ms", 1e-3, 2),
    "p90_us": ("p90 ms", 1e-3, 2),
    "p99_us": ("p99 ms", 1e-3, 2),
    "max_us": ("max ms", 1e-3, 2),
}
"""Column to title, factor and decimals."""


def _measures(findings: Findings) -> str:
    whole = [row for row in findings.measures if row["node"] is None]
    head = "".join(f'<th class="n">{title}</th>' for title, _, _ in MEASURES.values())
    rows = "".join(
        f"<tr><th>{escape(row['run'])}</th><td>{escape(row['protocol'])}</td>"
        + "".join(f'<td class="n">{_figure(row, name)}</td>' for name in MEASURES)
        + "</tr>"
        for row in whole[:RUNS_SHOWN_MAX]
    )
    return (
        "<h2>Measures</h2><p class='note'>Rates are what a member sees. Latency is from a "
        "message's send to its delivery at each member, itself included; quantiles are exact.</p>"
        "<div class='scroll'><table><thead><tr><th>run</th><th>protocol</th>"
        f"{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _figure(row: Mapping[str, Any], name: str) -> str:
    value, (_, factor, decimals) = row[name], MEASURES[name]
    return "–" if value is None else f"{value * factor:,.{decimals}f}"


def _quarantine(findings: Findings) -> str:
    if not findings.quarantined:
        return "<h2>Quarantine</h2><p class='note'>Empty: every row could be judged.</p>"
    rows = "".join(
        f"<tr><th>{escape(path)}</th><td class='n'>{'all or rest' if row is None else f'{row:,}'}"
        f"</td><td>{escape(reason)}</td></tr>"
        for path, row, reason in findings.quarantine
    )
    hidden = findings.quarantined - len(findings.quarantine)
    more = f" {hidden:,} more in the table <code>quarantine</code>." if hidden else ""
    return (
        f"<h2>Quarantine</h2><p class='note'>Not judged, and why.{more}</p><div class='scroll'>"
        "<table><thead><tr><th>file</th><th class='n'>row</th><th>reason</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )
