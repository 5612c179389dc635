"""`unisono draw`: a trace as a space-time diagram."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from unisono.cli import OK
from unisono.cli.show import err, out, print_json, status
from unisono.cli.verify import check_some
from unisono.draw import Drawing, DrawRequest, GraphDrawing, draw, draw_graph
from unisono.draw.labels import counted
from unisono.errors import BadTrace, Misuse
from unisono.trace.files import safe_name
from unisono.trace.history import History
from unisono.trace.reading import read_trace

STDOUT: Final = Path("-")
MS_MAX: Final = 1e12
LISTED_MAX: Final = 8
"""Runs listed where one must be chosen."""
HINT: Final = "to see packets, trace with --detail; in a program, join(…, detail=True)"


def show(
    source: Path,
    run: str | None,
    group: str | None,
    request: DrawRequest,
    file: Path | None,
    as_json: bool,
    graph: bool = False,
) -> int:
    if as_json and file == STDOUT:
        raise Misuse("--json and --out - both print: leave one out")
    with status("reading and drawing …"):
        history = chosen(source, histories_in(source), run, group)
        drawing = (draw_graph if graph else draw)(history, request)
    target = file or Path(f"{safe_name(history.run)}.svg")
    if isinstance(drawing, GraphDrawing) and target.suffix == ".txt":
        write(drawing.text, target)
    else:
        write(drawing.svg, target)
    if as_json:
        print_json(as_object(history, drawing, target))
    elif target == STDOUT:
        for note in drawing.notes:
            err().print(note, markup=False)
    elif isinstance(drawing, GraphDrawing):
        what = counted(drawing.configurations, "configuration")
        out().print(f"{what}, {drawing.vertices:,} vertices: {target}", markup=False)
    else:
        show_counts(drawing, target)
    return OK


def histories_in(source: Path) -> list[History]:
    """The histories of a trace directory, a `run=…` folder of it, or a file in one."""
    if source.is_file():
        folder = source.resolve().parent
        if source.suffix != ".parquet" or not folder.name.startswith("run="):
            raise BadTrace(f"{source}: not a file of a trace; give the directory --trace wrote")
        source = folder
    trace = read_trace(source)
    check_some(source, trace.events, len(trace.quarantined))
    return trace.histories()


def chosen(
    source: Path, histories: Sequence[History], run: str | None, group: str | None
) -> History:
    """The requested history; of several, one must be chosen."""
    found = [each for each in histories if run in (None, each.run)]
    if not found:
        raise Misuse(f"no run {run!r} in {source}: it has {listed(e.run for e in histories)}")
    if len({each.run for each in found}) > 1:
        runs = listed(each.run for each in found)
        raise Misuse(f"several runs in {source}: choose one with --run: {runs}")
    groups = [each for each in found if group in (None, each.group)]
    if not groups:
        raise Misuse(f"no group {group!r} in it: it has {listed(each.group for each in found)}")
    if len(groups) > 1:
        names = listed(each.group for each in groups)
        raise Misuse(f"several groups in one run: choose one with --group: {names}")
    return groups[0]


def listed(names: Iterable[str]) -> str:
    known = sorted(set(names))
    more = len(known) - LISTED_MAX
    return ", ".join(known[:LISTED_MAX]) + (f" and {more} more" if more > 0 else "")


def requested(
    from_ms: float,
    to_ms: float | None,
    nodes: str | None,
    without: str | None,
    every: bool,
    packets_max: int,
    title: str,
    message: str = "",
) -> DrawRequest:
    for value in (from_ms, to_ms or 0.0):
        if not 0 <= value <= MS_MAX:
            raise Misuse(f"{value} is not a number of milliseconds")
    return DrawRequest(
        from_us=round(from_ms * 1000),
        to_us=None if to_ms is None else round(to_ms * 1000),
        nodes=_names(nodes, "--nodes"),
        without=_names(without, "--without"),
        every=every,
        packets_max=packets_max,
        title=title,
        message=message,
    )


def _names(text: str | None, option: str) -> tuple[str, ...]:
    names = () if text is None else tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise Misuse(f"{option} {text!r}: write names separated by commas, as a,b,c")
    return names


def write(text: str, target: Path) -> None:
    if target == STDOUT:
        sys.stdout.write(text)
        return
    try:
        target.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise Misuse(f"cannot write {target}: {error.strerror or error}") from None


def as_object(history: History, drawing: Drawing | GraphDrawing, target: Path) -> dict[str, Any]:
    found = {
        "out": str(target),
        "run": history.run,
        "protocol": history.protocol,
        "group": history.group,
        "from_ms": drawing.from_us / 1000,
        "to_ms": drawing.to_us / 1000,
    }
    if isinstance(drawing, GraphDrawing):
        graph = {"configurations": drawing.configurations, "vertices": drawing.vertices}
        return {**found, **graph, "notes": drawing.notes}
    return {
        **found,
        "lives": drawing.lives,
        "traced": drawing.traced,
        "packets": drawing.packets,
        "lost": drawing.lost,
        "repairs": drawing.repairs,
        "left_out": drawing.left_out,
        "notes": drawing.notes,
    }


def show_counts(drawing: Drawing, target: Path) -> None:
    console = out()
    drawn = counted(drawing.packets, "packet" if drawing.traced else "message")
    lost = f" ({drawing.lost:,} lost, {drawing.repairs:,} sent again)" if drawing.traced else ""
    console.print(
        f"{counted(drawing.lives, 'member')}, {drawn}{lost},"
        f" {drawing.from_us / 1000:,.1f} to {drawing.to_us / 1000:,.1f} ms: {target}",
        markup=False,
    )
    for note in drawing.notes:
        console.print(note, markup=False)
    if not drawing.traced:
        console.print(HINT, markup=False)
