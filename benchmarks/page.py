"""The results as one self-contained HTML file, for light and dark, wide and narrow screens."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import groupby
from typing import Any, Final, NamedTuple

from unisono.bench.own import PREFIX as OURS
from unisono.bench.results import RowKey, figure
from unisono.spark.plots import Axis, Point, line_plot, logarithmic
from unisono.spark.report.markup import clean, column, count_of, section, size_of, table, time_of

STYLE: Final = """
.line { stroke-width: 2.4; }
.line.s6 { stroke: var(--bad); stroke-dasharray: 10 3 3 3; }
.line.s7 { stroke: var(--soft); stroke-dasharray: 3 3; }
.load :is(td, tbody th) { vertical-align: middle; white-space: nowrap; }
.load td:not(.n) { width: 22%; min-width: 7rem; padding-inline: 0; }
.load .track { margin: 0; }
.load .peer .bar { background: var(--soft); }
h3 + .scroll { margin-bottom: 1.4rem; }
.plots figure { margin-bottom: 1rem; }
"""

Row = Mapping[str, Any]
Value = Callable[[Row], float | None]


LOAD: Final = "share of the peak"


class Measure(NamedTuple):
    """What a plot shows."""

    title: str
    unit: str
    value: Value


def _median_us(name: str) -> Value:
    return lambda row: row[name]["p50"] if row[name] else None


MEASURES: Final = (
    Measure("Throughput", "messages a second", lambda row: row["messages_per_s"]),
    Measure("Volume", "MB a second", lambda row: row["megabytes_per_s"]),
    Measure("Delay alone", "µs, the median of lone messages", _median_us("latency_us")),
    Measure(
        "Delay under load", "µs, the median at half of the peak", _median_us("loaded_latency_us")
    ),
)


def page(told: Mapping[str, Any]) -> str:
    """The whole page; deterministic."""
    rows = told["results"]
    parts = (
        _header(told),
        _curves("sizes", "By size", "bytes of a message", rows, _size, _by_members),
        _curves("groups", "By group", "members", rows, _members, _by_size),
        _load_curves(rows),
        _loads(rows),
        _ratios(rows),
        _recovery(told["recovery"]),
        _missing(told),
    )
    style = files("unisono.spark.report").joinpath("report.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{clean(_title(rows))} · Unisono</title>\n"
        f"<style>{style}{STYLE}</style></head>\n<body><main>{''.join(parts)}</main></body></html>\n"
    )


def _label(row: Row) -> str:
    return RowKey(row["system"], row["service"], row["via"], 0, 0, 0).label


def _labels(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(map(_label, rows)))


def _title(rows: Sequence[Row]) -> str:
    others = [name for name in dict.fromkeys(row["system"] for row in rows) if OURS not in name]
    return f"Unisono and {', '.join(others)}" if others else "Unisono, measured"


def _header(told: Mapping[str, Any]) -> str:
    about = told["about"]
    facts = {
        "network": about["net"],
        "rounds": about["rounds"],
        "seconds of each": f"{about['seconds']:g}",
        "cores": about["cores"],
        "load before": f"{about['load_before']:g}",
        "on": about["system"],
        "Python": about["python"],
        "date": about["date"],
    }
    listed = "".join(
        f"<div><dt>{clean(name)}</dt><dd>{clean(str(value))}</dd></div>"
        for name, value in facts.items()
    )
    note = (
        "All systems in turns, round after round, each member a process of its own. Figures are"
        " medians over the rounds. A message counts when every member has it. On a machine with"
        " other work, compare only figures of the same run."
    )
    return (
        '<header class="kept"><p class="brand">Unisono bench</p>'
        f"<h1>{clean(_title(told['results']))}</h1>"
        f'<p class="remark">{note}</p><dl class="facts">{listed}</dl></header>'
    )


# -- curves ----------------------------------------------------------------------------------------


def _senders(row: Row) -> str:
    if row["senders"] == row["members"]:
        return "all send"
    return count_of(row["senders"], "sender")


def _size(row: Row) -> float:
    return float(row["size"])


def _members(row: Row) -> float:
    return float(row["members"])


def _by_members(row: Row) -> str:
    return f"{count_of(row['members'], 'member')}, {_senders(row)}"


def _by_size(row: Row) -> str:
    return f"{size_of(row['size'])}, {_senders(row)}"


def _curves(
    anchor: str,
    title: str,
    across: str,
    rows: Sequence[Row],
    at: Callable[[Row], float],
    kind: Callable[[Row], str],
) -> str:
    """Plots for each kind of workload that has more than one value on the axis."""
    parts = []
    for name in dict.fromkeys(map(kind, rows)):
        chosen = [row for row in rows if kind(row) == name]
        if len(set(map(at, chosen))) > 1:
            plots = "".join(_plot(measure, chosen, at, across, name) for measure in MEASURES)
            parts.append(f'<h3>{clean(name)}</h3><div class="plots">{plots}</div>')
    return section(anchor, title, "", *parts) if parts else ""


def _load_curves(rows: Sequence[Row]) -> str:
    """Delay over the load, where more than one was measured."""
    points = [row | {"share": float(share), "delay": delay["p50"]} for row in map(dict, rows)
              for share, delay in row["latency_by_load_us"].items()]  # fmt: skip
    measure = Measure("Delay", "µs, the median", lambda row: row["delay"])
    plots = ""
    for words in dict.fromkeys(map(_words, points)):
        chosen = [point for point in points if _words(point) == words]
        if len({point["share"] for point in chosen}) > 1:
            plots += _plot(measure, chosen, lambda row: float(row["share"]), LOAD, words)
    note = (
        "The load is a share of each system's own peak. Resilient messages: until the sender knows."
    )
    return section("shares", "By load", note, f'<div class="plots">{plots}</div>') if plots else ""


def _plot(
    measure: Measure, rows: Sequence[Row], at: Callable[[Row], float], across: str, name: str
) -> str:
    series: dict[str, list[Point]] = {label: [] for label in _labels(rows)}
    for row in sorted(rows, key=at):
        value = measure.value(row)
        if value:
            series[_label(row)].append((at(row), value))
    values = [value for line in series.values() for _, value in line]
    if not values:
        return ""
    # A line of one point is drawn as a dot.
    drawn = {label: line * 2 if len(line) == 1 else line for label, line in series.items()}
    plot = line_plot(
        drawn,
        _axis(sorted({point for line in series.values() for point, _ in line}), across),
        logarithmic(min(values), max(values), measure.unit),
        f"{measure.title}, {name}",
    )
    caption = f'<h3>{measure.title}</h3><p class="note">{clean(measure.unit)}</p>'
    return f"<figure><figcaption>{caption}</figcaption>{plot}</figure>"


def _axis(places: Sequence[float], title: str) -> Axis:
    """Logarithmic, with a tick for each value measured."""
    low, high = math.log2(places[0]), math.log2(places[-1])
    wide = high - low or 1.0

    def place(value: float) -> float:
        # Some room at both ends, so that no point touches the frame.
        return 0.03 + 0.94 * (math.log2(value) - low) / wide

    nbytes = title.startswith("bytes")
    ticks = [(value, _short(int(value)) if nbytes else f"{value:g}") for value in places]
    return Axis(ticks, place, title)


def _short(nbytes: int) -> str:
    return size_of(nbytes).removesuffix("iB").replace(" ", "") if nbytes >= 1024 else f"{nbytes}"


# -- loads -----------------------------------------------------------------------------------------


def _loads(rows: Sequence[Row]) -> str:
    parts = []
    for load, group in groupby(rows, key=lambda row: (row["size"], row["members"], row["senders"])):
        same = list(group)
        parts.append(f"<h3>{clean(_words(same[0]))}</h3>{_load(str(load), same)}")
    note = (
        "Throughput with the lowest and the highest round; delays are the median and the 99th"
        " percentile; CPU is that of all processes together, memory that of the largest."
    )
    return section("loads", "Workloads", note, *parts)


def _words(row: Row) -> str:
    return f"{size_of(row['size'])}, {_by_members(row)}"


def _load(label: str, rows: Sequence[Row]) -> str:
    top = max(row["messages_per_s"] for row in rows)
    names = ("lowest – highest", "MB/s", "delay alone", "at half of the peak", "CPU µs/message")
    head = [column("system"), column("messages/s", "n"), column("")]
    head += [column(name, "n") for name in (*names, "MB memory")]
    return table(f"load {label}", head, (_line(row, top) for row in rows), "load")


def _line(row: Row, top: float) -> str:
    rate = row["messages_per_s"]
    low, high = row["spread"]["messages_per_s"]
    bar = f'<i class="bar" style="width:{rate / top * 100:.1f}%"></i>'
    shown = [
        f"{figure(low)} – {figure(high)}",
        figure(row["megabytes_per_s"]),
        _delays(row["latency_us"]),
        _delays(row["loaded_latency_us"]),
        figure(row["cpu_us_per_message"]),
        figure(row["rss_mb_max"]),
    ]
    kind = "" if row["system"].startswith(OURS) else ' class="peer"'
    return (
        f'<tr{kind}><th scope="row">{clean(_label(row))}</th><td class="n">{figure(rate)}</td>'
        f'<td><div class="track" aria-hidden="true">{bar}</div></td>{_cells(shown)}</tr>'
    )


def _cells(texts: Iterable[str]) -> str:
    return "".join(f'<td class="n">{clean(text)}</td>' for text in texts)


def _delays(delays: Mapping[str, float] | None) -> str:
    return f"{time_of(delays['p50'])} – {time_of(delays['p99'])}" if delays else "–"


def _ratios(rows: Sequence[Row]) -> str:
    """Our throughput as a multiple of each peer's."""
    peers = [name for name in _labels(rows) if not name.startswith(OURS)]
    ours = [row for row in rows if row["system"].startswith(OURS)]
    if not peers or not ours:
        return ""
    head = [column("system"), column("load", "n"), *(column(f"× {name}", "n") for name in peers)]
    lines = []
    for row in ours:
        ratios = (row["against"].get(name) for name in peers)
        shown = _cells("–" if ratio is None else figure(ratio) for ratio in ratios)
        first = f'<th scope="row">{clean(_label(row))}</th><td class="n">{clean(_words(row))}</td>'
        lines.append(f"<tr>{first}{shown}</tr>")
    note = "Our throughput divided by that of each peer: the median of the rounds' ratios."
    return section("ratios", "Times a peer", note, table("ratios", head, lines, "load"))


