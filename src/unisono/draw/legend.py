"""The legend, with the shapes and colours that occur."""

from __future__ import annotations

from collections.abc import Iterator

from unisono.draw.flights import ABSENT, AGAIN, DAMAGED, LOST, UNDER_WAY
from unisono.draw.labels import CATEGORIES, DATA, OTHER
from unisono.draw.layout import Layout, width_of
from unisono.draw.marks import MARKS
from unisono.draw.shapes import arrow, cross, sample
from unisono.draw.svg import group, path, words

SAMPLE_PX = 34
LINE_PX = 22

FATES = {
    LOST: "lost",
    DAMAGED: "arrived damaged",
    AGAIN: "duplicate",
    ABSENT: "receiver gone",
    UNDER_WAY: "in flight at the end",
}


def legend(layout: Layout, x: float, y: float, width: float) -> tuple[str, float]:
    """The legend at this point, and its height."""
    parts, at_x, at_y = [], x, y
    for kind, shape, text in _entries(layout):
        takes = SAMPLE_PX + width_of(text) + 18
        if at_x > x and at_x + takes > x + width:
            at_x, at_y = x, at_y + LINE_PX
        shown = words(at_x + SAMPLE_PX, at_y + 4, text, "plain")
        parts.append(group(f"{kind} entry", "", [_moved(shape, at_x, at_y), shown]))
        at_x += takes
    return "".join(parts), at_y - y + LINE_PX


def _moved(shape: str, x: float, y: float) -> str:
    return f'<g transform="translate({x:g} {y:g})">{shape}</g>'


def _entries(layout: Layout) -> Iterator[tuple[str, str, str]]:
    """Class, shape at the origin, and text."""
    story = layout.story
    categories = {shot.category for shot in story.shots}
    for category, text in CATEGORIES.items():
        if category in categories:
            if not story.traced and category == DATA:
                text = "message, from send to delivery"
            yield f"packet {category}", arrow((0, -3), (26, 3)), text
    fates = {fate.how for shot in story.shots for fate in shot.fates}
    for how, text in FATES.items():
        if how in fates:
            yield f"packet {OTHER}", _fate(how), text
    marks = {mark.kind for mark in story.marks}
    for kind, text in MARKS.items():
        if kind in marks:
            yield f"mark {kind}", sample(kind, 13, 0), text
    if story.strays:
        yield f"packet {OTHER}", arrow((12, -3), (26, 0)), "arrival without a sending"
    if layout.breaks:
        yield "", slashes(13, 0), "time shortened"


def _fate(how: str) -> str:
    if how == AGAIN:
        return arrow((0, -3), (26, 3), "dots")
    if how == DAMAGED:
        return arrow((0, -3), (26, 3), "dash") + cross((18, 1), 4)
    line = path((0, -3), (20, 2), kind="dash")
    return line if how == UNDER_WAY else line + cross((20, 2), 4)


def slashes(x: float, y: float) -> str:
    """A break in a line."""
    return (
        path((x, y - 5), (x, y + 5), kind="gap")
        + path((x - 6, y - 1), (x + 6, y - 6), kind="life")
        + path((x - 6, y + 6), (x + 6, y + 1), kind="life")
    )
