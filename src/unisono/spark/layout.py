"""The layout of the results: each table has a folder per run, published run by run.

Tables are staged in a scratch directory within the output directory and then renamed. The row of a
run in `gold/runs` is removed first and written last: a run that is listed there is complete in
every table, and one that a killed pipeline left incomplete is processed again.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from unisono.errors import Misuse

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
    RUNS,
)
TABLES: Final = (*BRONZE, *SILVER, *GOLD)
"""Each has a folder per run. Joint curves are in the folder `NO_RUN` of their table."""
CURVES: Final = ("gold/latency_curves", "gold/rate_curves")
SUMMARY: Final = "gold/summary"
FACTORS: Final = "gold/factors"
TRENDS: Final = "gold/trends"
JOINT: Final = (SUMMARY, FACTORS, TRENDS)
"""Tables about all runs, without a column `run`."""
REPORT: Final = "report.html"
LAYERS: Final = ("bronze", "silver", "gold", "delta")

NO_RUN: Final = "run=(all)"
"""The folder of rows about all runs. In each table it also holds an empty file, so that a table
without rows has a schema. It has a name, since a null partition is not read by every tool."""
EMPTY_RUN: Final = "(empty)"
"""Stands for an empty run name, which Spark takes for null."""
ESCAPED: Final = frozenset("\"#%'*/:=?\\{[]^\x7f" + "".join(map(chr, range(1, 32))))
"""The characters that Spark writes as %XX in a folder's name."""
FOLDER_BYTES_MAX: Final = 240

FORMAT: Final = "6"
"""The version of the tables."""
MARK: Final = ".unisono-pipeline"
"""Marks an output directory of the pipeline, with the version of its tables; or a scratch directory
that may be removed."""
STALE: Final = ".stale"
"""While this file exists, the summary and joint curves are older than the runs."""
SCRATCH: Final = ".pipeline-"


def run_folder(run: str) -> str:
    """The name of a run's folder, as Spark writes it."""
    text = "".join(f"%{ord(c):02X}" if c in ESCAPED else c for c in run or EMPTY_RUN)
    name = text.encode()
    if len(name) > FOLDER_BYTES_MAX:
        digest = blake2b(name, digest_size=8).hexdigest()
        name = name[:200].rstrip(b"%") + b"~" + digest.encode()
    return "run=" + name.decode("utf-8", "ignore")


def run_of(folder: str) -> str:
    """The run of a folder; a name that was cut stays cut."""
    run = unquote(folder.removeprefix("run="))
    return "" if run == EMPTY_RUN else run


def folders_in(out: Path, table: str) -> list[Path]:
    """The folders of a table's runs, in the order of their names."""
    top = out / table
    if not top.is_dir():
        return []
    names = [entry.name for entry in os.scandir(top) if entry.name.startswith("run=")]
    return [top / name for name in sorted(names) if name != NO_RUN]


class ResultLayout:
    """The output directory of one pipeline, which has it locked."""

    def __init__(self, out: Path, scratch: Path) -> None:
        self.out = out
        self.scratch = scratch
        self._trash = 0

    def staged(self, table: str) -> Path:
        """Where a table of the batch is written before it is published."""
        return self.scratch / "staged" / table

    def publish(self, runs: Iterable[str]) -> None:
        """Replace these runs by what is staged."""
        self._claim()
        for run in runs:
            folder = run_folder(run)
            self._away(self.out / RUNS / folder)
            for table in TABLES:
                self._replace(self.staged(table) / folder, self.out / table / folder)
        for table in TABLES:
            empty = self.staged(table) / NO_RUN
            if empty.is_dir() and not (self.out / table / NO_RUN).exists():
                self._replace(empty, self.out / table / NO_RUN)
        self.clear()

    def discard(self, tables: Iterable[str]) -> None:
        """What is staged of these tables is not published."""
        for table in tables:
            shutil.rmtree(self.staged(table), ignore_errors=True)

    def publish_joint(self) -> None:
        """Replace the summary and the joint curves by what is staged."""
        for table in CURVES:
            self._replace(self.staged(table) / NO_RUN, self.out / table / NO_RUN)
        for table in JOINT:
            self._replace(self.staged(table), self.out / table)
        (self.out / STALE).unlink(missing_ok=True)
        self.clear()

    def drop(self, folders: Iterable[str]) -> None:
        """Remove the runs of these folders from all tables."""
        self._claim()
        for folder in folders:
            for table in (RUNS, *TABLES):
                self._away(self.out / table / folder)
        self.clear()

    def write_report(self, text: str) -> None:
        page = self.scratch / REPORT
        page.write_text(text, encoding="utf-8")
        page.replace(self.out / REPORT)

    def clear(self) -> None:
        """Remove what is staged."""
        for name in ("staged", "trash"):
            shutil.rmtree(self.scratch / name, ignore_errors=True)

    @property
    def stale(self) -> bool:
        return (self.out / STALE).exists() or not (self.out / SUMMARY).is_dir()

    def _claim(self) -> None:
        (self.out / STALE).touch()
        (self.out / MARK).write_text(FORMAT)

    def _replace(self, new: Path, place: Path) -> None:
        self._away(place)
        if new.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            new.rename(place)

    def _away(self, place: Path) -> None:
        if os.path.lexists(place):
            self._trash += 1
            trash = self.scratch / "trash" / str(self._trash)
            trash.parent.mkdir(exist_ok=True)
            place.rename(trash)


@contextmanager
def open_layout(out: Path) -> Iterator[ResultLayout]:
    """Lock the output directory; the scratch directory is removed afterwards."""
    handle = -1
    try:
        try:
            out.mkdir(parents=True, exist_ok=True)
            handle = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
            if foreign := _foreign(out):
                raise Misuse(f"{foreign} exists and is not a pipeline's; give another --out")
            if (out / MARK).exists() and (out / MARK).read_text() != FORMAT:
                raise Misuse(f"{out}: tables of another version; remove them or give another --out")
            if _locked(handle, out):
                _clean(out)
            scratch = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=out.resolve()))
            (scratch / MARK).touch()
        except OSError as error:
            raise Misuse(
                f"{out}: cannot write there: {error.strerror or error}; give another --out"
            ) from None
        try:
            yield ResultLayout(out.resolve(), scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    finally:
        if handle >= 0:
            os.close(handle)


def _foreign(out: Path) -> Path | None:
    """A path of the results that holds something else: anything without the mark; with it, a table
    that is not a directory or a report that is not a file."""
    marked = (out / MARK).exists()
    for name in (*LAYERS, *TABLES, *JOINT, REPORT):
        path: Path = out / name
        fits = path.is_file() if name == REPORT else path.is_dir() and not path.is_symlink()
        if os.path.lexists(path) and not (marked and fits):
            return path
    return None


def _locked(handle: int, out: Path) -> bool:
    """Lock the directory while the handle is open. False where the file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Misuse(f"{out}: in use by another pipeline; wait, or give another --out") from None
    except OSError:
        return False
    return True


def _clean(out: Path) -> None:
    """Remove the scratch directories of killed pipelines."""
    for path in out.glob(f"{SCRATCH}*"):
        if (path / MARK).is_file() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
