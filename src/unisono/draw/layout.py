"""Places everything: a column per node, time downward, no overlapping texts.

A text is in a lane: the left or right side of a column. Columns are far enough apart that lanes
never meet, and within a lane texts keep their distance. So time is stretched where much happens and
shortened, with a break, where nothing does.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import sqrt
from statistics import median_low
from typing import Final

from unisono.draw.flights import AGAIN, ARRIVED, DAMAGED, DELAY_US, Stray
from unisono.draw.labels import QUIET
from unisono.draw.marks import SENT, VIEWED, Mark
from unisono.draw.story import Shot, Story

FONT_PX: Final = 12
LANE_PX_MAX: Final = 190
"""A longer text is cut; its tooltip has all of it."""
COLUMN_PX_MIN: Final = 150
DELAY_PX: Final = 42.0
"""The height of the usual delay; heights grow with the square root of time."""
GAP_PX_MIN, GAP_PX_MAX = 4.0, 64.0
BREAK_PX: Final = 46.0
BREAK_FROM: Final = 8
"""A gap of more usual delays than this becomes a break."""
REPEAT_PX: Final = 70.0
"""A quiet packet's label is omitted this close below an equal one."""

AXIS_PX: Final = 74
TICK_PX: Final = 34
TEXT_PX: Final = 9
"""From a line to the text beside it."""
HEAD_PX: Final = 15

RECEIVED: Final = (ARRIVED, AGAIN, DAMAGED)

LEFT, RIGHT, LINE = -1, 1, 0
"""The lanes of a column: texts on either side, marks on the line."""

_NARROW: Final = frozenset("ijltfr.,:;|'!()[]{} 1′I-")
_WIDE: Final = frozenset("mwMW@%→…")


def width_of(text: str, size_px: float = FONT_PX) -> float:
    """An upper estimate of its width."""
    units = sum(0.4 if c in _NARROW else 0.92 if c in _WIDE else 0.64 for c in text)
    return units * size_px


def fitted(text: str, width_px: float = LANE_PX_MAX) -> str:
    if width_of(text) <= width_px:
        return text
    while text and width_of(text + "…") > width_px:
        text = text[:-1]
    return text.rstrip(" ,") + "…"


@dataclass(slots=True)
class Placed:
    """A thing on a line, and perhaps a text beside it."""

    thing: Mark | Shot | Stray
    column: int
    row: tuple[int, int]
    side: int
    """The lane of its text."""
    text: str
    y: float = 0.0


@dataclass(frozen=True, slots=True)
class Break:
    """Shortened time."""

    y: float
    """The middle."""
    takes_us: int
    hidden: int
    """Quiet packets in it."""


@dataclass(slots=True)
class Layout:
    story: Story
    xs: list[float]
    """Of the columns' lines."""
    placed: list[Placed]
    breaks: list[Break]
    ticks: list[tuple[float, int]]
    """Height and time of the axis labels."""
    width: float
    height: float
    """Of the body, from 0."""
    times: list[int] = field(default_factory=list)
    ys: list[float] = field(default_factory=list)
    """The times of rows, and their heights."""

    def y_at(self, t_us: int) -> float:
        """The height of a time: that of its row, or interpolated."""
        times, ys = self.times, self.ys
        at = bisect_left(times, t_us)
        if at == len(times):
            return ys[-1]
        if times[at] == t_us or at == 0:
            return ys[at]
        part = (t_us - times[at - 1]) / (times[at] - times[at - 1])
        return ys[at - 1] + (ys[at] - ys[at - 1]) * part


def layout_of(story: Story) -> Layout:
    rows = _Rows(story)
    xs, width = _columns(story, rows.placed)
    layout = Layout(story, xs, rows.placed, [], [], width, 0.0)
    _Scale(layout, rows.arrivals).run()
    return layout


# -- rows: things at the same height -------------------------------------------------------------


