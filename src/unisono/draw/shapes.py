"""Arrows, crosses and marks, for the drawing and its legend."""

from __future__ import annotations

from math import hypot
from typing import Final

from unisono.draw.marks import (
    CRASHED,
    DELIVERED,
    DEPARTED,
    GONE,
    JOINED,
    SENT,
    STABLE,
    STOPPED,
    VIEWED,
)
from unisono.draw.svg import number, path, tag, words

Point = tuple[float, float]

TIP_LONG, TIP_WIDE = 9.0, 3.4
CROSS_PX: Final = 4.5


def arrow(start: Point, end: Point, kind: str = "") -> str:
    """A line with a head that touches `end`."""
    (x0, y0), (x1, y1) = start, end
    long = hypot(x1 - x0, y1 - y0) or 1.0
    ux, uy = (x1 - x0) / long, (y1 - y0) / long
    bx, by = x1 - ux * TIP_LONG, y1 - uy * TIP_LONG
    corners = (
        (x1, y1),
        (bx - uy * TIP_WIDE, by + ux * TIP_WIDE),
        (bx + uy * TIP_WIDE, by - ux * TIP_WIDE),
    )
    tip = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in corners) + "Z"
    return path(start, (bx, by), kind=kind) + tag("path", d=tip, class_="tip")


def cross(at: Point, size: float = CROSS_PX) -> str:
    x, y = at
    both = (
        f"M{number(x - size)} {number(y - size)}L{number(x + size)} {number(y + size)}"
        f"M{number(x - size)} {number(y + size)}L{number(x + size)} {number(y - size)}"
    )
    return tag("path", d=both, class_="cross")


def glyph(kind: str, x: float, y: float) -> str:
    """The mark of an event; a view has a capsule instead."""
    if kind == JOINED:
        return tag("circle", cx=x, cy=y, r=4.5)
    if kind == SENT:
        return tag("rect", x=x - 4.5, y=y - 4.5, width=9.0, height=9.0)
    if kind == DELIVERED:
        return tag("circle", cx=x, cy=y, r=4.2)
    if kind == STABLE:
        return tag("circle", cx=x, cy=y, r=5.0) + tag("circle", cx=x, cy=y, r=1.8)
    if kind == DEPARTED:
        return path((x - 9, y), (x + 9, y), kind="bare")
    if kind == STOPPED:
        return path((x - 9, y), (x + 9, y), kind="bare") + path((x - 6, y + 4), (x + 6, y + 4))
    if kind == CRASHED:
        return path((x - 7, y - 7), (x + 7, y + 7)) + path((x - 7, y + 7), (x + 7, y - 7))
    assert kind == GONE, f"no glyph for {kind}"
    return path((x - 9, y), (x - 3, y)) + path((x + 3, y), (x + 9, y))


def capsule(x: float, y: float, text: str, width: float) -> str:
    """A view on its line."""
    box = tag("rect", x=x - width / 2, y=y - 9, width=width, height=18.0, rx=9.0)
    return box + words(x, y + 4, text, "", "middle")


def sample(kind: str, x: float, y: float) -> str:
    """A mark as the legend shows it."""
    return capsule(x, y, "{ }", 26.0) if kind == VIEWED else glyph(kind, x, y)
