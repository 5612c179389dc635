"""The layout of the results: each table has a folder per day and, where it has one, protocol."""

from __future__ import annotations

from datetime import date
from hashlib import blake2b
from pathlib import Path
from typing import Final
from urllib.parse import unquote

BRONZE: Final = ("bronze/events", "bronze/quarantine")
SILVER: Final = ("silver/sends", "silver/deliveries", "silver/views", "silver/packets")
ROWS: Final = (BRONZE[0], *SILVER)
"""The large tables, which nothing else is made from."""
RUNS: Final = "gold/runs"
GOLD: Final = (
    "gold/verdicts",
    "gold/violations",
    "gold/measures",
    "gold/recoveries",
    "gold/stabilities",
    "gold/links",
    "gold/causes",
    "gold/latency_parts",
    "gold/exclusions",
    "gold/components",
    "gold/latencies",
    "gold/latency_curves",
    "gold/rate_curves",
)
TABLES: Final = (*BRONZE, *SILVER, *GOLD)
"""With the rows of runs, in files that hold many."""
CURVES: Final = ("gold/latency_curves", "gold/rate_curves")
SUMMARY: Final = "gold/summary"
FACTORS: Final = "gold/factors"
TRENDS: Final = "gold/trends"
JOINT: Final = (RUNS, SUMMARY, FACTORS, TRENDS)
"""Tables of one file."""
REPORT: Final = "report.html"
LAYERS: Final = ("bronze", "silver", "gold", "delta")

ALL: Final = "(all)"
"""The run, and the name of the files, of rows about all runs; the name of tables of one file."""
EMPTY: Final = "empty"
"""The name of a file without rows, so that a table without rows has a schema."""
NO_DAY: Final = date(1970, 1, 1)
"""The date of files without a run of their own: of all runs, or without rows."""
NONE: Final = "(none)"
"""Stands for an empty protocol. A null partition is not read by every tool."""
ESCAPED: Final = frozenset("\"#%'*/:=?\\{[]^\x7f" + "".join(map(chr, range(1, 32))))
"""The characters that Spark writes as %XX in a folder's name."""
FOLDER_BYTES_MAX: Final = 240

FORMAT: Final = "8"
"""The version of the tables."""
MARK: Final = ".unisono-pipeline"
"""Marks an output directory of the pipeline, with the version of its tables; or a scratch directory
that may be removed."""
STALE: Final = ".stale"
"""While this file exists, the summary and joint curves are older than the runs."""
SCRATCH: Final = ".pipeline-"


def partition_of(day: date, protocol: str | None) -> str:
    """The folder of a day, and of a protocol where the table has one, as Spark writes it."""
    if protocol is None:
        return f"date={day}"
    text = "".join(f"%{ord(c):02X}" if c in ESCAPED else c for c in protocol or NONE)
    name = text.encode()
    if len(name) > FOLDER_BYTES_MAX:
        digest = blake2b(name, digest_size=8).hexdigest()
        name = name[:200].rstrip(b"%") + b"~" + digest.encode()
    return f"date={day}/protocol={name.decode('utf-8', 'ignore')}"


def protocol_of(path: Path) -> str:
    """The protocol of a file, by its folder; a name that was cut stays cut."""
    protocol = unquote(path.parent.name.removeprefix("protocol="))
    return "" if protocol == NONE else protocol


def day_of(path: Path) -> date:
    """The day of a file, by its folder."""
    return next(
        date.fromisoformat(part.removeprefix("date="))
        for part in path.parts[::-1]
        if part.startswith("date=")
    )


def files_in(out: Path, table: str) -> list[Path]:
    """The files of a table, in the order of their names."""
    return sorted((out / table).glob("**/[!.]*.parquet"))
