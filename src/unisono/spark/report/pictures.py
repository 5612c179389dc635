"""The space-time diagram around the first violation of a run, from the rows of its trace.

A run may be long: its files are gone through group by group, and only the rows nearest to the
violation are kept. What is larger than can be gone through quickly is not drawn, and says so.
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
from unisono.spark.report.found import Picture
from unisono.spark.report.places import BONES, Near, ViolationEvents, near, told_of
from unisono.spark.report.words import size_of
from unisono.trace.checks import SPOKEN
from unisono.trace.files import TraceFiles, safe_name, trace_files
from unisono.trace.history import History
from unisono.trace.record import Row

RUN_BYTES_MAX: Final = 32 << 20
"""A run whose files are larger is not gone through."""
ALL_BYTES_MAX: Final = 128 << 20
"""Of all runs of a page together, no more is gone through."""
EVENTS: Final = (40, 24, 12, 6)
"""About so many events around the violation are drawn; fewer, as long as they are too high,"""
EVENTS_MAX: Final = 3
"""and up to so many times as many, where that shows all that became of the message."""
HEIGHT_PX_MAX: Final = 1200
PACKETS_MAX: Final = 150
COLUMNS_MAX: Final = 7
"""So many nodes stand beside each other; those that the violation is about come first."""
DRAWN: Final = frozenset((*SPOKEN, *BONES, "packet_out"))
ACCUSED: Final = "accused"


class Pictures:
    """Draws runs of a trace directory as long as there is something left of what may be read."""

    def __init__(self, trace_dir: str) -> None:
        self._traces = trace_dir
        self._left = ALL_BYTES_MAX

    def of(self, run: str, violations: Sequence[Violation]) -> Picture:
        try:
            files = _files_of(Path(self._traces), run)
            octets = sum(found.path.stat().st_size for found in files)
        except (BadTrace, OSError):
            return Picture("", "its trace is no longer there, or not on this machine.")
        if octets > RUN_BYTES_MAX:
            told = f"its trace is long ({size_of(octets)}); this draws a stretch of it."
            return Picture("", told, self._command(run, "--from-ms 0 --to-ms 1000"))
        if octets > self._left:
            told = "the runs before it took all that may be read for diagrams."
            return Picture("", told, self._command(run))
        self._left -= octets
        try:
            return self._drawn(run, files, violations)
        except (BadTrace, Misuse) as error:
            return Picture("", f"{error}.")

    def _drawn(
        self, run: str, files: Sequence[TraceFiles], violations: Sequence[Violation]
    ) -> Picture:
        told = told_of(files, violations)
        focus = told.first(violations)
        if focus is None:
            return Picture("", "the trace has no row of what the violations are about.")
        violation, row = focus
        kept = near(files, row)
        history = History(run, row.protocol, row.group, tuple(kept.rows), kept.torn)
        for events in EVENTS:
            drawing = draw(history, _window(kept, row, violation, told, events))
            if _height_of(drawing.svg) <= HEIGHT_PX_MAX:
                break
        from_ms, to_ms = drawing.from_us / 1000, drawing.to_us / 1000
        what = f"{violation.law.replace('_', ' ')}" + (
            f" at {violation.life}" * bool(violation.life)
        )
        accused = [each for each in (violation.message, violation.other) if ":" in each]
        svg, marked = _marked(drawing.svg, accused[:1])
        words = f"The first violation ({what}), {from_ms:,.1f} to {to_ms:,.1f} ms of the run."
        if marked:
            words += f" Message {violation.message} is in bold and underlined."
        line = self._command(run, f"--from-ms {from_ms:.3f} --to-ms {to_ms:.3f}")
        return Picture(_inline(svg, words), words, line)

    def _command(self, run: str, more: str = "") -> str:
        where, name = shlex.quote(self._traces), shlex.quote(run)
        return f"unisono draw {where} --run {name} {more}".strip()


def _files_of(top: Path, run: str) -> list[TraceFiles]:
    """The files of one run, without a look at the others."""
    if top.name.startswith("run="):
        return [found for found in trace_files(top) if found.run == run]
    for name in (safe_name(run), run):
        folder = top / f"run={name}"
        if "/" not in name and folder.is_dir():
            return trace_files(folder)
    raise BadTrace(f"no run {run!r}")


# -- which stretch ---------------------------------------------------------------------------------


def _window(
    kept: Near, focus: Row, violation: Violation, told: ViolationEvents, count: int
) -> DrawRequest:
    events = sorted(abs(row.t_us - focus.t_us) for row in kept.near if row.kind in DRAWN)
    reach = events[min(count, len(events)) - 1] if events else 0
    from_us, to_us = focus.t_us - reach, focus.t_us + reach
    for row in told.about(violation):
        wider = min(from_us, row.t_us), max(to_us, row.t_us)
        if _count(kept.near, *wider) <= count * EVENTS_MAX:
            from_us, to_us = wider
    # A little more, so that nothing stands at the very edge.
    edge = max((to_us - from_us) // 20, 1)
    zero_us = min(row.t_us for row in kept.rows)
    last_us = max(row.t_us for row in kept.rows)
    about = violation.message or violation.life or violation.law.replace("_", " ")
    return DrawRequest(
        from_us=max(from_us - edge - zero_us, 0),
        to_us=min(to_us + edge, last_us) - zero_us,
        nodes=_columns(kept.rows, violation),
        packets_max=PACKETS_MAX,
        title=f"around {about if len(about) <= 40 else about[:39] + '…'}",
    )


def _height_of(svg: str) -> float:
    match = re.search(r' height="([0-9.]+)"', svg)
    return float(match[1]) if match else 0.0


def _count(rows: Iterable[Row], from_us: int, to_us: int) -> int:
    return sum(row.kind in DRAWN and from_us <= row.t_us <= to_us for row in rows)


def _columns(rows: Iterable[Row], violation: Violation) -> tuple[str, ...]:
    """The nodes, when they are too many: those that the violation names, then others."""
    nodes = sorted({row.node for row in rows})
    if len(nodes) <= COLUMNS_MAX:
        return ()
    named = [
        witness.partition(":")[0].rpartition("#")[0]
        if ":" in witness
        else witness.rpartition("#")[0]
        for witness in (violation.life, violation.message, violation.other)
    ]
    first = [node for node in nodes if node in named]
    return tuple(sorted((first + [node for node in nodes if node not in first])[:COLUMNS_MAX]))


# -- the drawing as a part of a page ---------------------------------------------------------------

_MARK: Final = re.compile(r'<g class="mark (send|deliver|stable)"><title>([^<]*)</title>')


def _marked(svg: str, messages: Sequence[str]) -> tuple[str, bool]:
    """The drawing with the marks that tell of these messages accused, and whether there are any."""
    wanted = tuple(
        f"{kind} {text_of(message)},"
        for message in messages
        for kind in ("send", "deliver", "stable")
    )
    hit = False

    def mark(match: re.Match[str]) -> str:
        nonlocal hit
        if not wanted or not any(line.startswith(wanted) for line in match[2].split("\n")):
            return match[0]
        hit = True
        return match[0].replace(f'"mark {match[1]}"', f'"mark {match[1]} {ACCUSED}"', 1)

    return _MARK.sub(mark, svg), hit


def _inline(svg: str, words: str) -> str:
    """Without what only a file needs, and without its style: that would hold for the whole page."""
    bare = svg.replace(style(), "", 1).replace(' xmlns="http://www.w3.org/2000/svg"', "", 1)
    return bare.replace("</title>", f"</title><desc>{text_of(words)}</desc>", 1).strip()


@cache
def drawing_style() -> str:
    """The style of drawings, for drawings alone."""
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
