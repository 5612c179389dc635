"""Charts as tables: each value is beside its bar, and the text has full size on a phone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from unisono.spark.plots import Axis, logarithmic
from unisono.spark.report.markup import clean, count_of, figure, more_in, section, time_of
from unisono.spark.report.model import Findings

KINDS_MAX: Final = 12
"""Combinations of group size and payload size that are shown of one protocol."""
PROTOCOLS_MAX: Final = 12
CLASSES: Final = 24
"""Of a histogram."""


def summary_section(findings: Findings) -> str:
    rows = [row for row in findings.summary if row["delivered"]]
    if not rows:
        return ""
    parts = _chosen(rows)
    shown = [row for part in parts.values() for row in part]
    note = "Runs by group size and payload size, which is rounded up to a power of two."
    note += more_in(len(rows) - len(shown), "summary")
    charts = _throughput(parts, shown) + _latency(parts, shown)
    return section("summary", "By protocol", note, f'<div class="plots">{charts}</div>')


Parts = Mapping[str, Sequence[Mapping[str, Any]]]


def _chosen(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """By protocol the sizes with the most runs, in order."""

    def size(row: Mapping[str, Any]) -> tuple[int, int]:
        return row["members"] or 0, row["size"] or 0

    ordered = sorted(rows, key=lambda row: (row["protocol"], *size(row)))
    parts = {}
    for protocol, group in groupby(ordered, key=lambda row: row["protocol"]):
        most = sorted(group, key=lambda row: (-row["runs"], *size(row)))[:KINDS_MAX]
        parts[protocol] = sorted(most, key=size)
    return dict(list(parts.items())[:PROTOCOLS_MAX])


def _kind(row: Mapping[str, Any]) -> str:
    return f"{count_of(row['members'] or 0, 'member')}, {row['size'] or 0:,} B"


def _throughput(parts: Parts, shown: Sequence[Mapping[str, Any]]) -> str:
    top = max((row["messages_per_s"] or 0.0 for row in shown), default=0.0) or 1.0

    def bar(row: Mapping[str, Any]) -> tuple[str, str]:
        rate = row["messages_per_s"]
        if rate is None:
            return "", "–"
        return f'<i class="bar" style="width:{percent(rate / top)}"></i>', f"{rate:,.0f}"

    title = "messages delivered per second at a member"
    return chart("Throughput", title, parts, bar, Axis([], float, ""))


def _latency(parts: Parts, shown: Sequence[Mapping[str, Any]]) -> str:
    timed = [row for row in shown if row["p50_us"] is not None]
    if not timed:
        return ""
    axis = time_axis(row[name] for row in timed for name in ("p50_us", "p99_us"))

    def span(row: Mapping[str, Any]) -> tuple[str, str]:
        if row["p50_us"] is None:
            return "", "–"
        low, high = (axis.position(row[name]) for name in ("p50_us", "p99_us"))
        drawn = (
            f'<i class="span" style="left:{percent(low)};width:{percent(high - low)}"></i>'
            f'<i class="dot" style="left:{percent(low)}"></i>'
            f'<i class="end" style="left:{percent(high)}"></i>'
        )
        return drawn, f"{time_of(row['p50_us'])} – {time_of(row['p99_us'])}"

    title = "median (●) and 99th percentile (|)"
    return chart("Latency", title, parts, span, axis)


# -- recoveries ------------------------------------------------------------------------------------


def recoveries_section(findings: Findings) -> str:
    title = "from the loss of a member to the last survivor's view without it"
    chart = _times("Time to recover", title, findings.recoveries, "time")
    note = "How long the survivors took to continue after a member was lost, by how it ended."
    return section("recoveries", "Recoveries", note, chart) if chart else ""


def stability_section(findings: Findings) -> str:
    title = "from the delivery of a message at a member to the report that it is stable"
    chart = _times("Time to stability", title, findings.stabilities, "message")
    note = "How long after its place in the order a message was held as requested, by its level."
    return section("stability", "Stability", note, chart) if chart else ""


def _times(
    name: str,
    title: str,
    times: Mapping[tuple[str, str], Sequence[tuple[int, int]]],
    counted: str,
) -> str:
    """Histograms of times, by protocol and kind."""
    found = {key: line for key, line in sorted(times.items()) if line}
    if not found:
        return ""
    axis = time_axis(us for line in found.values() for us, _ in line)
    parts: dict[str, list[Mapping[str, Any]]] = {}
    for (protocol, end), line in found.items():
        parts.setdefault(protocol, []).append({"end": end, "line": line})
    parts = dict(list(parts.items())[:PROTOCOLS_MAX])

    def spread(row: Mapping[str, Any]) -> tuple[str, str]:
        line = row["line"]
        total = sum(count for _, count in line)
        median, longest = time_of(_median(line)), time_of(line[-1][0])
        return _histogram(
            line, axis
        ), f"{count_of(total, counted)}: half in {median}, all in {longest}"

    return chart(name, title, parts, spread, axis, lambda row: row["end"])


def _median(line: Sequence[tuple[int, int]]) -> int:
    half, so_far = sum(count for _, count in line) / 2, 0
    for us, count in line:
        so_far += count
        if so_far >= half:
            return us
    return 0


def _histogram(line: Sequence[tuple[int, int]], axis: Axis) -> str:
    counts = [0] * CLASSES
    for us, count in line:
        counts[min(int(axis.position(us) * CLASSES), CLASSES - 1)] += count
    most = max(counts)
    return "".join(
        f'<i class="pile" style="left:{percent(index / CLASSES)};'
        f'height:{percent(max(count / most, 0.08))}"></i>'
        for index, count in enumerate(counts)
        if count
    )


# -- what the charts share -------------------------------------------------------------------------


def time_axis(values: Iterable[float]) -> Axis:
    """A logarithmic axis for microseconds; less than one is at its beginning."""
    positive = [value for value in values if value >= 1] or [1000.0]
    axis = logarithmic(min(positive), max(positive), "")
    every = 1 if len(axis.ticks) <= 5 else 2
    labels = [(us, _label(us)) for us, _ in axis.ticks[::every]]
    return Axis(labels, lambda us: max(axis.position(max(us, 1.0)), 0.0), "")


def _label(us: float) -> str:
    unit, name = next(each for each in ((1e6, "s"), (1e3, "ms"), (1, "µs")) if us >= each[0])
    return f"{us / unit:,.0f} {name}"


def percent(part: float) -> str:
    return f"{part * 100:.1f}%"


Draw = Callable[[Mapping[str, Any]], tuple[str, str]]


def chart(
    name: str,
    title: str,
    parts: Parts,
    draw: Draw,
    axis: Axis,
    kind: Callable[[Mapping[str, Any]], str] = _kind,
) -> str:
    ticks = [(percent(axis.position(value)), text) for value, text in axis.ticks]
    lines = "".join(f'<i class="tick" style="left:{at}"></i>' for at, _ in ticks)
    labels = "".join(f'<span style="left:{at}">{text}</span>' for at, text in ticks)
    bodies = []
    for protocol, rows in parts.items():
        runs = sum(row.get("runs", 0) for row in rows)
        noted = f" <small>{count_of(runs, 'run')}</small>" if runs else ""
        body = [
            f'<tr class="kind"><th scope="rowgroup" colspan="2">{clean(protocol)}{noted}</th></tr>'
        ]
        for row in rows:
            drawn, value = draw(row)
            body.append(
                f'<tr><th scope="row">{clean(kind(row))}</th><td><div class="cell">'
                f'<div class="track" aria-hidden="true">{lines}{drawn}</div>'
                f'<span class="value">{value}</span></div></td></tr>'
            )
        bodies.append(f"<tbody>{''.join(body)}</tbody>")
    scale = f'<div class="track scale">{labels}</div>' if labels else ""
    foot = (
        f'<tfoot aria-hidden="true"><tr><td></td><td><div class="cell">{scale}'
        '<span class="value"></span></div></td></tr></tfoot>'
        if scale
        else ""
    )
    return figure(
        name,
        clean(title),
        f'<div class="plot"><table class="chart {name.split()[0].lower()}">'
        '<thead class="unseen"><tr>'
        f'<th scope="col">kind</th><th scope="col">{clean(title)}</th></tr></thead>'
        f"{''.join(bodies)}{foot}</table></div>",
    )
