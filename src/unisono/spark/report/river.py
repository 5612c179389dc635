"""The components of a run over time, as a river: a lane for each node, and several colors where the
group parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from unisono.spark.plots import linear
from unisono.spark.report.markup import clean, count_of, figure, time_of

RUNS_MAX: Final = 4
NODES_MAX: Final = 24
COLORS: Final = 6
WIDTH: Final = 1000
LEFT: Final = 90
LANE: Final = 20
FOOT: Final = 44

Row = Mapping[str, Any]


def rivers(rows: Sequence[Row]) -> str:
    """Of the first runs, from the rows of their views."""
    by_run = [(run, list(views)) for run, views in groupby(rows, key=lambda row: row["run"])]
    return "".join(_river(run, views) for run, views in by_run[:RUNS_MAX])


def _river(run: str, views: Sequence[Row]) -> str:
    nodes = sorted({node for row in views for node in row["installed_by"].split()})[:NODES_MAX]
    first_us = min(row["from_us"] for row in views)
    known = [row["until_us"] for row in views if row["until_us"] is not None]
    last_us = max((*known, *(row["from_us"] for row in views), first_us + 1))
    spans = [
        (row["from_us"], last_us if row["until_us"] is None else row["until_us"]) for row in views
    ]
    across = linear((last_us - first_us) / 1e6, "seconds since the first view")
    floor = LANE * len(nodes)

    def at(us: int) -> float:
        return round(LEFT + across.position((us - first_us) / 1e6) * (WIDTH - LEFT - 10), 1)

    drawn = [
        f'<text x="{LEFT - 8}" y="{LANE * lane + LANE - 6}" text-anchor="end">{clean(node)}</text>'
        for lane, node in enumerate(nodes)
    ]
    for row, span in zip(views, spans, strict=True):
        color = _rank(row, span, views, spans) % COLORS
        told = f"{row['view']}: {row['installed_by']}, for {time_of(span[1] - span[0])}"
        lanes = "".join(
            f'<rect x="{at(span[0])}" y="{LANE * nodes.index(node)}" height="{LANE}"'
            f' width="{max(round(at(span[1]) - at(span[0]), 1), 1)}"/>'
            for node in row["installed_by"].split()
            if node in nodes
        )
        drawn.append(f'<g class="s{color}"><title>{clean(told)}</title>{lanes}</g>')
    for value, text in across.ticks:
        x = at(first_us + int(value * 1e6))
        drawn.append(f'<line class="mark" x1="{x}" x2="{x}" y1="{floor}" y2="{floor + 5}"/>')
        drawn.append(f'<text x="{x}" y="{floor + 19}" text-anchor="middle">{text}</text>')
    drawn.append(
        f'<text x="{(LEFT + WIDTH) / 2}" y="{floor + FOOT - 6}" text-anchor="middle">'
        f"{across.title}</text>"
    )
    svg = (
        f'<svg viewBox="0 0 {WIDTH} {floor + FOOT}" role="img">'
        f"<title>{clean(run)}: {count_of(len(views), 'view')}</title>{''.join(drawn)}</svg>"
    )
    return figure(clean(run), "", f'<div class="plot river">{svg}</div>')


def _rank(
    row: Row, span: tuple[int, int], views: Sequence[Row], spans: Sequence[tuple[int, int]]
) -> int:
    """How many larger components there were at the same time."""
    middle = (span[0] + span[1]) // 2
    return sum(
        (-other["installed"], other["view"]) < (-row["installed"], row["view"])
        for other, (from_us, until_us) in zip(views, spans, strict=True)
        if from_us <= middle < until_us
        and not {*other["installed_by"].split()} & {*row["installed_by"].split()}
    )
