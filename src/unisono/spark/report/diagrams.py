"""The space-time diagram around the first violation of a run, from the rows of its trace.

Only the rows nearest to the violation are drawn. A run that is too large to be read quickly gets no
diagram, and the page says so.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from unisono.draw import DrawRequest, draw
from unisono.draw.svg import style, text_of
from unisono.errors import BadTrace, Misuse
from unisono.laws import Violation
from unisono.spark.report.markup import size_of, spaced
from unisono.spark.report.model import Diagram
from unisono.spark.report.trace_rows import (
    SKELETON,
    NearbyRows,
    ViolationRows,
    rows_near,
)
from unisono.trace.checks import ABOUT_MESSAGES
from unisono.trace.files import TraceFiles, safe_name, trace_files
from unisono.trace.history import History
from unisono.trace.reading import Trace, read_trace
from unisono.trace.record import Row

RUN_BYTES_MAX: Final = 4 << 20
"""A larger run is not read."""
ALL_BYTES_MAX: Final = 32 << 20
"""No more is read for all diagrams of a page."""
EVENTS: Final = (40, 24, 12, 6)
"""The number of events around the violation; smaller until the diagram is low enough."""
EVENTS_FACTOR_MAX: Final = 3
"""So many times as many, where that shows all rows about the message."""
HEIGHT_PX_MAX: Final = 1200
PACKETS_MAX: Final = 150
COLUMNS_MAX: Final = 7
"""Nodes side by side; those that the violation names come first."""
DRAWN: Final = frozenset((*ABOUT_MESSAGES, *SKELETON, "packet_out"))
ACCUSED: Final = "accused"


class Diagrams:
    """Draws runs of a trace directory within the limit on what may be read."""

    def __init__(self, trace_dir: str) -> None:
        self._traces = trace_dir
        self._bytes_left = ALL_BYTES_MAX

    def of(self, run: str, violations: Sequence[Violation]) -> Diagram:
        try:
            files = _files_of(Path(self._traces), run)
            nbytes = sum(found.path.stat().st_size for found in files)
        except (BadTrace, OSError):
            return Diagram("", "its trace is no longer there, or not on this machine.")
        if nbytes > RUN_BYTES_MAX:
            caption = f"its trace is large ({size_of(nbytes)}); this draws a part of it."
            return Diagram("", caption, self._command(run, "--from-ms 0 --to-ms 1000"))
        if nbytes > self._bytes_left:
            caption = "the runs before it used up what may be read for diagrams."
            return Diagram("", caption, self._command(run))
        self._bytes_left -= nbytes
        try:
            return self._draw(run, read_trace(files[0].path.parent), violations)
        except (BadTrace, Misuse) as error:
            return Diagram("", f"{error}.")

    def _draw(self, run: str, trace: Trace, violations: Sequence[Violation]) -> Diagram:
        rows = trace.runs.get(run, [])
        found = ViolationRows(rows, violations)
        focus = found.first()
        if focus is None:
            return Diagram("", "the trace has no rows about the violations.")
        violation, row = focus
        nearby, torn = rows_near(rows, row), trace.torn.get(run, frozenset())
        history = History(run, row.protocol, row.group, tuple(nearby.rows), torn)
        for events in EVENTS:
            drawing = draw(history, _request(nearby, row, violation, found, events))
            if _height_of(drawing.svg) <= HEIGHT_PX_MAX:
                break
        from_ms, to_ms = drawing.from_us / 1000, drawing.to_us / 1000
        what = spaced(violation.law) + (f" at {violation.life}" if violation.life else "")
        messages = [each for each in (violation.message, violation.other) if ":" in each]
        svg, is_marked = _marked(drawing.svg, messages[:1])
        caption = f"The first violation ({what}), {from_ms:,.1f} to {to_ms:,.1f} ms of the run."
        if is_marked:
            caption += f" Message {violation.message} is in bold and underlined."
        line = self._command(run, f"--from-ms {from_ms:.3f} --to-ms {to_ms:.3f}")
        return Diagram(_inline(svg, caption), caption, line)

    def _command(self, run: str, more: str = "") -> str:
        directory, name = shlex.quote(self._traces), shlex.quote(run)
        return f"unisono draw {directory} --run {name} {more}".strip()


def _files_of(top: Path, run: str) -> list[TraceFiles]:
    """The files of one run; the others are not listed."""
    if top.name.startswith("run="):
        if files := [found for found in trace_files(top) if found.run == run]:
            return files
    for name in (safe_name(run), run):
        folder = top / f"run={name}"
        if "/" not in name and folder.is_dir():
            return trace_files(folder)
    raise BadTrace(f"no run {run!r}")


# -- what is drawn ---------------------------------------------------------------------------------


def _request(
    nearby: NearbyRows, focus: Row, violation: Violation, found: ViolationRows, count: int
) -> DrawRequest:
    drawn = [row.t_us for row in nearby.near if row.kind in DRAWN]
    distances = sorted(abs(t_us - focus.t_us) for t_us in drawn)
    reach = distances[min(count, len(distances)) - 1] if distances else 0
    from_us, to_us = focus.t_us - reach, focus.t_us + reach
    for row in found.about(violation):
        first, last = min(from_us, row.t_us), max(to_us, row.t_us)
        if sum(first <= t_us <= last for t_us in drawn) <= count * EVENTS_FACTOR_MAX:
            from_us, to_us = first, last
    margin = max((to_us - from_us) // 20, 1)
    zero_us = min(row.t_us for row in nearby.rows)
    last_us = max(row.t_us for row in nearby.rows)
    about = violation.message or violation.life or spaced(violation.law)
    return DrawRequest(
        from_us=max(from_us - margin - zero_us, 0),
        to_us=min(to_us + margin, last_us) - zero_us,
        nodes=_columns(nearby.rows, violation),
        packets_max=PACKETS_MAX,
        title=f"around {about if len(about) <= 40 else about[:39] + '…'}",
    )


def _height_of(svg: str) -> float:
    match = re.search(r' height="([0-9.]+)"', svg)
    return float(match[1]) if match else 0.0


def _columns(rows: Iterable[Row], violation: Violation) -> tuple[str, ...]:
    """All nodes; if there are too many, those that the violation names, then others."""
    nodes = sorted({row.node for row in rows})
    if len(nodes) <= COLUMNS_MAX:
        return ()
    witnesses = (violation.life, violation.message, violation.other)
    named = {witness.partition(":")[0].rpartition("#")[0] for witness in witnesses}
    return tuple(sorted(sorted(nodes, key=lambda node: node not in named)[:COLUMNS_MAX]))


# -- the drawing within the page -------------------------------------------------------------------

_MARK: Final = re.compile(r'<g class="mark (send|deliver|stable)"><title>([^<]*)</title>')


def _marked(svg: str, messages: Sequence[str]) -> tuple[str, bool]:
    """The drawing with the events of these messages highlighted, and whether there are any."""
    wanted = tuple(
        f"{kind} {text_of(message)},"
        for message in messages
        for kind in ("send", "deliver", "stable")
    )
    is_marked = False

    def mark(match: re.Match[str]) -> str:
        nonlocal is_marked
        if not wanted or not any(line.startswith(wanted) for line in match[2].split("\n")):
            return match[0]
        is_marked = True
        return match[0].replace(f'"mark {match[1]}"', f'"mark {match[1]} {ACCUSED}"', 1)

    return _MARK.sub(mark, svg), is_marked


def _inline(svg: str, description: str) -> str:
    """Without what only a file needs, and without the style, which would apply to the page."""
    bare = svg.replace(style(), "", 1).replace(' xmlns="http://www.w3.org/2000/svg"', "", 1)
    return bare.replace("</title>", f"</title><desc>{text_of(description)}</desc>", 1).strip()


@cache
def diagram_style() -> str:
    """The style of drawings, restricted to them."""
    text = style().removeprefix("<style>").removesuffix("</style>")
    text = text.replace("@media (prefers", "@media screen and (prefers")
    return "\n".join(_scoped(text.splitlines()))


def _scoped(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        selector, brace, rest = line.partition("{")
        if brace and not line.startswith("@"):
            names = (f".drawing {name.strip()}" for name in selector.split(","))
            line = f"{', '.join(names)} {{{rest}"
        yield line
