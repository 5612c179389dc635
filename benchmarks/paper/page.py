"""Writes a run: the drawings, the figures as JSON, and the tables of docs/BENCHMARKS.md."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.marks import fill
from benchmarks.paper.curves import drawn
from benchmarks.paper.plan import MEASURED, RATE, SIMULATED, CurveFigure, Curves, CurveSummary, size
from unisono.errors import Misuse

PAGE: Final = "BENCHMARKS.md"
OF_THE_PAGE: Final = "ring"
"""The protocol of the paper, and of the page."""
BEGIN: Final = "<!-- unisono bench paper: begin; what follows is written by the command -->"
END: Final = "<!-- unisono bench paper: end -->"


def keep(
    out: Path, figures: Sequence[CurveFigure], curves: Curves, found: Mapping[str, Any], about: str
) -> list[Path]:
    """Write all of it; also the tables of a `BENCHMARKS.md` in the directory or above it."""
    name = found["protocol"]
    written = []
    try:
        out.mkdir(parents=True, exist_ok=True)
        for figure in figures:
            path = out / f"{name}-paper-{figure.number}.svg"
            path.write_text(drawn(figure, curves, about), encoding="utf-8")
            written.append(path)
        path = out / f"{name}-paper.json"
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        written.append(path)
        for page in (out / PAGE, out.parent / PAGE):
            if (
                name == OF_THE_PAGE
                and page.is_file()
                and _fill(page, out, figures, curves, found, about)
            ):
                written.append(page)
    except OSError as error:
        raise Misuse(f"cannot write {out}: {error.strerror}; give --out another") from None
    return written


def _fill(
    page: Path,
    out: Path,
    figures: Sequence[CurveFigure],
    curves: Curves,
    found: Mapping[str, Any],
    about: str,
) -> bool:
    """Put the tables between the marks of the page; whether it has them."""
    pictures = Path(os.path.relpath(out, page.parent)).as_posix()
    parts = [f"{about[0].upper()}{about[1:]}."]
    for figure in figures:
        parts.append(f"### Figure {figure.number}: {figure.title.lower()}")
        parts.append(
            f"![Figure {figure.number}]({pictures}/{found['protocol']}-paper-{figure.number}.svg)"
        )
        parts.append("\n".join(_table(figure, curves)))
    if found["missing"]:
        parts.append("Not measured: " + "; ".join(found["missing"]) + ".")
    if found["repeated"]:
        parts.append("Begun again with a new group: " + "; ".join(found["repeated"]) + ".")
    return fill(page, BEGIN, END, parts)


def rows(
    figure: CurveFigure, curves: Curves, spread: bool = True
) -> tuple[list[str], list[list[str]]]:
    """The table of a figure: its head, and a row for each group size."""
    columns = [
        (origin, nbytes)
        for origin in (MEASURED, SIMULATED)
        for nbytes in figure.sizes
        if curves.get((figure.number, origin, nbytes))
    ]
    of = {
        column: {each.members: each for each in curves[figure.number, *column]}
        for column in columns
    }
    members = sorted({count for column in of.values() for count in column})
    members = sorted({*members, *(each.members for each in figure.printed if each.members)})
    head = ["members", *(f"{size(nbytes)}, {origin}" for origin, nbytes in columns), "the paper"]
    body = []
    for count in members:
        cells = [
            _cell(figure, of[column].get(count), spread and column[0] == MEASURED)
            for column in columns
        ]
        printed = [each for each in figure.printed if each.members == count]
        told = ", ".join(f"{value(figure, each.value)} at {size(each.nbytes)}" for each in printed)
        body.append([str(count), *cells, told])
    return head, body


def _cell(figure: CurveFigure, found: CurveSummary | None, spread: bool) -> str:
    if found is None:
        return ""
    middle = value(figure, found.median)
    if not spread:
        return middle
    return f"{middle} ({value(figure, found.low)} to {value(figure, found.high)})"


def value(figure: CurveFigure, number: float) -> str:
    return f"{number:,.0f}" if figure.kind == RATE else f"{number:.1f}"


def calculated(figure: CurveFigure) -> str:
    """What the paper calculates without a group size."""
    each = [
        f"{value(figure, p.value)} for {size(p.nbytes)}" for p in figure.printed if not p.members
    ]
    return f"The paper calculates {' and '.join(each)}." if each else ""


def _table(figure: CurveFigure, curves: Curves) -> Iterator[str]:
    head, body = rows(figure, curves)
    unit = figure.unit if figure.kind == RATE else "milliseconds"
    yield f"In {unit}; the median, and the spread of eight tenths."
    yield ""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---:|' * (len(head) - 1)}---|"
    for row in body:
        yield f"| {' | '.join(row)} |"
    if told := calculated(figure):
        yield ""
        yield told
