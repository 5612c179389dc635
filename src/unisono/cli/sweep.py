"""`unisono sweep`: many simulated runs on Spark, judged by the pipeline."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from unisono.cli import BROKEN, OK
from unisono.cli.numbers import options_of
from unisono.cli.show import err, out, print_json
from unisono.cli.sparking import check_master, conf_of, session_on
from unisono.errors import Misuse
from unisono.protocols import offers
from unisono.sim.plan import service_of

if TYPE_CHECKING:
    from unisono.spark.sweep import Sweep, SweepProgress, Swept

ALL: Final = "all"
SHOWN_MAX: Final = 20
RUN_BYTES: Final = 120_000
"""What the trace of a run takes, about, with two hundred messages."""
SAY_EVERY_S: Final = 10
"""How often a line says how far it is, where there is no terminal to move a bar on."""


def sweep(
    words: dict[str, Any], out_dir: Path, keep: str, master: str, conf: Sequence[str], as_json: bool
) -> int:
    check_master(master)
    settings = conf_of(conf)
    try:
        from unisono.spark.sweep import KEEPS
        from unisono.spark.sweep import sweep as run_sweep
    except ImportError as missing:
        raise Misuse(f"sweeps need {missing.name}: pip install 'unisono[spark]'") from None
    ask = asked(words)
    if keep not in KEEPS:
        raise Misuse(f"--keep {keep!r}: write one of {', '.join(KEEPS)}")
    octets = ask.count * RUN_BYTES
    with (
        told(ask.count, as_json) as tell,
        session_on(master, "unisono sweep", settings, octets) as session,
    ):
        swept = run_sweep(session, ask, out_dir, keep, tell)
    if as_json:
        print_json(as_object(ask, swept))
    else:
        show(ask, swept)
    return OK if swept.kept else BROKEN


def asked(words: dict[str, Any]) -> Sweep:
    """What the options say, checked before Spark is started."""
    from unisono.spark.sweep import Sweep

    fields = dict(words)
    first, last = span(fields.pop("seeds"), "--seeds", ":")
    if "nodes" in fields:
        fields["nodes"] = span(fields["nodes"], "--nodes", ":-", alone=True)
    if "service" in fields:
        fields["service"] = service_of(fields["service"])
    if "options" in fields:
        fields["options"] = options_of(fields["options"])
    ask = Sweep(protocols=protocols_of(fields.pop("protocol")), first=first, last=last, **fields)
    ask.check()
    return ask


def protocols_of(text: str) -> tuple[str, ...]:
    """`all`, or names with commas between them."""
    known = offers()
    if text == ALL:
        return tuple(known)
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in known:
            raise Misuse(f"no protocol {name!r}; write all, or some of: {', '.join(known)}")
    return names


def span(text: str, what: str, marks: str, alone: bool = False) -> tuple[int, int]:
    if alone and re.fullmatch(r"\d{1,18}", text):
        return int(text), int(text)
    match = re.fullmatch(rf"(\d{{1,18}})[{marks}](\d{{1,18}})", text)
    if match is None or int(match[1]) > int(match[2]):
        raise Misuse(f"{what} {text!r}: write two numbers as A{marks[0]}B, the lesser first")
    return int(match[1]), int(match[2])


# -- while it works ------------------------------------------------------------------------------


@contextmanager
def told(total: int, quiet: bool) -> Iterator[Any]:
    """A bar where there is a terminal, else a line now and then; nothing beside JSON."""
    console: Console = err()
    if quiet:
        yield None
    elif not console.is_terminal:
        yield Lines(console).tell
    else:
        columns = (BarColumn(), TextColumn("{task.completed}/{task.total}"), TimeElapsedColumn())
        words = TextColumn("{task.fields[told]}")
        with Progress(*columns, words, console=console, transient=True) as bar:
            task = bar.add_task("", total=total, told="Spark starts")

            def tell(standing: SweepProgress) -> None:
                bar.update(task, completed=standing.done, told=in_short(standing))

            yield tell


class Lines:
    """A line when something else is done, or when some time has passed."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._doing, self._told_s = "", 0.0

    def tell(self, standing: SweepProgress) -> None:
        now = time.monotonic()
        if standing.doing != self._doing or now - self._told_s >= SAY_EVERY_S:
            self._doing, self._told_s = standing.doing, now
            self._console.print(
                f"{standing.done}/{standing.total} runs, {in_short(standing)}", markup=False
            )


def in_short(standing: SweepProgress) -> str:
    failed = f"{standing.failed} failed"
    return f"{standing.doing}, {standing.rate:.1f} runs a second, {failed}"


# -- afterwards ----------------------------------------------------------------------------------


def as_object(ask: Sweep, swept: Swept) -> dict[str, Any]:
    fields = asdict(swept)
    paths = {name: None if (path := fields.pop(name)) is None else str(path) for name in PATHS}
    failures = [each | {"broken": list(each["broken"])} for each in fields.pop("failures")]
    return {
        "protocols": list(ask.protocols),
        "faults": ask.faults,
        "seeds": [ask.first, ask.last],
        **fields,
        "rate": swept.rate,
        "failures": failures,
        **paths,
    }


PATHS: Final = ("out", "traces", "report")


def show(ask: Sweep, swept: Swept) -> None:
    console = out()
    verdict = (
        f"[bold red]{swept.failed:,} failed[/]"
        if swept.failed
        else "[green]no law broken, progress after healing in every run[/]"
    )
    console.print(
        f"[bold]{', '.join(ask.protocols)}[/]  {swept.runs:,} runs of {ask.faults}, seeds"
        f" {ask.first} to {ask.last - 1}: {verdict}"
    )
    there = swept.runs - swept.simulated
    console.print(
        f"{swept.simulated:,} simulated in {swept.simulate_s:.1f} s ({swept.rate:.1f} a second),"
        f" {there:,} were there; judged in {swept.judge_s:.1f} s"
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
    report = f", report to open: {swept.report}" if swept.report else ""
    console.print(f"traces in {swept.traces}, tables in {swept.out}{report}", markup=False)
