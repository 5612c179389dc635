"""`unisono pipeline`: the laws and the measures of a trace on Spark."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.markup import escape
from rich.table import Table

from unisono.cli.show import err, out, print_json, print_violations, status, verdicts
from unisono.cli.sparking import conf_of, session_on
from unisono.cli.verify import (
    CLAIMED_BY_ALL,
    check_some,
    claims,
    exit_code,
    print_quarantined,
    print_unjudged,
)
from unisono.errors import BadTrace, Misuse
from unisono.laws.verdict import verdict_json
from unisono.protocols import specs
from unisono.trace.files import trace_files

if TYPE_CHECKING:
    from unisono.spark.follow import News
    from unisono.spark.pipeline import PipelineResult

APP: Final = "unisono pipeline"
QUANTILES: Final = ("p50", "p90", "p99", "max")
TABLES: Final = ("all", "gold")
UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}
EVERY_S_MIN: Final = 0.1
EVERY_S_MAX: Final = 3600.0
LOOKED_INTO_MAX: Final = 500
"""Files checked before Spark starts, at most."""
EACH_SHOWN_MAX: Final = 8
"""More runs are summarised, and only broken ones shown."""
BROKEN_SHOWN_MAX: Final = 20


@dataclass(frozen=True)
class PipelineRequest:
    """Which runs to process, and what to write."""

    everything: bool = False
    runs: tuple[str, ...] = ()
    silver: bool = True
    delta: str | None = None
    """The URI of Delta tables, empty for the output directory; None without them."""
    follow: bool = False
    every_s: float = 5.0
    idle_s: float | None = None
    allow_quarantined: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)


def requested(
    everything: bool,
    runs: Sequence[str],
    tables: str,
    table_format: str,
    follow: bool,
    every: str | None,
    until_idle: float | None,
    allow_quarantined: bool,
    conf: Sequence[str],
) -> PipelineRequest:
    if tables not in TABLES:
        raise Misuse(f"--tables {tables!r}: write {' or '.join(TABLES)}")
    if everything and runs:
        raise Misuse("--all and --run exclude each other: give one")
    if follow and (everything or runs):
        raise Misuse("--follow processes what changes: leave out --all and --run")
    if not follow and (every is not None or until_idle is not None):
        raise Misuse("--every and --until-idle need --follow")
    every_s = 5.0 if every is None else _seconds(every)
    return PipelineRequest(
        everything=everything,
        runs=tuple(runs),
        silver=tables == "all",
        delta=_delta(table_format),
        follow=follow,
        every_s=every_s,
        idle_s=until_idle,
        allow_quarantined=allow_quarantined,
        conf=conf_of(conf),
    )


def _delta(text: str) -> str | None:
    kind, _, uri = text.partition(":")
    if kind not in ("parquet", "delta") or (kind == "parquet" and text != kind):
        raise Misuse(f"--format {text!r}: write parquet, delta or delta:URI")
    if kind == "delta":
        from unisono.spark.delta import DeltaTables

        DeltaTables(uri)  # Before Spark starts: the package may be missing.
    return uri if kind == "delta" else None


def _seconds(text: str) -> float:
    """`5s`, `0.5s`, `2m`, or a number of seconds."""
    parts = re.fullmatch(r"(\d{1,5}(?:\.\d{1,3})?)(ms|s|m)?", text)
    seconds = float(parts[1]) * UNITS[parts[2] or "s"] if parts else 0.0
    if not EVERY_S_MIN <= seconds <= EVERY_S_MAX:
        raise Misuse(f"--every {text!r}: write a time from 0.1s to 60m, as 5s")
    return seconds


def pipeline(
    directory: Path, out_dir: Path, master: str, request: PipelineRequest, as_json: bool
) -> int:
    claimed_laws = claimed_in(directory, request)
    # py4j logs every call that Ctrl-C interrupts.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    console = err()
    with status("Spark starts …") as spinner:

        def report(text: str) -> None:
            if spinner is not None:
                spinner.update(f"{text} …")
            elif not as_json and not request.follow:
                console.print(text)

        if request.follow:
            return followed(directory, out_dir, claimed_laws, master, request, as_json, report)
        result = measured(directory, out_dir, claimed_laws, master, report, request)
    check_some(directory, result.events, result.quarantined)
    if as_json:
        print_json(result.as_json())
    else:
        show(result)
    uncertain = any(verdict.uncertain for verdict in result.verdicts.values())
    return exit_code(result.kept, result.unjudged, request.allow_quarantined, uncertain)


def claimed_in(
    directory: Path, request: PipelineRequest | None = None
) -> dict[str, tuple[str, ...]]:
    """The laws that each protocol claims. A small trace with nothing to judge is refused at once,
    before Spark starts."""
    if request is None or not request.follow or not directory.is_dir():
        from unisono.trace.parquet import protocols_of

        files = trace_files(directory)
        if len(files) <= LOOKED_INTO_MAX and not any(protocols_of(each.path) for each in files):
            check_some(directory, 0, len(files))
    return {name: claims(name) for name in sorted(specs())}


def measured(
    directory: Path,
    out_dir: Path,
    claimed: dict[str, tuple[str, ...]],
    master: str,
    report: Callable[[str], None],
    request: PipelineRequest | None = None,
) -> PipelineResult:
    """Run the pipeline in a session that is opened and stopped here."""
    request = request or PipelineRequest()
    with session_on(master, APP, request.conf, _nbytes_in(directory)) as session:
        from unisono.spark.pipeline import run_pipeline

        return run_pipeline(
            session,
            directory,
            out_dir,
            claimed,
            report,
            others=CLAIMED_BY_ALL,
            everything=request.everything,
            runs=request.runs,
            silver=request.silver,
            delta=request.delta,
        )


def _nbytes_in(directory: Path) -> int:
    """The size of a trace; 0 where there is none yet."""
    try:
        paths = [found.path for found in trace_files(directory)]
        return sum(path.stat().st_size for path in paths if path.is_file())
    except (BadTrace, FileNotFoundError):
        return 0


def followed(
    directory: Path,
    out_dir: Path,
    claimed: dict[str, tuple[str, ...]],
    master: str,
    request: PipelineRequest,
    as_json: bool,
    report: Callable[[str], None],
) -> int:
    """Judge runs as they grow and print each new verdict. Ends on Ctrl-C, or after `idle_s` without
    a change."""
    with session_on(master, APP, request.conf, _nbytes_in(directory)) as session:
        from unisono.spark.follow import VerdictStream

        stream = VerdictStream(
            session,
            directory,
            out_dir,
            claimed,
            CLAIMED_BY_ALL,
            request.every_s,
            request.idle_s,
            request.silver,
            report,
            delta=request.delta,
            done=lambda judged: err().print(str(judged), style="dim", highlight=False),
        )
        report("watching")
        try:
            for news in stream:
                print_news(news, as_json)
                report("watching")
        except KeyboardInterrupt:
            report("ending")
    broken = sum(not verdict.kept for verdict in stream.verdicts.values())
    unjudged = sum(stream.unjudged.values())
    if not as_json:
        print_unjudged(out(), stream.contradicted, unjudged)
        summary = f"{len(stream.verdicts):,} runs judged, {broken:,} broke a law"
        out().print(f"{summary}; report: {stream.report}" if stream.report else summary)
    kept = not broken and not stream.contradicted
    uncertain = any(verdict.uncertain for verdict in stream.verdicts.values())
    return exit_code(kept, unjudged, request.allow_quarantined, uncertain)


def print_news(news: News, as_json: bool) -> None:
    if as_json:
        print_json({"run": news.run, "so_far": news.so_far} | verdict_json(news.verdict))
        return
    console = out()
    broken = [law for law, how in news.verdict.laws.items() if how == "broken"]
    mark = f"[bold red]✗ broken: {', '.join(broken)}[/]" if broken else "[green]✓ kept[/]"
    console.print(f"{mark}{' so far' if news.so_far else ''}  [bold]{escape(news.run)}[/]")
    print_violations(console, news.verdict.violations)


def show(result: PipelineResult) -> None:
    console = out()
    few = len(result.verdicts) <= EACH_SHOWN_MAX
    broken = {run: each for run, each in result.verdicts.items() if not each.kept}
    shown = result.verdicts if few else dict(list(broken.items())[:BROKEN_SHOWN_MAX])
    for name, verdict in shown.items():
        so_far = "  [yellow]a file is incomplete[/]" if name in result.open else ""
        console.print(f"[bold]{escape(name)}[/]{so_far}")
        console.print(verdicts(verdict.laws))
        print_violations(console, verdict.violations)
        if not verdict.kept and name in result.replays:
            console.print(f"  replay: {result.replays[name]}", markup=False)
    if few:
        console.print(measures(result.measures))
    else:
        if len(broken) > len(shown):
            console.print(
                f"… and {len(broken) - len(shown):,} more that broke a law; see the report"
            )
        console.print(together(result.summary))
        console.print(f"{len(result.verdicts):,} runs, {len(broken):,} broke a law")
    console.print(f"{result.events:,} events judged")
    print_quarantined(console, result.quarantine, result.quarantined)
    print_unjudged(console, result.contradicted, result.unjudged)
    if result.skipped:
        done = len(result.processed)
        console.print(f"{done:,} runs processed; {result.skipped:,} unchanged since the last time")
    console.print(f"tables in {result.out}, report: {result.report}", markup=False)


def together(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A line per protocol, group size and payload size."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("protocol", no_wrap=True)
    for head in "members,bytes,runs,broken,delivered,messages/s,p50 ms,p99 ms".split(","):
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        counts = ("members", "size", "runs", "broken", "delivered", "messages_per_s")
        table.add_row(
            escape(row["protocol"]),
            *(_figure(row[name], 0) for name in counts),
            *(_figure(row[name], 2, 1000) for name in ("p50_us", "p99_us")),
        )
    return table


def measures(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A line per run and protocol."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for head in ("run", "sent", "delivered", "messages/s"):
        table.add_column(head, justify="left" if head == "run" else "right", no_wrap=True)
    for head in QUANTILES:
        table.add_column(f"{head} ms", justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            escape(row["run"]),
            *(_figure(row[name], 0) for name in ("sent", "delivered", "messages_per_s")),
            *(_figure(row[f"{name}_us"], 2, 1000) for name in QUANTILES),
        )
    return table


def _figure(value: float | None, places: int, divisor: int = 1) -> str:
    return "–" if value is None else f"{value / divisor:,.{places}f}"
