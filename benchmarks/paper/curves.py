"""The figures as SVG: measured and simulated curves, and the points that the paper prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.paper.plan import MEASURED, RATE, SIMULATED, CurveFigure, Curves, CurveSummary, size
from unisono.draw.labels import DATA, JOIN, REPAIR
from unisono.draw.svg import COLOURS, FAINT, FONT, HAIR, INK, PAPER, number, path, tag, words
from unisono.draw.svg import text_of as text
from unisono.spark.plots import Axis, linear, logarithmic

WIDTH, HEIGHT = 680.0, 484.0
LEFT, RIGHT, TOP, BOTTOM = 70.0, 28.0, 88.0, 132.0
OFFSET_PX: Final = 5.0
"""Between curves, so that their spreads do not overlap."""
INKS: Final = (DATA, REPAIR, JOIN)
"""By the index of a size among the figure's."""
Place = tuple[float, float]


def drawn(figure: CurveFigure, curves: Curves, subtitle: str) -> str:
    """One figure; deterministic: only new measurements change the file."""
    return _Plot(figure, curves).svg(subtitle)


class _Plot:
    def __init__(self, figure: CurveFigure, curves: Curves) -> None:
        self.figure = figure
        self.of = {
            (origin, nbytes): curves.get((figure.number, origin, nbytes), [])
            for origin in (MEASURED, SIMULATED)
            for nbytes in figure.sizes
        }
        found = [each for curve in self.of.values() for each in curve]
        values = [each.median for each in found] + [each.value for each in figure.printed]
        if figure.kind == RATE:
            values += [value for each in found for value in (each.low, each.high)]
        members = sorted({each.members for each in found} | {p.members for p in figure.printed})
        self.across = self._across([count for count in members if count])
        self.up = self._up([value for value in values if value > 0])

    def _across(self, members: Sequence[int]) -> Axis:
        last = max((*members, 3))
        ticks = [(float(count), str(count)) for count in members]
        return Axis(ticks, lambda value: (value - 1) / (last - 0.5), "members")

    def _up(self, values: Sequence[float]) -> Axis:
        top = max((*values, 1.0))
        if self.figure.kind == RATE:
            return logarithmic(min((*values, top)), top, self.figure.unit)
        # A few outliers would flatten everything else: their spread is cut at the top.
        return linear(top * 1.2, self.figure.unit)

    def _at(self, members: float, value: float) -> Place:
        x = LEFT + self.across.position(members) * (WIDTH - LEFT - RIGHT)
        share = min(max(self.up.position(value), 0.0), 1.0) if value > 0 else 0.0
        return x, HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def svg(self, subtitle: str) -> str:
        figure = self.figure
        title = f"Figure {figure.number}: {figure.title.lower()}"
        parts = [
            tag("title", text(f"{title}, measured and simulated, beside the paper's points")),
            _style(),
            tag("rect", width=WIDTH, height=HEIGHT, rx=8.0, class_="paper"),
            words(24, 30, title, "head"),
            words(24, 49, subtitle, "faint small"),
            *self._grid(),
            *self._lines(),
            *self._printed(),
            *self._legend(),
        ]
        view = f"0 0 {number(WIDTH)} {number(HEIGHT)}"
        inner = "\n" + "\n".join(parts) + "\n"
        xmlns = "http://www.w3.org/2000/svg"
        size_px = {"width": WIDTH, "height": HEIGHT}
        return tag("svg", inner, xmlns=xmlns, viewBox=view, **size_px, role="img") + "\n"

    # -- grid ------------------------------------------------------------------------------------

    def _grid(self) -> Iterator[str]:
        floor = HEIGHT - BOTTOM
        for value, label in self.up.ticks:
            y = floor - self.up.position(value) * (floor - TOP)
            yield path((LEFT, y), (WIDTH - RIGHT, y), kind="hair")
            yield words(LEFT - 8, y + 4, label, "faint small", "end")
        for value, label in self.across.ticks:
            x, _ = self._at(value, 0)
            yield path((x, floor), (x, floor + 5), kind="tick")
            yield words(x, floor + 19, label, "faint small", "middle")
        yield path((LEFT, floor), (WIDTH - RIGHT, floor), kind="tick")
        yield words((LEFT + WIDTH - RIGHT) / 2, floor + 37, "members", "small", "middle")
        yield words(24, TOP - 9, self.up.title, "small")

    # -- curves ----------------------------------------------------------------------------------

    def _lines(self) -> Iterator[str]:
        sizes = self.figure.sizes
        for origin in (SIMULATED, MEASURED):
            for at, nbytes in enumerate(sizes):
                offset = (at - (len(sizes) - 1) / 2) * OFFSET_PX if origin == MEASURED else 0.0
                shown = "".join(self._curve(self.of[origin, nbytes], origin, offset))
                if shown:
                    yield tag("g", shown, class_=f"{origin} c{at}")

    def _curve(self, curve: Sequence[CurveSummary], origin: str, offset: float) -> Iterator[str]:
        places = [self._at(each.members, each.median) for each in curve]
        places = [(x + offset, y) for x, y in places]
        if len(places) > 1:
            yield path(*places, kind="line")
        for each, (x, y) in zip(curve, places, strict=True):
            if origin == MEASURED:
                low, high = (self._at(0, value)[1] for value in (each.low, each.high))
                yield path((x, low), (x, high), kind="spread")
            told = (
                f"{each.members} members: {each.median:,.4g} {self.figure.unit}, of"
                f" {each.samples:,} samples eight tenths from {each.low:,.4g} to {each.high:,.4g}"
            )
            yield tag("circle", tag("title", text(told)), cx=x, cy=y, r=3.6, class_="dot")

    def _printed(self) -> Iterator[str]:
        for each in self.figure.printed:
            kind = f"printed c{self.figure.sizes.index(each.nbytes)}"
            if each.members:
                x, y = self._at(each.members, each.value)
                told = f"the paper: {each.value:g} {self.figure.unit}, {each.members} members"
                yield tag("g", tag("title", text(told)) + _diamond(x, y), class_=kind)
                continue
            _, y = self._at(0, each.value)
            yield tag("g", path((LEFT, y), (WIDTH - RIGHT, y), kind="level"), class_=kind)

    # -- legend ----------------------------------------------------------------------------------

    def _legend(self) -> Iterator[str]:
        y = HEIGHT - 66
        yield path((24, y - 18), (WIDTH - 24, y - 18), kind="hair")
        x = 24.0
        for at, nbytes in enumerate(self.figure.sizes):
            yield tag("g", tag("rect", x=x, y=y - 9, width=22.0, height=10.0), class_=f"key c{at}")
            yield words(x + 28, y, size(nbytes), "small")
            x += 96
        y, x = HEIGHT - 42, 24.0
        solid = path((x, y - 4), (x + 34, y - 4), kind="line") + _dot(x + 17, y - 4)
        spread = path((x + 17, y - 11), (x + 17, y + 3), kind="spread")
        yield tag("g", solid + spread, class_="measured plain")
        yield words(x + 42, y, "measured on this machine, with the spread of eight tenths", "small")
        y = HEIGHT - 20
        dashed = path((x, y - 4), (x + 34, y - 4), kind="line") + _dot(x + 17, y - 4)
        yield tag("g", dashed, class_="simulated plain")
        yield words(x + 42, y, "simulated with the paper's 10 Mbit/s and its costs", "small")
        yield from self._legend_printed(x + 392)

    def _legend_printed(self, x: float) -> Iterator[str]:
        y = HEIGHT - 42
        if any(each.members for each in self.figure.printed):
            yield tag("g", _diamond(x + 11, y - 4), class_="printed plain")
            yield words(x + 30, y, "printed in the paper", "small")
            y = HEIGHT - 20
        for each in self.figure.printed:
            if not each.members:
                kind = f"printed c{self.figure.sizes.index(each.nbytes)}"
                yield tag("g", path((x, y - 4), (x + 22, y - 4), kind="level"), class_=kind)
                said = f"calculated in the paper: {each.value:g} for {size(each.nbytes)}"
                yield words(x + 30, y, said, "small")


