"""The tables as Delta Lake, by the package `deltalake`: no JVM, on disk or in an object store.

A batch of runs is one commit per table, which replaces the earlier rows of these runs. The runs are
taken out of `gold/runs` first and put in last, as in the Parquet layout: a run that is listed there
is complete in every table. Files hold many runs; tables are partitioned by protocol, where they
have one, and by the day on which the run was recorded, and are compacted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from unisono.errors import Misuse, UnisonoError
from unisono.spark.layout import CURVES, JOINT, NO_RUN, RUNS, TABLES, run_folder, run_of
from unisono.spark.partitioned import nullable

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from unisono.spark.layout import ResultLayout

FOLDER: Final = "delta"
"""Within the output directory, unless another place is given."""
NEEDED: Final = "--format delta needs the package deltalake: pip install 'unisono[delta]'"
FILES_MAX: Final = 64
"""A table of more files is compacted."""
BATCH_ROWS: Final = 65_536
ALL_RUNS: Final = "(all)"


class DeltaTables:
    """The Delta tables below a directory or a URI, such as `s3://bucket/results`. Credentials of
    an object store are those of its environment variables."""

    def __init__(self, top: str) -> None:
        try:
            import deltalake
        except ImportError:
            raise Misuse(NEEDED) from None
        self._lake = deltalake
        self.top = top.rstrip("/")

    def place(self, table: str) -> str:
        return f"{self.top}/{table}"

    def table(self, name: str) -> DeltaTable | None:
        """None until the first commit."""
        try:
            return self._lake.DeltaTable(self.place(name))
        except self._lake.exceptions.TableNotFoundError:
            return None
        except Exception as error:  # The package raises many classes, OSError among them.
            raise UnisonoError(f"{self.place(name)}: {_first_line(error)}") from None

    def runs(self) -> set[str]:
        """Those that are complete in every table."""
        table = self.table(RUNS)
        if table is None:
            return set()
        return set(table.to_pyarrow_table(columns=["run"]).column("run").to_pylist())

    # -- writing ----------------------------------------------------------------------------------

    def publish(self, layout: ResultLayout, days: Mapping[str, date]) -> None:
        """Replace these runs by what is staged. `days` are when they were recorded."""
        folders = {run_folder(run): day for run, day in days.items()}
        runs = [run_of(folder) for folder in folders]
        self._delete(RUNS, runs)
        for name in TABLES:
            if layout.staged(name).is_dir():
                self._commit(name, _Staged(layout.staged(name), folders), runs)

    def publish_joint(self, layout: ResultLayout) -> None:
        """Replace the summary and the joint curves by what is staged."""
        for name in CURVES:
            self._commit(name, _Staged(layout.staged(name), {NO_RUN: None}), [ALL_RUNS])
        for name in JOINT:
            self._commit(name, _Staged(layout.staged(name), {"": None}), None)

    def drop(self, runs: Sequence[str]) -> None:
        for name in (RUNS, *TABLES):
            self._delete(name, runs)

    def _delete(self, name: str, runs: Sequence[str]) -> None:
        table = self.table(name) if runs else None
        if table is not None:
            with self._named_failures(name):
                table.delete(_among(runs))

    @contextmanager
    def _named_failures(self, name: str) -> Iterator[None]:
        """What the package raises, such as on a full disk, is told in one line."""
        try:
            yield
        except (OSError, self._lake.exceptions.DeltaError) as error:
            raise UnisonoError(f"{self.place(name)}: {_first_line(error)}") from None

    def _commit(self, name: str, staged: _Staged, runs: Sequence[str] | None) -> None:
        """One commit: the rows of these runs, or of None the whole table, become those staged."""
        table = self.table(name)
        partitions = [each for each in ("protocol", "date") if each in staged.schema.names]
        more: dict[str, Any] = {"predicate": _among(runs)} if runs and table is not None else {}
        # Overwriting by a predicate keeps rows of other runs, whatever files they share.
        with self._named_failures(name):
            self._lake.write_deltalake(
                self.place(name) if table is None else table,
                staged.reader(),
                mode="append" if table is None else "overwrite",
                partition_by=partitions if runs else None,
                schema_mode="merge" if more or table is None else "overwrite",
                **more,
            )
            if table is not None and len(table.file_uris()) > FILES_MAX:
                table.optimize.compact()
                table.vacuum(dry_run=False)


class _Staged:
    """Staged files of a table as one stream of rows, with the columns `run` and `date`."""

    def __init__(self, top: Path, folders: Mapping[str, date | None]) -> None:
        self._paths = [
            (folder, day, path)
            for folder, day in folders.items()
            for path in sorted((top / folder).glob("[!.]*.parquet"))
        ]
        any_file = next(top.glob("**/[!.]*.parquet"))
        schema = nullable(pq.read_schema(any_file))
        self._keyed = "" not in folders
        if self._keyed:
            schema = schema.insert(0, pa.field("run", pa.string()))
            schema = schema.append(pa.field("date", pa.date32()))
        self.schema = schema

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for folder, day, path in self._paths:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(BATCH_ROWS):
                    yield self._with_keys(batch, folder, day)

    def _with_keys(self, batch: pa.RecordBatch, folder: str, day: date | None) -> pa.RecordBatch:
        columns = batch.columns
        if self._keyed:
            run = ALL_RUNS if folder == NO_RUN else run_of(folder)
            keys = (pa.scalar(run), pa.scalar(day or date(1970, 1, 1), pa.date32()))
            first, last = (pa.repeat(key, batch.num_rows) for key in keys)
            columns = [first, *columns, last]
        return pa.RecordBatch.from_arrays(
            [c.cast(f.type) for c, f in zip(columns, self.schema, strict=True)], schema=self.schema
        )


def _among(runs: Sequence[str]) -> str:
    quoted = ", ".join("'" + run.replace("'", "''") + "'" for run in runs)
    return f"run IN ({quoted})"


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
