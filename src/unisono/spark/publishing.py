"""What a pipeline publishes: tables are staged in a scratch directory and then renamed.

A batch of runs has files of its own. `gold/runs` is one file, replaced by one rename: runs that are
done again are taken out of it first, and put in last. A run that is listed there is complete in
every table, once; one that a killed pipeline left incomplete is not listed, and what it left is
removed before the next batch is published.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unisono.errors import Misuse
from unisono.spark.layout import (
    ALL,
    CURVES,
    EMPTY,
    FORMAT,
    JOINT,
    LAYERS,
    MARK,
    NO_DAY,
    REPORT,
    RUNS,
    SCRATCH,
    STALE,
    SUMMARY,
    TABLES,
    files_in,
    partition_of,
)
from unisono.spark.partitioned import (
    RunWriter,
    is_keyed,
    runs_table,
    without_protocol,
    writer_to,
)
from unisono.spark.schemas import SCHEMAS, with_run

REMOVED: Final = ".removed.json"
"""While this file exists, rows of its runs may be left in the files of its parts."""
PARTS_MAX: Final = 64
"""More parts are merged, as far as they are small."""
PART_BYTES_MIN: Final = 16 << 20


class ResultLayout:
    """The output directory of one pipeline, which has it locked."""

    def __init__(self, out: Path, scratch: Path) -> None:
        self.out = out
        self.scratch = scratch
        self._batches = 0

    def next_part(self) -> str:
        """A name for files of a batch; each task adds a number."""
        self._batches += 1
        return f"part-{self.scratch.name.removeprefix(SCRATCH)}-{self._batches}"

    # -- staging ----------------------------------------------------------------------------------

    def staged(self, table: str) -> Path:
        """Where a table of the batch is written before it is published."""
        return self.scratch / "staged" / table

    def stage_joint(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """A table of one file; or the rows about all runs of another."""
        if table in JOINT:
            self._stage_file(table, pa.Table.from_pylist(list(rows), SCHEMAS[table]))
            return
        writer = RunWriter(str(self.staged("")), ALL)
        writer.begin(ALL, NO_DAY)
        writer.write_rows(table, rows)
        writer.close()

    def _stage_file(self, table: str, rows: pa.Table) -> Path:
        place = self.staged(table) / f"{ALL}.parquet"
        place.parent.mkdir(parents=True, exist_ok=True)
        with writer_to(place, rows.schema) as writer:
            writer.write_table(rows)
        return place

    def stage_empty(self, tables: Iterable[str]) -> None:
        """Files without rows, for the schemas."""
        for table in tables:
            folder = self.staged(table) / partition_of(NO_DAY, "" if is_keyed(table) else None)
            folder.mkdir(parents=True, exist_ok=True)
            schema = without_protocol(with_run(table)) if is_keyed(table) else with_run(table)
            writer_to(folder / f"{EMPTY}.parquet", schema).close()

    def discard(self, tables: Iterable[str]) -> None:
        """What is staged of these tables is not published."""
        for table in tables:
            shutil.rmtree(self.staged(table), ignore_errors=True)

    def clear(self) -> None:
        """Remove what is staged."""
        shutil.rmtree(self.scratch / "staged", ignore_errors=True)

    # -- publishing -------------------------------------------------------------------------------

    def publish(self, rows: Collection[Mapping[str, Any]]) -> None:
        """Replace these runs, by their rows of `gold/runs`, by what is staged."""
        self.remove([row["run"] for row in rows])
        for table in TABLES:
            self._place(table, {row["part"] for row in rows})
        new = pa.Table.from_pylist(list(rows), SCHEMAS[RUNS])
        self._set_runs(pa.concat_tables([runs_table(self.out), new]))
        self.clear()
        self._merge()

    def remove(self, runs: Collection[str]) -> None:
        """Remove these runs from all tables."""
        (self.out / STALE).touch()
        # By a rename: a mark without its version would make the tables another's.
        draft = self.scratch / "version"
        draft.write_text(FORMAT)
        draft.replace(self.out / MARK)
        self.recover()
        known = runs_table(self.out)
        mine = pc.is_in(known.column("run"), pa.array(list(runs), pa.string()))
        parts = known.filter(mine).column("part").unique().to_pylist()
        if parts:
            draft = self.scratch / REMOVED
            draft.write_text(json.dumps({"runs": list(runs), "parts": parts}))
            draft.replace(self.out / REMOVED)
            self._set_runs(known.filter(pc.invert(mine)))
            self._remove_rows()

    def recover(self) -> None:
        """Remove what a killed pipeline left: rows of removed runs, and parts without a run."""
        self._remove_rows()
        known = {*runs_table(self.out).column("part").to_pylist(), ALL, EMPTY}
        for table in TABLES:
            for path in files_in(self.out, table):
                if path.stem not in known:
                    _unlink(path)

    def _remove_rows(self) -> None:
        journal = self.out / REMOVED
        with suppress(FileNotFoundError):
            told = json.loads(journal.read_text())
            gone = pa.array(told["runs"], pa.string())
            listed = runs_table(self.out)
            is_gone = pc.is_in(listed.column("run"), gone)
            if pc.any(is_gone).as_py():
                self._set_runs(listed.filter(pc.invert(is_gone)))
            for table in TABLES:
                for path in files_in(self.out, table):
                    if path.stem in told["parts"]:
                        self._write_without(path, gone)
            journal.unlink()

    def _write_without(self, path: Path, gone: pa.Array) -> None:
        with pq.ParquetFile(path) as file:
            draft, writer = self.scratch / path.name, None
            for index in range(file.num_row_groups):
                runs = file.read_row_group(index, columns=["run"]).column("run")
                left = pc.invert(pc.is_in(runs, gone))
                if pc.any(left).as_py():
                    writer = writer or writer_to(draft, file.schema_arrow)
                    writer.write_table(file.read_row_group(index).filter(left))
        if writer is None:
            _unlink(path)
        else:
            writer.close()
            draft.replace(path)

    def _place(self, table: str, parts: Collection[str] = ()) -> None:
        """Only these parts: a task that Spark had started twice may still write those of before."""
        for path in files_in(self.scratch / "staged", table):
            if path.stem in (*parts, ALL, EMPTY):
                place = self.out / table / path.relative_to(self.staged(table))
                place.parent.mkdir(parents=True, exist_ok=True)
                path.replace(place)

    def _set_runs(self, rows: pa.Table) -> None:
        place = self.out / RUNS / f"{ALL}.parquet"
        place.parent.mkdir(parents=True, exist_ok=True)
        self._stage_file(RUNS, rows.sort_by("run")).replace(place)

    def publish_joint(self) -> None:
        """Replace the tables about all runs by what is staged."""
        for table in CURVES:
            new = {
                path.relative_to(self.staged(table)) for path in files_in(self.staged(table), "")
            }
            for path in files_in(self.out, table):
                if path.stem == ALL and path.relative_to(self.out / table) not in new:
                    _unlink(path)
            self._place(table)
        for table in JOINT:
            self._place(table)
        (self.out / STALE).unlink(missing_ok=True)
        self.clear()

    def write_report(self, text: str) -> None:
        page = self.scratch / REPORT
        page.write_text(text, encoding="utf-8")
        page.replace(self.out / REPORT)

    @property
    def stale(self) -> bool:
        return (self.out / STALE).exists() or not (self.out / SUMMARY).is_dir()

    # -- merging ----------------------------------------------------------------------------------

    def _merge(self) -> None:
        """Make one part of the small ones, if there are many. Killed amid that, the new part is
        removed, or the old ones are: `gold/runs` says which count."""
        sizes: dict[str, int] = {}
        for table in TABLES:
            for path in files_in(self.out, table):
                sizes[path.stem] = sizes.get(path.stem, 0) + path.stat().st_size
        small = {part for part, size in sizes.items() if size < PART_BYTES_MIN} - {ALL, EMPTY}
        if len(small) <= PARTS_MAX:
            return
        part = self.next_part()
        merged: dict[Path, list[Path]] = {}
        for table in TABLES:
            for path in files_in(self.out, table):
                if path.stem in small:
                    to = self.scratch / "staged" / path.parent.relative_to(self.out)
                    merged.setdefault(to / f"{part}.parquet", []).append(path)
        for to, paths in merged.items():
            to.parent.mkdir(parents=True, exist_ok=True)
            with writer_to(to, pq.read_schema(paths[0])) as writer:
                for path in paths:
                    writer.write_table(pq.ParquetFile(path).read())
        for table in TABLES:
            self._place(table, [part])
        runs = runs_table(self.out)
        parts = runs.column("part")
        moved = pc.if_else(pc.is_in(parts, pa.array(sorted(small))), part, parts)
        self._set_runs(runs.set_column(runs.schema.get_field_index("part"), "part", moved))
        for paths in merged.values():
            for path in paths:
                _unlink(path)
        self.clear()


def _unlink(path: Path) -> None:
    """And folders that are empty then."""
    path.unlink()
    with suppress(OSError):
        for folder in (path.parent, path.parent.parent):
            if "=" in folder.name:
                folder.rmdir()


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