# -- the rest --------------------------------------------------------------------------------------


def _recovery(found: Sequence[Row]) -> str:
    if not found:
        return ""
    head = [column("system"), column("members", "n"), column("a member killed", "n")]
    head += [column("a member joins", "n"), column("with state of", "n")]
    rows = []
    for each in found:
        joined = each.get("join_ms")
        cells = [
            str(each["members"]),
            _times(each["recovery_ms"]),
            _times(joined) if joined else "–",
            size_of(each["state_octets"]) if joined else "–",
        ]
        rows.append(f'<tr><th scope="row">{clean(_label(each))}</th>{_cells(cells)}</tr>')
    note = (
        "From the kill to the first message in the view without it, at the last survivor; from the"
        " call of join to a view of all with their state. Median, lowest and highest round."
    )
    return section("recovery", "Recovery", note, table("recovery", head, rows))


def _times(found: Mapping[str, float]) -> str:
    low, high = (time_of(found[name] * 1000) for name in ("low", "high"))
    return f"{time_of(found['median'] * 1000)} ({low} – {high})"


def _missing(told: Mapping[str, Any]) -> str:
    said = [*dict.fromkeys(told["skipped"].values()), *told["troubles"]]
    if not said:
        return ""
    listed = "".join(f'<li class="more">{clean(words)}</li>' for words in said)
    return section("missing", "Not measured", "", f'<ul class="told">{listed}</ul>')
