"""`unisono bench paper`: the five curves of the ring's paper, measured, simulated and drawn."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.paper.ethernet import Stuck, simulated
from benchmarks.paper.measure import Report, Samples, measured
from benchmarks.paper.page import calculated, keep, rows
from benchmarks.paper.plan import (
    FULL,
    MEASURED,
    QUICK,
    SIMULATED,
    CurveFigure,
    Curves,
    Effort,
    as_json,
    figures_for,
    points,
    summed_up,
)
from unisono.cli import OK, STOPPED, refuse, terminable
from unisono.cli.show import err, out, print_json, status
from unisono.errors import check_option_names
from unisono.protocols import spec as spec_named
from unisono.spec import ProtocolSpec

PRESET = "paper"
"""The options with which a protocol is simulated on the paper's network, if it has them."""
BUSY = 0.5
"""A load before the run that is reported with the figures."""


def paper(
    protocol: str, options: Mapping[str, int], directory: Path, quick: bool, json: bool
) -> int:
    spec = spec_named(protocol)
    check_option_names(spec.name, options, spec.options)
    figures, effort = figures_for(spec), QUICK if quick else FULL
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    with status("the members start …") as moving, terminable():

        def progress(text: str) -> None:
            if moving is not None:
                moving.update(f"{text} …")

        real = measured(spec, options, figures, effort, progress)
        virtual, stuck = _simulated(spec, options, figures, effort, progress)
    if not real.samples:
        return refuse(f"nothing was measured: {real.missing[0]}", STOPPED)
    curves = _curves(real.samples, MEASURED) | _curves(virtual, SIMULATED)
    missing = real.missing + stuck
    about = _about(protocol, quick, load)
    found = {
        "protocol": protocol,
        "options": dict(options),
        "quick": quick,
        "about": about,
        "figures": as_json(figures, curves),
        "missing": missing,
        "repeated": real.repeated,
    }
    written = keep(directory, figures, curves, found, about)
    if json:
        print_json(found)
        return OK
    _show(figures, curves, about)
    for each in real.repeated:
        err().print(f"[yellow]begun again:[/] {each}")
    for each in missing:
        err().print(f"[yellow]not measured:[/] {each}")
    out().print(f"written: {', '.join(map(str, written))}")
    return OK


def _simulated(
    spec: ProtocolSpec,
    options: Mapping[str, int],
    figures: tuple[CurveFigure, ...],
    effort: Effort,
    progress: Report,
) -> tuple[Samples, list[str]]:
    found: Samples = {}
    stuck = []
    for count in effort.members:
        for point in points(figures, count):
            progress(f"simulated: {point}")
            try:
                samples = simulated(
                    spec, {**spec.presets.get(PRESET, {}), **options}, point, effort
                )
            except Stuck as why:
                stuck.append(f"simulated: {point}: {why}")
                continue
            if samples:
                found[point] = samples
    return found, stuck


def _curves(samples: Samples, origin: str) -> Curves:
    curves: Curves = {}
    for point in sorted(samples, key=lambda each: each.members):
        curve = curves.setdefault((point.figure.number, origin, point.nbytes), [])
        curve.append(summed_up(point.members, samples[point]))
    return curves


def _about(protocol: str, quick: bool, load: float) -> str:
    """What was measured where, and when, in one line."""
    cores, when = os.cpu_count() or 1, time.strftime("%Y-%m-%d")
    short = "a quick run of " if quick else ""
    machine = f"{cores} core{'s' * (cores > 1)}, {platform.system()} {platform.machine()}"
    if load >= BUSY:
        machine += f", which others kept busy (load {load:.1f})"
    return f"{short}{protocol}, {machine}, Python {platform.python_version()}, {when}"


def _show(figures: tuple[CurveFigure, ...], curves: Curves, about: str) -> None:
    from rich.table import Table

    screen = out()
    screen.print(f"[bold]paper[/]  {about}; medians")
    for figure in figures:
        head, body = rows(figure, curves, spread=False)
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name in head:
            shorter = name.replace(", simulated", "\nsim.").replace(", ", "\n")
            table.add_column(shorter, justify="left" if name == head[-1] else "right")
        for row in body:
            table.add_row(*row)
        screen.print(f"\n[bold]Figure {figure.number}[/]  {figure.title}, {figure.unit}")
        screen.print(table)
        if told := calculated(figure):
            screen.print(f"[dim]{told}[/]")
    screen.print()
