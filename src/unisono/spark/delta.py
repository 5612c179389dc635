"""The tables as Delta Lake, by the package `deltalake`: no JVM, on disk or in an object store.

A batch of runs is one commit per table, which replaces the earlier rows of these runs. The runs are
taken out of `gold/runs` first and put in last, as in the Parquet layout: a run that is listed there
is complete in every table. Files hold many runs; tables are partitioned by protocol, where they
have one, and by the day on which the run was recorded, and are compacted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from unisono.errors import Misuse, UnisonoError
from unisono.spark.layout import ALL, CURVES, JOINT, RUNS, TABLES, day_of, files_in
from unisono.spark.partitioned import with_protocol
from unisono.spark.schemas import DATE, SCHEMAS, with_run

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from unisono.spark.publishing import ResultLayout

FOLDER: Final = "delta"
"""Within the output directory, unless another place is given."""
NEEDED: Final = "--format delta needs the package deltalake: pip install 'unisono[delta]'"
FILES_MAX: Final = 64
"""A table of more files is compacted."""
BATCH_ROWS: Final = 65_536


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

    def publish(self, layout: ResultLayout, rows: Sequence[Mapping[str, Any]]) -> None:
        """Replace these runs, by their rows of `gold/runs`, by what is staged."""
        runs = [row["run"] for row in rows]
        self._delete(RUNS, runs)
        for name in TABLES:
            if layout.staged(name).is_dir():
                self._commit(name, _staged(layout, name), runs)
        dated = [{**row, "date": row["recorded"].date()} for row in rows]
        listed = pa.Table.from_pylist(dated, SCHEMAS[RUNS].append(DATE))
        self._commit(RUNS, listed.to_reader(), runs)

    def publish_joint(self, layout: ResultLayout) -> None:
        """Replace the summary and the joint curves by what is staged."""
        for name in CURVES:
            self._commit(name, _staged(layout, name), [ALL])
        for name in set(JOINT) - {RUNS}:
            rows = pq.ParquetFile(layout.staged(name) / f"{ALL}.parquet").read()
            self._commit(name, rows.cast(SCHEMAS[name]).to_reader(), None)

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

    def _commit(self, name: str, staged: pa.RecordBatchReader, runs: Sequence[str] | None) -> None:
        """One commit: the rows of these runs, or of None the whole table, become those staged."""
        table = self.table(name)
        partitions = [each for each in ("protocol", "date") if each in staged.schema.names]
        more: dict[str, Any] = {"predicate": _among(runs)} if runs and table is not None else {}
        # Overwriting by a predicate keeps rows of other runs, whatever files they share.
        with self._named_failures(name):
            self._lake.write_deltalake(
                self.place(name) if table is None else table,
                staged,
                mode="append" if table is None else "overwrite",
                partition_by=partitions if runs else None,
                schema_mode="merge" if more or table is None else "overwrite",
                **more,
            )
            if table is not None and len(table.file_uris()) > FILES_MAX:
                table.optimize.compact()
                table.vacuum(dry_run=False)


def _staged(layout: ResultLayout, name: str) -> pa.RecordBatchReader:
    """What is staged of a table as one stream of rows, with the columns `run` and `date`."""
    paths = files_in(layout.staged(name), "")

    def batches() -> Iterator[pa.RecordBatch]:
        for path in paths:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(BATCH_ROWS):
                    rows = with_protocol(pa.table(batch), path, name)
                    day = pa.repeat(pa.scalar(day_of(path), DATE.type), rows.num_rows)
                    yield from rows.append_column(DATE, day).to_batches()

    return pa.RecordBatchReader.from_batches(with_run(name).append(DATE), batches())


def _among(runs: Sequence[str]) -> str:
    quoted = ", ".join("'" + run.replace("'", "''") + "'" for run in runs)
    return f"run IN ({quoted})"


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
