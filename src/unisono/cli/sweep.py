"""`unisono sweep`: many simulated runs on Spark, judged by the pipeline."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.markup import escape

from unisono.cli import BROKEN, OK
from unisono.cli.options import integer, integers, options_of
from unisono.cli.show import err, out, print_json, progress_bar
from unisono.cli.sparking import check_master, conf_of, session_on
from unisono.errors import Misuse
from unisono.protocols import specs
from unisono.sim.plan import service_of

if TYPE_CHECKING:
    from unisono.spark.sweep import Sweep, SweepProgress, Swept

ALL: Final = "all"
SHOWN_MAX: Final = 20
RUN_BYTES: Final = 120_000
"""The approximate size of a trace of two hundred messages."""
PRINT_EVERY_S: Final = 10
"""How often progress is printed without a terminal."""
PATHS: Final = ("out", "traces", "report")


def sweep(
    fields: dict[str, Any],
    out_dir: Path,
    keep: str,
    master: str,
    conf: Sequence[str],
    as_json: bool,
) -> int:
    check_master(master)
    settings = conf_of(conf)
    try:
        from unisono.spark.sweep import KEEPS
        from unisono.spark.sweep import sweep as run_sweep
    except ImportError as missing:
        raise Misuse(f"sweeps need {missing.name}: pip install 'unisono[spark]'") from None
    request = requested(fields)
    if keep not in KEEPS:
        raise Misuse(f"--keep {keep!r}: write one of {', '.join(KEEPS)}")
    with (
        progress(request.count, as_json) as report,
        session_on(master, "unisono sweep", settings, request.count * RUN_BYTES) as session,
    ):
        swept = run_sweep(session, request, out_dir, keep, report)
    if as_json:
        print_json(as_object(request, swept))
    else:
        show(request, swept)
    return OK if swept.kept else BROKEN


def requested(fields: dict[str, Any]) -> Sweep:
    """The sweep that the options describe, checked before Spark is started."""
    from unisono.spark.sweep import Sweep

    fields = dict(fields)
    first, last = integers(fields.pop("seeds"), "--seeds")
    if "nodes" in fields:
        text = fields["nodes"]
        alone = text.isdecimal() and (integer(text, "--nodes"),) * 2
        fields["nodes"] = alone or integers(text, "--nodes", ":-")
    if "service" in fields:
        fields["service"] = service_of(fields["service"])
    if "options" in fields:
        fields["options"] = options_of(fields["options"])
    request = Sweep(
        protocols=protocols_of(fields.pop("protocol")), first=first, last=last, **fields
    )
    request.check()
    return request


def protocols_of(text: str) -> tuple[str, ...]:
    """`all`, or names separated by commas."""
    known = specs()
    if text == ALL:
        return tuple(known)
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in known:
            raise Misuse(f"no protocol {name!r}; write all, or some of: {', '.join(known)}")
    return names


# -- progress ------------------------------------------------------------------------------------


@contextmanager
def progress(total: int, quiet: bool) -> Iterator[Any]:
    """A bar on a terminal, else a line now and then; nothing beside JSON."""
    console: Console = err()
    if quiet:
        yield None
    elif not console.is_terminal:
        yield ProgressLines(console).report
    else:
        with progress_bar(total, quiet) as update:
            update(0, "Spark starts")
            yield lambda now: update(now.done, text_of(now))


class ProgressLines:
    """A line when another step begins, or when some time has passed."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._doing, self._printed_s = "", 0.0

    def report(self, now: SweepProgress) -> None:
        now_s = time.monotonic()
        if now.doing != self._doing or now_s - self._printed_s >= PRINT_EVERY_S:
            self._doing, self._printed_s = now.doing, now_s
            self._console.print(f"{now.done}/{now.total} runs, {text_of(now)}", markup=False)


def text_of(now: SweepProgress) -> str:
    return f"{now.doing}, {now.rate:.1f} runs a second, {now.failed} failed"


# -- the result ----------------------------------------------------------------------------------


def as_object(request: Sweep, swept: Swept) -> dict[str, Any]:
    fields = asdict(swept)
    paths = {name: None if (path := fields.pop(name)) is None else str(path) for name in PATHS}
    failures = [each | {"broken": list(each["broken"])} for each in fields.pop("failures")]
    return {
        "protocols": list(request.protocols),
        "faults": request.faults,
        "seeds": [request.first, request.last],
        **fields,
        "rate": swept.rate,
        "failures": failures,
        **paths,
    }


def show(request: Sweep, swept: Swept) -> None:
    console = out()
    verdict = (
        f"[bold red]{swept.failed:,} failed[/]"
        if swept.failed
        else "[green]no law broken, progress after healing in every run[/]"
    )
    console.print(
        f"[bold]{', '.join(request.protocols)}[/]  {swept.runs:,} runs of {request.faults}, seeds"
        f" {request.first} to {request.last - 1}: {verdict}"
    )
    there = swept.runs - swept.simulated
    console.print(
        f"{swept.simulated:,} simulated in {swept.simulate_s:.1f} s ({swept.rate:.1f} a second),"
        f" {there:,} existed; judged in {swept.judge_s:.1f} s"
    )
    console.print(
        f"{swept.sent:,} sent, {swept.delivered:,} delivered, {swept.steps:,} steps;"
        f" {swept.virtual_s:,.0f} s simulated, {swept.octets / 1e6:,.1f} MB of traces"
    )
    for each in swept.failures[:SHOWN_MAX]:
        console.print(
            f"  [red]•[/] {escape(each.run)}: {', '.join(each.broken)}: {escape(each.why)}"
        )
        console.print(f"    replay: {escape(each.replay)}")
    if (more := swept.failed - SHOWN_MAX) > 0:
        console.print(f"  [dim]and {more:,} more: --json, or {swept.out}/outcomes.parquet[/]")
    report = f", report: {swept.report}" if swept.report else ""
    console.print(f"traces in {swept.traces}, tables in {swept.out}{report}", markup=False)