class _Rows:
    """Gives each thing a row: its time, and a slot where a column has several at once."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.placed: list[Placed] = []
        self.arrivals: dict[int, set[tuple[int, int, float]]] = {}
        """By time, the columns and sides where packets arrive, and the space above each."""
        self._column = {name: index for index, name in enumerate(story.columns)}
        self._last = len(story.columns) - 1
        self._slots: dict[tuple[int, int], tuple[int, set[int]]] = {}
        """By column and time, the last slot and the lanes taken in it."""
        for shot in story.shots:
            self._expect(shot)
        things: list[Mark | Shot | Stray] = [*story.marks, *story.shots, *story.strays]
        for thing in sorted(things, key=lambda each: (each.t_us, each.life, each.step)):
            self._place(thing)

    def column_of(self, life: str) -> int:
        return self._column[self.story.lives[life].node]

    def _expect(self, shot: Shot) -> None:
        """Keep texts away from where packets arrive, or should."""
        column = self.column_of(shot.life)
        for fate in shot.fates:
            other = self.column_of(fate.life)
            if other != column:
                side = RIGHT if column > other else LEFT
                _, taken = self._slots.get((other, fate.t_us), (0, set()))
                self._slots[other, fate.t_us] = (0, taken | {side})
                # A cross is somewhat before, and so above, the missed arrival.
                above = 2.0 if fate.how in RECEIVED else 14.0
                self.arrivals.setdefault(fate.t_us, set()).add((other, side, above))

    def _place(self, thing: Mark | Shot | Stray) -> None:
        column = self.column_of(thing.life)
        side, text = self._text(thing, column)
        if thing.t_us < self.story.from_us:  # only its arrivals are in the interval
            self.placed.append(Placed(thing, column, (self.story.from_us, 0), side, ""))
            return
        lanes = {side} if text else set()
        if isinstance(thing, Mark):
            lanes |= {LEFT, LINE, RIGHT} if thing.kind == VIEWED else {LINE}
        slot, taken = self._slots.get((column, thing.t_us), (0, set()))
        if lanes & taken:
            slot, taken = slot + 1, set()
        self._slots[column, thing.t_us] = (slot, taken | lanes)
        self.placed.append(Placed(thing, column, (thing.t_us, slot), side, text))

    def _text(self, thing: Mark | Shot | Stray, column: int) -> tuple[int, str]:
        """The lane of its text, and the text as far as it fits."""
        # The outer side of the first and last column is free of packets; between them, the side
        # from which no packet arrives.
        outer = LEFT if column == 0 < self._last else RIGHT
        if 0 < column < self._last:
            arriving = {side for c, side, _ in self.arrivals.get(thing.t_us, ()) if c == column}
            outer = LEFT if arriving == {RIGHT} else RIGHT
        if isinstance(thing, Stray):
            return outer, ""
        if isinstance(thing, Mark):
            if thing.kind == SENT and not self.story.traced:
                return outer, ""  # the arrow has the number
            return outer, fitted(thing.text)
        others = [self.column_of(fate.life) for fate in thing.fates]
        if not others:
            return (LEFT if column == self._last > 0 else RIGHT), fitted(thing.text)
        right = sum(other > column for other in others)
        return (RIGHT if right * 2 >= len(others) else LEFT), fitted(thing.text)


def _columns(story: Story, placed: Iterable[Placed]) -> tuple[list[float], float]:
    """The x of each column, so that texts do not meet, and the total width."""
    space = {(column, side): 20.0 for column in range(len(story.columns)) for side in (LEFT, RIGHT)}

    def need(column: int, side: int, width: float) -> None:
        space[column, side] = max(space[column, side], width)

    for index, name in enumerate(story.columns):
        views = [story.views.get(key, "") for key, life in story.lives.items() if life.node == name]
        half = max(width_of(fitted(name), HEAD_PX), *map(width_of, map(fitted, views)), 0.0) / 2
        for side in (LEFT, RIGHT):
            need(index, side, half + 10)
    for each in placed:
        if isinstance(each.thing, Mark) and each.thing.kind == VIEWED:
            for side in (LEFT, RIGHT):
                need(each.column, side, width_of(each.text) / 2 + 12)
        elif each.text:
            need(each.column, each.side, width_of(each.text) + TEXT_PX + 4)
    xs = [AXIS_PX + space[0, LEFT] + 8]
    for column in range(1, len(story.columns)):
        apart = space[column - 1, RIGHT] + space[column, LEFT] + 16
        xs.append(xs[-1] + max(apart, COLUMN_PX_MIN))
    return xs, xs[-1] + space[len(story.columns) - 1, RIGHT] + 16


# -- heights -------------------------------------------------------------------------------------


class _Scale:
    """Computes heights of rows, from their times and texts."""

    def __init__(
        self, layout: Layout, arrivals: Mapping[int, Iterable[tuple[int, int, float]]]
    ) -> None:
        self.layout = layout
        self._arrivals = arrivals
        story = layout.story
        self._rows: dict[tuple[int, int], list[Placed]] = {}
        for each in layout.placed:
            self._rows.setdefault(each.row, []).append(each)
        for shot in story.shots:
            for fate in shot.fates:
                self._rows.setdefault((fate.t_us, 0), [])
        delays = [
            fate.t_us - shot.t_us
            for shot in story.shots
            for fate in shot.fates
            if fate.how == ARRIVED and fate.t_us > shot.t_us
        ]
        self._delay_us = median_low(delays) if delays else DELAY_US
        self._bottoms: dict[tuple[int, int], float] = {}
        """By column and lane, the lower edge of the last text."""
        self._repeats: dict[tuple[int, int, str], float] = {}

    def run(self) -> None:
        layout, story = self.layout, self.layout.story
        y, before_us, tick_y = 0.0, None, -1e9
        for (t_us, slot), placed in sorted(self._rows.items(), key=lambda item: item[0]):
            broken = False
            if before_us is not None and t_us != before_us:
                gap, broken = self._gap(t_us - before_us)
                if broken:
                    low, high = (bisect_right(story.hidden_us, x) for x in (before_us, t_us))
                    layout.breaks.append(Break(y + gap / 2, t_us - before_us, high - low))
                y += gap
            arrivals = self._arrivals.get(t_us, ()) if slot == 0 else ()
            y = self._settle(y, placed, arrivals)
            if not layout.times or layout.times[-1] != t_us:
                layout.times.append(t_us)
                layout.ys.append(y)
            if slot == 0 and (y - tick_y >= TICK_PX or broken):
                layout.ticks.append((y, t_us))
                tick_y = y
            before_us = t_us
        layout.height = max(y, *self._bottoms.values(), 0.0)

    def _gap(self, takes_us: int) -> tuple[float, bool]:
        delays = takes_us / self._delay_us
        if delays > BREAK_FROM:
            return BREAK_PX, True
        return min(max(DELAY_PX * sqrt(delays), GAP_PX_MIN), GAP_PX_MAX), False

    def _settle(
        self, y: float, placed: list[Placed], arrivals: Iterable[tuple[int, int, float]]
    ) -> float:
        """The first height from `y` on where everything in the row fits."""
        boxes = [(column, side, above, 4.0) for column, side, above in sorted(arrivals)]
        for each in placed:
            self._drop_repeated(each, y)
            boxes += [(each.column, *box) for box in _boxes(each)]
        for column, lane, above, _ in boxes:
            y = max(y, self._bottoms.get((column, lane), -1e9) + above)
        for column, lane, _, below in boxes:
            self._bottoms[column, lane] = y + below
        for each in placed:
            each.y = y
        return y

    def _drop_repeated(self, each: Placed, y: float) -> None:
        if isinstance(each.thing, Shot) and each.thing.category == QUIET and each.text:
            key = (each.column, each.side, each.text)
            if y - self._repeats.get(key, -1e9) < REPEAT_PX:
                each.text = ""
            else:
                self._repeats[key] = y


def _boxes(each: Placed) -> list[tuple[int, float, float]]:
    """The lanes it takes, and its extent above and below."""
    thing = each.thing
    if isinstance(thing, Shot):
        return [(each.side, 15.0, 2.5)] if each.text else []
    if isinstance(thing, Stray):
        return []
    if thing.kind == VIEWED:
        return [(lane, 11.0, 11.0) for lane in (LEFT, LINE, RIGHT)]
    text = [(each.side, 7.5, 7.5)] if each.text else []
    return [(LINE, 6.0, 6.0), *text]
