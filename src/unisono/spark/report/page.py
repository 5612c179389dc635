"""The page as a whole: the result, links to the sections, and the sections."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, Final

from unisono.spark.measures import CURVE
from unisono.spark.plots import line_plot, linear, logarithmic
from unisono.spark.report.broken import broken_section, uncertain_section
from unisono.spark.report.charts import recoveries_section, stability_section, summary_section
from unisono.spark.report.diagrams import diagram_style
from unisono.spark.report.markup import clean, column, count_of, figure, more_in, section, table
from unisono.spark.report.model import Curves, Findings
from unisono.spark.report.panels import panels
from unisono.spark.report.verdicts import laws_section

MEASURES_SHOWN_MAX: Final = 60


@cache
def _style() -> str:
    return (Path(__file__).parent / "report.css").read_text(encoding="utf-8")


def page(findings: Findings, curves: Curves) -> str:
    """The whole page; the same findings make the same bytes."""
    sections = {
        "laws": ("Laws", laws_section(findings)),
        "broken": ("Broken runs", broken_section(findings)),
        "uncertain": ("Uncertain runs", uncertain_section(findings)),
        "summary": ("By protocol", summary_section(findings)),
        "curves": ("Curves", _plots(curves)),
        "recoveries": ("Recoveries", recoveries_section(findings)),
        "stability": ("Stability", stability_section(findings)),
        **panels(findings),
        "measures": ("Measures", _measures(findings)),
        "quarantine": ("Quarantine", _quarantine(findings)),
    }
    shown = {anchor: each for anchor, each in sections.items() if each[1]}
    links = "".join(
        f'<li><a href="#{anchor}">{escape(title)}</a></li>' for anchor, (title, _) in shown.items()
    )
    nav = f'<nav aria-label="On this page"><ul>{links}</ul></nav>'
    body = "".join((_header(findings), nav, *(html for _, html in shown.values())))
    with_diagrams = any(diagram.svg for diagram in findings.diagrams.values())
    style = (diagram_style() if with_diagrams else "") + _style()
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(_title(findings)[1])} · Unisono</title>\n"
        f"<style>{style}</style></head>\n<body><main>{body}{_footer(findings)}</main></body>"
        "</html>\n"
    )


def _title(findings: Findings) -> tuple[str, str]:
    """The kind of result, and a sentence."""
    runs = count_of(len(findings.verdicts), "run")
    broken = sum(not verdict.kept for verdict in findings.verdicts.values())
    outcomes = {each for verdict in findings.verdicts.values() for each in verdict.laws.values()}
    if not findings.verdicts:
        return "none", "Nothing to judge"
    if broken:
        return "broken", f"Laws broken in {broken:,} of {runs}"
    if contradicted := len(findings.contradicted):
        return "broken", f"Files contradict each other in {contradicted:,} of {runs}"
    if "uncertain" in outcomes:
        return "none", f"Uncertain in {runs}: rows could not be read"
    if "not yet" in outcomes:
        return "none", f"No law broken so far in {runs}"
    if "kept" not in outcomes:
        return "none", f"No law is claimed in {runs}"
    return "kept", f"Every law kept in {runs}"


CONTRADICTED_MAX: Final = 5
"""Runs, and incarnations of a run, that are named."""
_SIGNS: Final = {"kept": "✓", "broken": "✕", "none": "–"}


def _header(findings: Findings) -> str:
    kind, title = _title(findings)
    whole = [row for row in findings.measures if row["node"] is None]
    facts = {
        "runs": len(findings.verdicts),
        "events": findings.events,
        "messages sent": sum(row["sent"] for row in whole),
        "deliveries": sum(row["delivered"] for row in whole),
        "quarantined": findings.quarantined,
    }
    listed = "".join(f"<div><dt>{name}</dt><dd>{n:,}</dd></div>" for name, n in facts.items())
    remarks = []
    if incomplete := sum(not info.complete for info in findings.info.values()):
        one = incomplete == 1
        remarks.append(
            f"{count_of(incomplete, 'run')} {'has' if one else 'have'} files without an end: still "
            f"going on, or cut short. {'It is' if one else 'They are'} judged so far."
        )
    if findings.quarantined:
        what = "row or file" if findings.quarantined == 1 else "rows or files"
        remarks.append(
            f"{findings.quarantined:,} {what} could not be judged: "
            '<a href="#quarantine">see why</a>.'
        )
    for run, lives in list(findings.contradicted.items())[:CONTRADICTED_MAX]:
        named = ", ".join(f"<code>{clean(life)}</code>" for life in lives[:CONTRADICTED_MAX])
        remarks.append(f"Run {clean(run)}: two files differ about {named}.")
    shown = "".join(f'<p class="remark">{remark}</p>' for remark in remarks)
    return (
        f'<header class="{kind}"><p class="brand">Unisono</p>'
        f'<h1><span class="sign" aria-hidden="true">{_SIGNS[kind]}</span> {escape(title)}</h1>'
        f'{shown}<dl class="facts">{listed}</dl></header>'
    )


def _footer(findings: Findings) -> str:
    made = f"unisono {findings.version}".strip()
    whole = (
        f"{count_of(len(findings.verdicts), 'run')}, {count_of(findings.events, 'event')} and "
        f"{findings.quarantined:,} in quarantine"
    )
    return (
        f"<footer>Made by <code>{clean(made)}</code> from {whole}. The tables beside this page "
        "hold everything it shows, and more.</footer>"
    )


# -- curves ----------------------------------------------------------------------------------------


def _plots(curves: Curves) -> str:
    if not curves.latency and not any(curves.rates.values()):
        return ""
    latency = figure(
        "Delivery latency", "Share of deliveries that took no longer than this.", _latency(curves)
    )
    rates = figure(
        "Throughput over time", "Messages delivered per second at a member.", _rates(curves)
    )
    return section(
        "curves", "Curves", f"By {clean(curves.by)}.", f'<div class="plots">{latency}{rates}</div>'
    )


def _latency(curves: Curves) -> str:
    # Latencies of 0, or below by differing clocks, are at the left edge of the log axis.
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
    up = up._replace(ticks=[(value, f"{text} %") for value, text in up.ticks])
    return line_plot(points, across, up, "Delivery latency")


def _rates(curves: Curves) -> str:
    points = [point for line in curves.rates.values() for point in line]
    across = linear(max((at for at, _ in points), default=1.0), "seconds since the first delivery")
    up = linear(max((rate for _, rate in points), default=1.0), "messages per second")
    return line_plot(curves.rates, across, up, "Throughput over time")


# -- measures --------------------------------------------------------------------------------------

MEASURES: Final = {
    "members": ("members", 1.0, 0),
    "sent": ("sent", 1.0, 0),
    "delivered": ("delivered", 1.0, 0),
    "views": ("views", 1.0, 0),
    "messages_per_s": ("messages/s", 1.0, 0),
    "mb_per_s": ("kB/s", 1e3, 1),
    "p50_us": ("p50 ms", 1e-3, 2),
    "p90_us": ("p90 ms", 1e-3, 2),
    "p99_us": ("p99 ms", 1e-3, 2),
    "max_us": ("max ms", 1e-3, 2),
    "packets_out": ("packets", 1.0, 0),
    "retransmissions": ("resent", 1.0, 0),
    "naks": ("NAKs", 1.0, 0),
    "token_rotation_p50_us": ("token round ms", 1e-3, 2),
}
"""Column to title, factor and decimals. A column without values is left out."""


def _measures(findings: Findings) -> str:
    rank = {run: index for index, run in enumerate(findings.broken)}
    whole = [row for row in findings.measures if row["node"] is None]
    whole.sort(key=lambda row: (rank.get(row["run"], len(rank)), row["run"], row["protocol"]))
    if not whole:
        return ""
    named = [name for name in MEASURES if any(row.get(name) is not None for row in whole)]
    head = [column("run"), column("protocol"), *(column(MEASURES[name][0], "n") for name in named)]
    rows = [
        f'<tr><th scope="row">{clean(row["run"])}</th><td>{clean(row["protocol"])}</td>'
        + "".join(f'<td class="n">{_figure(row, name)}</td>' for name in named)
        + "</tr>"
        for row in whole[:MEASURES_SHOWN_MAX]
    ]
    note = (
        "Rates are per member. Latency is from a message's send to its delivery at each member, "
        f"the sender included; quantiles are exact.{more_in(len(whole) - len(rows), 'measures')}"
    )
    return section("measures", "Measures", note, table("Measures", head, rows))


def _figure(row: Mapping[str, Any], name: str) -> str:
    value, (_, factor, decimals) = row.get(name), MEASURES[name]
    return "–" if value is None else f"{value * factor:,.{decimals}f}"


def _quarantine(findings: Findings) -> str:
    if not findings.quarantined:
        return section("quarantine", "Quarantine", "Empty: every row could be judged.")
    rows = [
        f'<tr><th scope="row">{clean(path)}</th><td class="n">'
        f"{'all or rest' if row is None else f'{row:,}'}</td><td>{clean(reason)}</td></tr>"
        for path, row, reason in findings.quarantine
    ]
    more = more_in(findings.quarantined - len(findings.quarantine), "quarantine")
    head = (column("file"), column("row", "n"), column("reason"))
    return section(
        "quarantine", "Quarantine", f"Not judged, and why.{more}", table("Quarantine", head, rows)
    )
