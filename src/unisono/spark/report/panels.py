"""The analyses on the page: parts of the latency, links, causes of repairs, exclusions, components,
runs compared by their factors, and trends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from unisono.spark.plots import Axis
from unisono.spark.report.charts import chart, percent
from unisono.spark.report.markup import clean, column, count_of, section, table, time_of
from unisono.spark.report.model import Findings
from unisono.spark.report.river import rivers

SHOWN_MAX: Final = 20
"""Rows of a panel."""
VIEWS_MAX: Final = 400
"""Views that are drawn."""
PARTS: Final = {"token_us": "token", "order_us": "order", "spread_us": "spread"}

Row = Mapping[str, Any]
Text = Callable[[Row], str]


def panels(findings: Findings) -> dict[str, tuple[str, str]]:
    """By anchor the title and the section, which is empty where there is nothing to show."""
    return {
        "parts": ("Latency in parts", _parts(findings)),
        "links": ("Links", _links(findings)),
        "causes": ("Causes", _causes(findings)),
        "exclusions": ("Exclusions", _exclusions(findings)),
        "components": ("Components", _components(findings)),
        "factors": ("Factors", _factors(findings)),
        "trends": ("Trends", _trends(findings)),
    }


def _parts(findings: Findings) -> str:
    rows = findings.analyses.get("latency_parts", ())
    if not rows:
        return ""
    by_protocol = {
        protocol: list(mine) for protocol, mine in groupby(rows, lambda row: row["protocol"])
    }
    longest = max(sum(_present(row).values()) for row in rows) or 1.0

    def stacked(row: Row) -> tuple[str, str]:
        drawn, left = "", 0.0
        for name, us in _present(row).items():
            place = f"left:{percent(left)};width:{percent(max(us, 0) / longest)}"
            drawn += f'<i class="part {PARTS[name]}" style="{place}"></i>'
            left += max(us, 0) / longest
        told = [f"{PARTS[name]} {time_of(us)}" for name, us in _present(row).items()]
        stable = row["stable_us"]
        told += [] if stable is None else [f"stable after {time_of(stable)}"]
        return drawn, f"{count_of(row['messages'], 'message')}: {', '.join(told)}"

    title = "mean time from the send to the last delivery, in parts"
    note = (
        "Until the sender had the token (where that was traced), then until it could deliver the "
        "message itself, which is when its place in the order was known, then until the last "
        "member did; and from the delivery to the report that the message is stable."
    )
    drawn = chart(
        "Parts of the latency",
        title,
        by_protocol,
        stacked,
        Axis([], float, ""),
        lambda r: r["service"],
    )
    return section("parts", "Latency in parts", note, drawn)


def _present(row: Row) -> dict[str, float]:
    return {name: row[name] for name in PARTS if row[name] is not None}


def _links(findings: Findings) -> str:
    note = (
        "The links that lost most. Again: packets of which the same sender had sent the bytes "
        "before. Clock: how far the receiver's is ahead, if the shortest delays are equal."
    )
    return _table(
        findings, "links", "Links", note,
        {
            "run": lambda r: r["run"],
            "link": lambda r: f"{r['sender']} → {r['receiver']}",
            "sent": lambda r: f"{r['sent']:,}",
            "again": lambda r: f"{r['again']:,}",
            "lost": lambda r: f"{100 * r['lost']:.2f} %",
            "median": lambda r: _time(r["p50_us"]),
            "99 %": lambda r: _time(r["p99_us"]),
            "clock": lambda r: _time(r["ahead_us"]),
        },
        words=2,
    )  # fmt: skip


def _causes(findings: Findings) -> str:
    return _table(
        findings, "causes", "Causes", "Why packets were asked for, sent again or dropped.",
        {
            "protocol": lambda r: r["protocol"],
            "work": lambda r: str(r["kind"]),
            "reason": lambda r: (r["reason"] or "–").replace("_", " "),
            "times": lambda r: f"{r['count']:,}",
        },
        words=3,
    )  # fmt: skip


def _exclusions(findings: Findings) -> str:
    forced = {True: "unforced", False: "forced by a fault", None: "unknown"}
    note = "Members that ran on when the others went on without them; unforced ones first."
    origins = _origins(findings)
    return _table(
        findings, "exclusions", "Exclusions", note,
        {
            "run": lambda r: r["run"],
            "member": lambda r: r["life"],
            "left out by": lambda r: r["survivor"] or "–",
            "view": lambda r: r["view"] or "–",
            "cause": lambda r: forced[r["unforced"]],
            "after": lambda r: _time(r["at_us"] - origins.get(r["run"], 0)),
        },
        words=5,
    )  # fmt: skip


def _components(findings: Findings) -> str:
    rows = findings.analyses.get("components", ())
    origins = _origins(findings)

    def since(row: Row, name: str) -> str:
        return "the end" if row[name] is None else _time(row[name] - origins[row["run"]])

    note = (
        "The views over time, since the first of the run. Where the group parts, its nodes are of"
        " several colors. Within: from the first member that installed a view to the last."
    )
    return _table(
        findings, "components", "Components", note,
        {
            "run": lambda r: r["run"],
            "view": lambda r: r["view"],
            "installed by": lambda r: r["installed_by"],
            "of": lambda r: count_of(r["members"], "member"),
            "within": lambda r: _time(r["took_us"]),
            "from": lambda r: since(r, "from_us"),
            "until": lambda r: since(r, "until_us"),
        },
        words=3,
        before=rivers(rows),
    )  # fmt: skip


def _origins(findings: Findings) -> dict[str, int]:
    """By run, when its first view was installed."""
    found: dict[str, int] = {}
    for row in findings.analyses.get("components", ()):
        found[row["run"]] = min(found.get(row["run"], row["from_us"]), row["from_us"])
    return found


def _factors(findings: Findings) -> str:
    if len(findings.analyses.get("factors", ())) < 2:
        return ""
    note = "Simulated runs by what they were asked for: means, with confidence intervals of 95 %."
    return _table(
        findings, "factors", "Factors", note,
        {
            "protocol": lambda r: r["protocol"],
            "faults": lambda r: r["faults"],
            "options": lambda r: r["options"] or "–",
            "nodes": lambda r: _number(r["nodes"]),
            "messages": lambda r: _number(r["messages"]),
            "runs": lambda r: f"{r['runs']:,}",
            "kept": lambda r: f"{r['kept']:,}",
            "messages/s": lambda r: _between(r, "messages_per_s", "{:,.0f}".format),
            "median": lambda r: _between(r, "p50_us", time_of),
            "99 %": lambda r: _between(r, "p99_us", time_of),
        },
        words=3,
    )  # fmt: skip


def _trends(findings: Findings) -> str:
    if len({row["day"] for row in findings.analyses.get("trends", ())}) < 2:
        return ""
    note = (
        "By day: the median latency of the runs, and that of the seven days before. A change is "
        "more than three standard deviations from them."
    )
    return _table(
        findings, "trends", "Trends", note,
        {
            "protocol": lambda r: r["protocol"],
            "day": lambda r: r["day"].isoformat(),
            "change": lambda r: "changed" if r["changed"] else "",
            "members": lambda r: f"{r['members']:,}",
            "runs": lambda r: f"{r['runs']:,}",
            "kept": lambda r: f"{r['kept']:,}",
            "median": lambda r: _time(r["p50_us"]),
            "before": lambda r: _time(r["mean_us"]),
            "messages/s": lambda r: _number(r["messages_per_s"]),
        },
        words=3,
    )  # fmt: skip


def _table(
    findings: Findings,
    name: str,
    title: str,
    note: str,
    columns: Mapping[str, Text],
    words: int,
    before: str = "",
) -> str:
    """The first rows of a table, below what is drawn `before` it; `words` columns are text, the
    others numbers."""
    rows: Sequence[Row] = findings.analyses.get(name, ())
    if not rows:
        return ""
    kinds = [""] * words + ["n"] * (len(columns) - words)
    head = [column(text, kind) for text, kind in zip(columns, kinds, strict=True)]
    first, *rest = zip(columns.values(), kinds, strict=True)
    lines = [
        f'<tr><th scope="row">{clean(first[0](row))}</th>'
        + "".join(
            f'<td class="{kind}">{clean(text(row))}</td>'
            if kind
            else f"<td>{clean(text(row))}</td>"
            for text, kind in rest
        )
        + "</tr>"
        for row in rows[:SHOWN_MAX]
    ]
    more = f" More in the table <code>{name}</code>." if len(rows) > SHOWN_MAX else ""
    return section(name, title, clean(note) + more, before, table(title, head, lines))


def _time(us: float | None, without: str = "–") -> str:
    if us is None:
        return without
    return f"−{time_of(-us)}" if us < 0 else time_of(us)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _between(row: Row, name: str, text: Callable[[float], str]) -> str:
    mean, half = row[name], row[f"{name}_ci"]
    if mean is None:
        return "–"
    return text(mean) if half is None else f"{text(mean)} ± {text(half)}"
