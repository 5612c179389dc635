"""`unisono pipeline`: the laws and the measures of a trace on Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from unisono.cli import BROKEN, OK
from unisono.cli.show import err, out, print_json, print_violations, status, verdicts
from unisono.cli.verify import claims
from unisono.errors import Misuse, UnisonoError
from unisono.laws import LAWS, Violation
from unisono.protocols import offers
from unisono.trace.files import trace_files
from unisono.trace.parquet import ParquetPart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pipeline(directory: Path, out_dir: Path, master: str, as_json: bool) -> int:
    found = claimed_in(directory)
    console = err()

    def tell(words: str) -> None:
        if not as_json:
            console.print(f"[dim]{words}[/]")

    with status("on Spark …"):
        told = measured(directory, out_dir, found, master, tell)
    if as_json:
        print_json(told)
    else:
        show(told, out_dir)
    return BROKEN if broken(told) else OK


def claimed_in(directory: Path) -> dict[str, tuple[str, ...]]:
    """What is asked of each protocol of the catalogue, and of the others that the trace names."""
    names = set(offers())
    for found in trace_files(directory):
        # A file is one life, so of one protocol.
        table = next(iter(ParquetPart(found.path).tables()), None)
        if table is not None:
            names.update(name for name in table.column("protocol").unique().to_pylist() if name)
    return {name: claims(name) for name in sorted(names)}


def measured(
    directory: Path,
    out_dir: Path,
    claimed: dict[str, tuple[str, ...]],
    master: str,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """What the pipeline found; the session is opened for it and stopped after it."""
    session = _session(master)
    try:
        from unisono.spark.pipeline import run_pipeline

        return run_pipeline(session, directory, out_dir, claimed, tell).as_json()
    finally:
        session.stop()


def _session(master: str) -> SparkSession:
    from unisono.spark.session import open_session

    try:
        return open_session(master, "unisono pipeline")
    except UnisonoError:
        raise
    except Exception as error:
        # Spark's own errors are pages long: the last line that says something will do.
        words = [line for line in str(error).splitlines() if line.strip()]
        why = words[0][:200] if words else type(error).__name__
        raise Misuse(f"no Spark session on --master {master!r} ({why}): try local[*]") from None


def broken(told: dict[str, Any]) -> bool:
    return any("broken" in run["laws"].values() for run in told["runs"].values())


def show(told: dict[str, Any], out_dir: Path) -> None:
    console = out()
    sentences = {name: law.sentence for name, law in LAWS.items()}
    for name, run in sorted(told["runs"].items()):
        console.print(f"[bold]{name}[/]  on Spark")
        console.print(verdicts(run["laws"], sentences))
        print_violations(console, [Violation(**each) for each in run["violations"]])
        if figures := run.get("measures"):
            console.print(measures(figures))
    console.print(f"{told['events']:,} events judged, {told['quarantined']:,} in quarantine")
    console.print(f"report: {out_dir / 'report.html'}", markup=False)


def measures(figures: dict[str, Any]) -> Table:
    """Whatever was measured, by name."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, value in figures.items():
        shown = f"{value:,.1f}" if isinstance(value, float) else f"{value}"
        table.add_row(f"[dim]{name}[/]", shown)
    return table