def _dot(x: float, y: float) -> str:
    return tag("circle", cx=x, cy=y, r=3.6, class_="dot")


def _diamond(x: float, y: float, r: float = 6.5) -> str:
    corners = ((x, y - r), (x + r, y), (x, y + r), (x - r, y))
    d = "M" + "L".join(f"{number(px)} {number(py)}" for px, py in corners) + "Z"
    return tag("path", d=d, class_="diamond")


def _style() -> str:
    shapes = (
        f"text {{ font: 12px {FONT}; paint-order: stroke; stroke-width: 4px;"
        " stroke-linejoin: round; }",
        "path { fill: none; stroke-linecap: round; }",
        ".head { font-size: 15px; font-weight: 600; }",
        ".small { font-size: 11px; }",
        ".hair, .tick { stroke-width: 1px; }",
        ".line { stroke-width: 2px; stroke-linejoin: round; }",
        ".spread { stroke-width: 1.2px; opacity: .65; }",
        ".simulated .line { stroke-width: 1.6px; stroke-dasharray: 5 4; }",
        ".level { stroke-width: 1.4px; stroke-dasharray: 1.5 3.5; }",
        ".dot, .diamond { stroke-width: 1.6px; }",
    )
    dark = f"@media (prefers-color-scheme: dark) {{\n{_colours(1)}\n}}"
    return tag("style", "\n" + "\n".join((*shapes, _colours(0), dark)) + "\n")


def _colours(which: int) -> str:
    paper, ink, faint, hair = (each[which] for each in (PAPER, INK, FAINT, HAIR))
    rules = [
        f".paper {{ fill: {paper}; }}",
        f"text {{ fill: {ink}; stroke: {paper}; }}",
        f".faint {{ fill: {faint}; }}",
        f".hair {{ stroke: {hair}; }}",
        f".tick {{ stroke: {faint}; }}",
    ]
    colours = {f".c{at}": COLOURS[name][which] for at, name in enumerate(INKS)}
    for of, colour in {**colours, ".plain": ink}.items():
        rules += [
            f"{of} .line, {of} .spread, {of} .level {{ stroke: {colour}; }}",
            f"{of}.measured .dot, {of}.key rect {{ fill: {colour}; stroke: {paper}; }}",
            f"{of}.simulated .dot {{ fill: {paper}; stroke: {colour}; }}",
            f"{of} .diamond {{ fill: {colour}; stroke: {paper}; }}",
        ]
    return "\n".join(rules)
