"""`unisono pipeline`: the laws and the measures of a trace on Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.markup import escape
from rich.table import Table

from unisono.cli import BROKEN, OK
from unisono.cli.show import err, out, print_json, print_violations, status, verdicts
from unisono.cli.verify import check_some, claims
from unisono.errors import Misuse, UnisonoError
from unisono.laws import LAWS
from unisono.protocols import offers
from unisono.trace.files import trace_files
from unisono.trace.parquet import ParquetPart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from unisono.spark.pipeline import Result

MASTER: Final = re.compile(
    r"local(\[(\*|[1-9]\d{0,3})(,\d+)?\])?|local-cluster\[.+\]|spark://.+:\d+|yarn|k8s://.+"
)
SMALL_OCTETS: Final = 64 << 20
QUICK: Final[Mapping[str, str | int | bool]] = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.adaptive.enabled": False,
    "spark.sql.shuffle.partitions": 2,
    "spark.default.parallelism": 2,
}
"""For a small trace: what is spent on compiling and planning well is never earned back."""
QUANTILES: Final = ("p50", "p90", "p99", "max")


def pipeline(directory: Path, out_dir: Path, master: str, as_json: bool) -> int:
    asked = claimed_in(directory)
    console = err()
    with status("Spark starts …") as moving:

        def tell(words: str) -> None:
            if moving is not None:
                moving.update(f"{words} …")
            elif not as_json:
                console.print(words)

        result = measured(directory, out_dir, asked, master, tell)
    check_some(directory, result.events, result.quarantined)
    if as_json:
        print_json(result.as_json())
    else:
        show(result)
    return OK if result.kept else BROKEN


def claimed_in(directory: Path) -> dict[str, tuple[str, ...]]:
    """What is asked of each protocol of the catalogue, and of the others that the trace names."""
    names, files, empty_count = set(offers()), trace_files(directory), 0
    for found in files:
        # A file tells of one life, so of one protocol.
        table = next(iter(ParquetPart(found.path).tables()), None)
        if table is None:
            empty_count += 1
        else:
            names.update(name for name in table.column("protocol").unique().to_pylist() if name)
    if empty_count == len(files):
        check_some(directory, 0, empty_count)
    return {name: claims(name) for name in sorted(names)}


def measured(
    directory: Path,
    out_dir: Path,
    claimed: dict[str, tuple[str, ...]],
    master: str,
    tell: Callable[[str], None],
) -> Result:
    """What the pipeline found; the session is opened for it and stopped after it."""
    paths = [found.path for found in trace_files(directory)]
    octets = sum(path.stat().st_size for path in paths if path.is_file())
    session = _session(master, QUICK if octets < SMALL_OCTETS else {})
    try:
        from unisono.spark.pipeline import run_pipeline

        return run_pipeline(session, directory, out_dir, claimed, tell)
    finally:
        session.stop()


def _session(master: str, settings: Mapping[str, str | int | bool]) -> SparkSession:
    from unisono.spark.session import open_session

    if not MASTER.fullmatch(master):
        raise Misuse(f"--master {master!r}: write local[*], spark://HOST:PORT, yarn or k8s://URL")
    try:
        return open_session(master, "unisono pipeline", **settings)
    except UnisonoError:
        raise
    except Exception as error:
        # Spark's own errors are pages long: the last line that says something will do.
        words = [line for line in str(error).splitlines() if line.strip()]
        why = words[0][:200] if words else type(error).__name__
        raise Misuse(f"no Spark session on --master {master!r} ({why}): try local[*]") from None


def show(result: Result) -> None:
    console = out()
    sentences = {name: law.sentence for name, law in LAWS.items()}
    for name, verdict in result.verdicts.items():
        console.print(f"[bold]{escape(name)}[/]")
        console.print(verdicts(verdict.laws, sentences))
        print_violations(console, verdict.violations)
    console.print(measures(result.measures))
    console.print(f"{result.events:,} events judged, {result.quarantined:,} in quarantine")
    console.print(f"tables in {result.out}, report to open: {result.report}", markup=False)


def measures(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A line a run and protocol: how much, how fast, how late."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for head in ("run", "sent", "delivered", "messages/s"):
        table.add_column(head, justify="left" if head == "run" else "right", no_wrap=True)
    for head in QUANTILES:
        table.add_column(f"{head} ms", justify="right")
    for row in rows:
        table.add_row(
            escape(row["run"]),
            *(_figure(row[name], 0) for name in ("sent", "delivered", "messages_per_s")),
            *(_figure(row[f"{name}_us"], 2, 1000) for name in QUANTILES),
        )
    return table


def _figure(value: float | None, places: int, divisor: int = 1) -> str:
    return "–" if value is None else f"{value / divisor:,.{places}f}"
