"""Where the tables lie: a folder a run in each of them, put in place run by run.

Everything is first written beside its place, in a scratch directory within the one for results, and
then renamed. Of a run `gold/runs` goes first and comes last: a run that is named there is whole in
every table, and one that a killed pipeline left half replaced is done again by the next.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from unisono.errors import Misuse

BRONZE: Final = ("bronze/events", "bronze/quarantine")
SILVER: Final = ("silver/sends", "silver/deliveries", "silver/views", "silver/packets")
RUNS: Final = "gold/runs"
GOLD: Final = (
    "gold/verdicts",
    "gold/violations",
    "gold/measures",
    "gold/recoveries",
    "gold/latencies",
    "gold/latency_curves",
    "gold/rate_curves",
    RUNS,
)
TABLES: Final = (*BRONZE, *SILVER, *GOLD)
"""Each has a folder a run. What is about many runs together has none of them: in a table of curves
it stands in the folder `NO_RUN`."""
CURVES: Final = ("gold/latency_curves", "gold/rate_curves")
SUMMARY: Final = "gold/summary"
REPORT: Final = "report.html"
LAYERS: Final = ("bronze", "silver", "gold")

NO_RUN: Final = "run=__HIVE_DEFAULT_PARTITION__"
"""As Spark names the folder of rows without a run. In each table it also holds a file without rows,
so that a table is one even where no run has a row in it."""
EMPTY_RUN: Final = "(empty)"
"""A run without a name has this one here: Spark takes an empty name for none."""
ESCAPED: Final = frozenset("\"#%'*/:=?\\{[]^\x7f" + "".join(map(chr, range(1, 32))))
"""What Spark writes as %XX in a folder's name, and only that."""
FOLDER_BYTES_MAX: Final = 240

FORMAT: Final = "2"
"""Of the tables. What is of another format is made anew as a whole."""
MARK: Final = ".unisono-pipeline"
"""This file says that the tables beside it are ours to replace, and of which format they are; in a
scratch directory, that it is ours to remove."""
STALE: Final = ".stale"
"""While this file is there, what is about many runs together is older than the runs."""
SCRATCH: Final = ".pipeline-"
FORMER: Final = (
    "events", "sends", "deliveries", "views", "packets",
    "verdicts", "violations", "measures", "quarantine",
)  # fmt: skip
"""The tables of the first format, which knew no runs."""


def run_folder(run: str) -> str:
    """The name of a run's folder, as Spark would write it and reads it."""
    text = "".join(f"%{ord(c):02X}" if c in ESCAPED else c for c in run or EMPTY_RUN)
    octets = text.encode()
    # Longer than a file may be named: cut, with a hash for the rest.
    if len(octets) > FOLDER_BYTES_MAX:
        digest = blake2b(octets, digest_size=8).hexdigest()
        octets = octets[:200].rstrip(b"%") + b"~" + digest.encode()
    return "run=" + octets.decode("utf-8", "ignore")


def run_of(folder: str) -> str:
    """The run that a folder is named after; one that was cut keeps its cut name."""
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
    """One directory of results while a pipeline works in it; no other does then."""

    def __init__(self, out: Path, scratch: Path) -> None:
        self.out = out
        self.scratch = scratch
        self._trash = 0
        self.outdated = _format(out) not in (None, FORMAT)
        """The tables there are of another format: the first run put in place removes them all."""

    def staged(self, table: str) -> Path:
        """Where a table of the batch is written before it is put in place."""
        return self.scratch / "staged" / table

    def kept(self, name: str) -> Path:
        """Where what only this batch needs is kept."""
        return self.scratch / "kept" / name

    def put_in_place(self, runs: Iterable[str]) -> None:
        """Replace these runs, and nothing else, by what is staged."""
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

    def put_together(self) -> None:
        """Replace what is about many runs together by what is staged."""
        for table in CURVES:
            self._replace(self.staged(table) / NO_RUN, self.out / table / NO_RUN)
        self._replace(self.staged(SUMMARY), self.out / SUMMARY)
        (self.out / STALE).unlink(missing_ok=True)
        self.clear()

    def drop(self, folders: Iterable[str]) -> None:
        """Remove the runs of these folders from all tables."""
        self._claim()
        for folder in folders:
            for table in (RUNS, *TABLES):
                self._away(self.out / table / folder)
        self.clear()

    def put_report(self, text: str) -> None:
        page = self.scratch / REPORT
        page.write_text(text, encoding="utf-8")
        page.replace(self.out / REPORT)

    def clear(self) -> None:
        """Make room for the next batch."""
        for name in ("staged", "kept", "trash"):
            shutil.rmtree(self.scratch / name, ignore_errors=True)

    @property
    def stale(self) -> bool:
        return (self.out / STALE).exists() or not (self.out / SUMMARY).is_dir()

    def _claim(self) -> None:
        (self.out / STALE).touch()
        if self.outdated:
            for name in (*FORMER, *LAYERS):
                self._away(self.out / name)
            self.outdated = False
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
def places(out: Path) -> Iterator[ResultLayout]:
    """The directory for the results, alone in it; the scratch directory is gone afterwards."""
    handle = -1
    try:
        try:
            out.mkdir(parents=True, exist_ok=True)
            handle = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
            stranger = _stranger(out)
            if stranger:
                raise Misuse(
                    f"{stranger} is there already and is not of our making; give another --out"
                )
            if _locked(handle, out):
                _sweep(out)
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


def _format(out: Path) -> str | None:
    """Of the tables that are there, where there are any."""
    try:
        return (out / MARK).read_text()
    except OSError:
        return None


def _stranger(out: Path) -> Path | None:
    """What stands in the place of a result and is none: without our mark everything; with it, what
    cannot be one, as a table is a directory and the report is a file."""
    marked = (out / MARK).exists()
    tables: Sequence[str] = (*LAYERS, *TABLES, SUMMARY)
    for name in (*tables, *(FORMER if marked else ()), REPORT):
        path: Path = out / name
        fits = path.is_file() if name == REPORT else path.is_dir() and not path.is_symlink()
        if os.path.lexists(path) and not (marked and fits):
            return path
    return None


def _locked(handle: int, out: Path) -> bool:
    """Whether no other pipeline works in this directory, for as long as the handle is open. False
    where the file system cannot tell."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Misuse(f"{out}: another pipeline works there; wait, or give another --out") from None
    except OSError:
        return False
    return True


def _sweep(out: Path) -> None:
    """Remove what pipelines that were killed have left."""
    for path in out.glob(f"{SCRATCH}*"):
        if (path / MARK).is_file() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
