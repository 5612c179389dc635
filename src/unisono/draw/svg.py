"""SVG elements as text, and the light and dark colours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from html import escape
from typing import Final

from unisono.draw.labels import (
    CATEGORIES,
    DATA,
    JOIN,
    NAK,
    OTHER,
    QUIET,
    REFUSAL,
    REPAIR,
    STATE,
    TOKEN,
)
from unisono.model import shortened

_NOT_XML: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

FONT: Final = "system-ui, 'Segoe UI', Roboto, Helvetica, Arial, 'DejaVu Sans', sans-serif"

#            on white, on black
COLOURS: Final[Mapping[str, tuple[str, str]]] = {
    DATA: ("#0a5fd0", "#6cb0ff"),
    REPAIR: ("#c2500a", "#ff9d4d"),
    NAK: ("#b3207e", "#ff86cf"),
    REFUSAL: ("#c01c28", "#ff7b7b"),
    TOKEN: ("#0b7a75", "#46d0c6"),
    JOIN: ("#2a7d2e", "#6fd077"),
    STATE: ("#7a5195", "#c9a2f0"),
    QUIET: ("#9aa2ab", "#6d7681"),
    OTHER: ("#55606b", "#aab4be"),
}
PAPER: Final = ("#ffffff", "#0f141a")
INK: Final = ("#1d2329", "#e8edf2")
FAINT: Final = ("#6b7580", "#98a3ae")
HAIR: Final = ("#d5dae0", "#2d353e")
ALARM: Final = ("#d11a2a", "#ff6b6b")
BODY: Final = ("#eef3fb", "#1b2a40")
"""Of a view."""


def text_of(text: str) -> str:
    """Escaped for XML; characters that XML excludes are replaced."""
    return escape(_NOT_XML.sub("\ufffd", text), quote=True)


def number(value: float) -> str:
    """To a tenth, without a trailing zero."""
    text = f"{value:.1f}"
    text = text.removesuffix(".0")
    return "0" if text == "-0" else text


def tag(name: str, inner: str = "", **attributes: str | float) -> str:
    """An element on one line. `_` in a name is `-`; `class_` is `class`."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
    )
    return f"<{name}{written}>{inner}</{name}>" if inner else f"<{name}{written}/>"


def _value(value: str | float) -> str:
    return text_of(value) if isinstance(value, str) else number(value)


def group(kind: str, title: str, parts: Iterable[str]) -> str:
    tooltip = tag("title", text_of(shortened(title))) if title else ""
    return tag("g", tooltip + "".join(parts), class_=kind)


def words(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    if anchor == "start":
        return tag("text", text_of(text), x=x, y=y, class_=kind)
    return tag("text", text_of(text), x=x, y=y, class_=kind, text_anchor=anchor)


def path(*points: tuple[float, float], kind: str = "") -> str:
    d = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)
    return tag("path", d=d, class_=kind) if kind else tag("path", d=d)


def document(title: str, width: float, height: float, parts: Iterable[str]) -> str:
    """A picture of this size, on paper."""
    paper = tag("rect", width=width, height=height, rx=8.0, class_="paper")
    inner = "\n".join(["", tag("title", text_of(title)), style(), paper, *parts, ""])
    view = f"0 0 {round(width, 1):g} {round(height, 1):g}"
    xmlns = "http://www.w3.org/2000/svg"
    size = {"width": width, "height": height}
    return tag("svg", inner, xmlns=xmlns, viewBox=view, **size, role="img") + "\n"


def style() -> str:
    light, dark = _colours(0), _colours(1)
    return tag(
        "style", f"\n{_SHAPES}\n{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"
    )


_SHAPES: Final = "\n".join(
    (
        f"text {{ font: 12px {FONT}; paint-order: stroke; stroke-width: 5px;"
        " stroke-linejoin: round; }",
        "path, line { fill: none; stroke-width: 1.5px; stroke-linecap: round; }",
        ".head { font-size: 15px; font-weight: 600; }",
        ".name { font-size: 15px; font-weight: 600; }",
        ".small { font-size: 11px; }",
        ".packet text { font-weight: 500; }",
        f".{REPAIR} path, .{NAK} path {{ stroke-width: 2px; }}",
        f".{QUIET} path {{ stroke-width: 1px; }}",
        f".{QUIET} text {{ font-size: 11px; font-weight: 400; }}",
        ".dash { stroke-dasharray: 5 4; }",
        ".dots { stroke-dasharray: 1.5 3.5; }",
        ".packet .tip { stroke: none; }",
        ".packet .cross { stroke-width: 2.2px; }",
        ".life { stroke-width: 2px; }",
        ".guide { stroke-width: 1px; stroke-dasharray: 1 5; }",
        ".mark path, .mark circle, .mark rect { stroke-width: 1.6px; }",
        ".view rect { stroke-width: 1.2px; }",
        ".view text { stroke: none; }",
        ".plain { stroke: none; }",
    )
)


def _colours(which: int) -> str:
    paper, ink, faint, hair, alarm, body = (
        each[which] for each in (PAPER, INK, FAINT, HAIR, ALARM, BODY)
    )
    rules = [
        f".paper {{ fill: {paper}; }}",
        f"text {{ fill: {ink}; stroke: {paper}; }}",
        f".faint {{ fill: {faint}; }}",
        f".hair, .guide {{ stroke: {hair}; }}",
        f".life {{ stroke: {ink}; }}",
        f".gap {{ stroke: {paper}; stroke-width: 4px; }}",
        f".mark path, .mark circle, .mark rect {{ stroke: {ink}; fill: {paper}; }}",
        f".deliver circle {{ fill: {ink}; }}",
        ".mark path.bare { fill: none; }",
        f".crash path, .stop path, .vanish path {{ stroke: {alarm}; }}",
        f".crash text, .stop text, .vanish text {{ fill: {alarm}; }}",
        f".view rect {{ stroke: {ink}; fill: {body}; }}",
    ]
    for category in CATEGORIES:
        colour = COLOURS[category][which]
        rules += [
            f".packet.{category} path {{ stroke: {colour}; }}",
            f".packet.{category} .tip {{ fill: {colour}; }}",
            f".packet.{category} text {{ fill: {colour}; }}",
        ]
    rules.append(f".packet path.cross {{ stroke: {alarm}; }}")
    return "\n".join(rules)
