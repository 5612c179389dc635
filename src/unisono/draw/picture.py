"""A layout as SVG."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from unisono.draw.flights import ABSENT, AGAIN, ARRIVED, DAMAGED, UNDER_WAY, Fate, Lifeline, Stray
from unisono.draw.labels import CATEGORIES, counted
from unisono.draw.layout import (
    AXIS_PX,
    LEFT,
    RIGHT,
    TEXT_PX,
    Layout,
    Placed,
    fitted,
    width_of,
)
from unisono.draw.legend import FATES, legend, slashes
from unisono.draw.marks import ENDS, JOINED, VIEWED, Mark
from unisono.draw.shapes import Point, arrow, capsule, cross, glyph
from unisono.draw.story import Shot
from unisono.draw.svg import document, group, path, tag, words

HEAD_PX: Final = 122
"""Above the body, for title and names."""
TAIL_PX: Final = 26
"""How far the lines continue below the last row."""
TALL_PX: Final = 1200
"""A higher body has the names below it too."""
WIDTH_PX_MIN: Final = 560
ABOVE_PX: Final = 16
"""How far above the first row the lines begin."""


def picture(layout: Layout, title: str) -> str:
    return _Picture(layout, title).svg()


class _Picture:
    def __init__(self, layout: Layout, title: str) -> None:
        self.layout = layout
        self.story = layout.story
        self.title = title
        self.width = max(layout.width, WIDTH_PX_MIN, width_of(title, 15) + 40)
        self._column = {name: index for index, name in enumerate(self.story.columns)}
        self._ends: dict[tuple[str, bool], float] = {}
        """Heights of the marks of a life's start (False) and end (True)."""
        for each in layout.placed:
            if isinstance(each.thing, Mark) and each.thing.kind in (JOINED, *ENDS):
                self._ends[each.thing.life, each.thing.kind in ENDS] = each.y

    def svg(self) -> str:
        story, body_px = self.story, self.layout.height + TAIL_PX
        below = HEAD_PX + body_px + (34 if body_px > TALL_PX else 14)
        shown, legend_px = legend(self.layout, 24, below + 14, self.width - 48)
        notes_y = below + 14 + legend_px + 4
        height = notes_y + 17 * len(story.notes) + 8
        notes = [
            words(24, notes_y + 17 * index, note, "faint small")
            for index, note in enumerate(story.notes)
        ]
        title = f"Space-time diagram, time downward: {self.title}"
        parts = [
            words(24, 30, self.title, "head"),
            words(24, 49, self._interval(), "faint small"),
            tag("g", "\n".join(self._body()), transform=f"translate(0 {HEAD_PX})"),
            path((24, below), (self.width - 24, below), kind="hair"),
            tag("g", shown, class_="legend"),
            *notes,
        ]
        return document(title, self.width, height, parts)

    def _interval(self) -> str:
        story = self.story
        first, last = (self._ms(t_us) for t_us in (story.from_us, story.to_us))
        drawn = counted(len(story.packets), "packet" if story.traced else "message")
        return f"{drawn}, {first} to {last} ms; time runs downward"

    def _ms(self, t_us: int, places: int = 2) -> str:
        return f"{(t_us - self.story.zero_us) / 1000:.{places}f}"

    # -- axis, names, lines --------------------------------------------------------------------

    def _body(self) -> Iterator[str]:
        yield from self._axis()
        yield from self._names()
        yield from self._lines()
        shots = [each for each in self.layout.placed if isinstance(each.thing, Shot)]
        order = list(reversed(CATEGORIES))
        shots.sort(key=lambda each: order.index(_shot(each).category))
        for each in shots:
            yield self._shot(each)
        for each in self.layout.placed:
            if isinstance(each.thing, Stray):
                yield self._stray(each, each.thing)
        for each in self.layout.placed:
            if isinstance(each.thing, Mark):
                yield self._mark(each, each.thing)
        # Texts last, above all lines.
        for each in shots:
            if each.text:
                yield self._label(each)

    def _axis(self) -> Iterator[str]:
        yield words(AXIS_PX - 16, -ABOVE_PX - 12, "ms", "faint small", "end")
        for y, t_us in self.layout.ticks:
            yield words(AXIS_PX - 16, y + 4, self._ms(t_us), "faint small", "end")
            yield path((AXIS_PX - 10, y), (AXIS_PX - 4, y), kind="hair")
        for cut in self.layout.breaks:
            text = f"+{_span(cut.takes_us)}"
            title = f"{_span(cut.takes_us)} shortened"
            title += f"; {counted(cut.hidden, 'quiet packet')} in it" if cut.hidden else ""
            yield group(
                "break",
                title,
                [
                    path((AXIS_PX - 4, cut.y), (self.width - 24, cut.y), kind="guide"),
                    words(AXIS_PX - 16, cut.y + 4, text, "faint small", "end"),
                ],
            )

    def _names(self) -> Iterator[str]:
        views = {
            life.node: self.story.views[key]
            for key, life in self.story.lives.items()
            if key in self.story.views
        }
        for name, x in zip(self.story.columns, self.layout.xs, strict=True):
            view = views.get(name)
            y = -ABOVE_PX - (24 if view else 9)
            yield words(x, y, fitted(name), "name", "middle")
            if view:
                yield words(x, -ABOVE_PX - 8, fitted(view), "faint small", "middle")
            if self.layout.height + TAIL_PX > TALL_PX:
                yield words(x, self.layout.height + TAIL_PX + 20, fitted(name), "name", "middle")

    def _lines(self) -> Iterator[str]:
        bottom = self.layout.height + TAIL_PX
        for x in self.layout.xs:
            yield path((x, -ABOVE_PX), (x, bottom), kind="guide")
        for key, life in self.story.lives.items():
            x, (top, end) = self.layout.xs[self._column[life.node]], self._span_of(life, bottom)
            cuts = [cut.y for cut in self.layout.breaks if top < cut.y < end]
            line = [path((x, top), (x, end), kind="life"), *(slashes(x, y) for y in cuts)]
            yield group("line", f"{key}: {life.end}", line)

    def _span_of(self, life: Lifeline, bottom: float) -> tuple[float, float]:
        story, layout = self.story, self.layout
        top = -float(ABOVE_PX)
        if life.start_us >= story.from_us:
            top = self._ends.get((life.key, False), layout.y_at(life.start_us))
        end = self._ends.get((life.key, True), bottom)
        return top, end

    # -- packets and marks ---------------------------------------------------------------------

    def _shot(self, each: Placed) -> str:
        shot = _shot(each)
        x0, hows = self.layout.xs[each.column], {fate.how for fate in shot.fates}
        start = (x0, each.y if shot.t_us >= self.story.from_us else -float(ABOVE_PX))
        parts = [self._flight(start, each.column, fate) for fate in shot.fates]
        if not shot.receivers and self.story.traced:
            side = each.side
            parts.append(path(start, (x0 + side * 30, each.y + 8), kind="dash"))
        kinds = " ".join(["packet", shot.category, *sorted(h.replace(" ", "-") for h in hows)])
        return group(kinds, self._tooltip(shot), parts)

    def _flight(self, start: Point, column: int, fate: Fate) -> str:
        xs, target = self.layout.xs, self._column[self.story.lives[fate.life].node]
        x1, y1 = xs[target], self.layout.y_at(fate.t_us)
        if target == column:
            return ""
        way = RIGHT if target > column else LEFT
        end = (x1 - way * 4, y1)
        if fate.how in (ARRIVED, AGAIN):
            return arrow(start, end, "dots" if fate.how == AGAIN else "")
        if fate.how == DAMAGED:
            return arrow(start, end, "dash") + cross(_toward(start, end, end[0] - way * 14))
        # Near its target, to show the receiver.
        gap = abs(x1 - xs[target - way])
        at = _toward(start, end, x1 - way * gap * (0.12 if fate.how == ABSENT else 0.4))
        line = path(start, at, kind="dash")
        return line if fate.how == UNDER_WAY else line + cross(at)

    def _stray(self, each: Placed, stray: Stray) -> str:
        x, here = self.layout.xs[each.column], self._column.get(stray.peer)
        way = LEFT if here is None or here > each.column else RIGHT
        tooltip = f"{stray.label or 'a packet'} without a sending, at {stray.life}"
        tooltip += f" from {stray.peer}, {self._ms(stray.t_us, 3)} ms"
        shape = arrow((x - way * 30, each.y - 6), (x - way * 4, each.y), "dash")
        return group("packet other stray", tooltip, [shape])

    def _mark(self, each: Placed, mark: Mark) -> str:
        x = self.layout.xs[each.column]
        tooltip = "\n".join([f"{self._ms(mark.t_us, 3)} ms", *mark.details])
        if mark.kind == VIEWED:
            return group(
                "mark view", tooltip, [capsule(x, each.y, each.text, width_of(each.text) + 16)]
            )
        parts = [glyph(mark.kind, x, each.y)]
        if each.text:
            parts.append(_beside(x, each.y + 4, each))
        return group(f"mark {mark.kind}", tooltip, parts)

    def _label(self, each: Placed) -> str:
        shot = _shot(each)
        text = _beside(self.layout.xs[each.column], each.y - 4, each)
        return group(f"label packet {shot.category}", self._tooltip(shot), [text])

    def _tooltip(self, shot: Shot) -> str:
        """Everything known of it."""
        nbytes = sum(packet.size for packet in shot.packets)
        lines = [
            f"{shot.text or 'a packet'}: {len(shot.packets):,} of {nbytes:,} bytes"
            f" from {shot.life}, {self._ms(shot.t_us, 3)} ms"
        ]
        for fate in shot.fates:
            if fate.how in (ARRIVED, AGAIN, DAMAGED):
                how = FATES.get(fate.how, "arrived")
                lines.append(f"{how} at {fate.life}, {self._ms(fate.t_us, 3)} ms")
            else:
                lines.append(f"to {fate.life}: {FATES[fate.how]}")
        return "\n".join(lines)


def _shot(each: Placed) -> Shot:
    assert isinstance(each.thing, Shot)
    return each.thing


def _beside(x: float, y: float, each: Placed) -> str:
    anchor = "start" if each.side == RIGHT else "end"
    return words(x + each.side * TEXT_PX, y, each.text, "", anchor)


def _toward(start: Point, end: Point, x: float) -> Point:
    """The point of the line at this x."""
    (x0, y0), (x1, y1) = start, end
    return x, y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def _span(us: int) -> str:
    return f"{us / 1000:.0f} ms" if us < 1_000_000 else f"{us / 1_000_000:.2f} s"
