"""Line plots as inline SVG, in the colours of the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

WIDTH: Final = 480
HEIGHT: Final = 264
LEFT, RIGHT, TOP, BOTTOM = 56, 24, 14, 52
"""Margins for text of 15 units, its size on a phone, where the plot is small."""
TICKS_MAX: Final = 6
"""With more than this, every second has a label."""

Point = tuple[float, float]


class Axis(NamedTuple):
    """Maps values to positions."""

    ticks: list[tuple[float, str]]
    """Each with its label."""
    position: Callable[[float], float]
    """From 0 at the beginning of the axis to 1 at its end."""
    title: str


def linear(top: float, title: str, low: float = 0.0) -> Axis:
    """From `low` to a round number not below `top`."""
    step = _round_step((top - low) / 4 if top > low else 0.25)
    count = max(1, math.ceil((top - low) / step - 1e-9))
    high = low + step * count
    ticks = [(low + step * n, short(low + step * n)) for n in range(count + 1)]
    return Axis(ticks, lambda value: (value - low) / (high - low), title)


def logarithmic(low: float, high: float, title: str) -> Axis:
    """Whole powers of ten around both."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    last = max(last, first + 1)
    ticks = [(10.0**n, short(10.0**n)) for n in range(first, last + 1)]
    return Axis(ticks, lambda value: (math.log10(value) - first) / (last - first), title)


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(n * power for n in (1, 2, 2.5, 5, 10) if n * power >= least * (1 - 1e-9))


def short(value: float) -> str:
    """A number as a tick label: 2500, 25k, 0.1."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= unit:
            return f"{value / min(unit, 1e3 if name == 'k' else unit):g}{name}"
    return f"{value:g}"


def line_plot(series: Mapping[str, Sequence[Point]], across: Axis, up: Axis, label: str) -> str:
    """The plot with its legend; `label` is for screen readers."""
    lines = [
        f'<path class="line s{index}" d="{_path(points, across, up)}"/>'
        for index, points in enumerate(series.values())
        if points
    ]
    text = f"<title>{escape(label)}</title><desc>{escape(_description(series, across, up))}</desc>"
    drawn = "".join((text, _grid(across, up), *lines))
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{drawn}</svg>'
    return f'<div class="plot">{svg}</div>{_legend(list(series))}'


def _description(series: Mapping[str, Sequence[Point]], across: Axis, up: Axis) -> str:
    """The first and last point of each line."""
    parts = [f"{up.title} over {across.title}"]
    for name, points in series.items():
        if points:
            (x0, y0), (x1, y1) = points[0], points[-1]
            parts.append(f"{name}: {y0:.3g} at {x0:.3g} to {y1:.3g} at {x1:.3g}")
    return "; ".join(parts) + "."


def _at(across: Axis, up: Axis, point: Point) -> tuple[float, float]:
    x = LEFT + across.position(point[0]) * (WIDTH - LEFT - RIGHT)
    y = HEIGHT - BOTTOM - up.position(point[1]) * (HEIGHT - TOP - BOTTOM)
    return round(x, 1), round(y, 1)


def _path(points: Sequence[Point], across: Axis, up: Axis) -> str:
    return "M" + "L".join(f"{x} {y}" for x, y in (_at(across, up, point) for point in points))


def _grid(across: Axis, up: Axis) -> str:
    parts = []
    floor, ceiling = HEIGHT - BOTTOM, TOP
    for value, text in up.ticks:
        y = round(floor - up.position(value) * (floor - ceiling), 1)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{text}</text>'
        )
    every = 2 if len(across.ticks) > TICKS_MAX else 1
    for value, text in across.ticks[::every]:
        x = round(LEFT + across.position(value) * (WIDTH - LEFT - RIGHT), 1)
        parts.append(f'<line class="mark" x1="{x}" x2="{x}" y1="{floor}" y2="{floor + 5}"/>')
        parts.append(
            f'<text class="tick" x="{x}" y="{floor + 20}" text-anchor="middle">{text}</text>'
        )
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{floor}" y2="{floor}"/>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text class="title" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">'
        f"{escape(across.title)}</text>"
    )
    return "".join(parts)


def _legend(names: list[str]) -> str:
    items = "".join(
        f'<li><svg viewBox="0 0 34 8" aria-hidden="true"><path class="line s{index}" d="M1 4H33"/>'
        f"</svg>{escape(name)}</li>"
        for index, name in enumerate(names)
    )
    return f'<ul class="series">{items}</ul>'
