"""The judge that works where the files lie: what is odd about files and bounds."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.laws.doctoring import cut
from tests.laws.judged_here import judged_here
from tests.laws.stories import story, write_trace
from tests.laws.test_mutants import MUTANTS, orderly
from tests.trace.test_files import BAD_ROWS
from tests.yardstick.sql import LAWS as IN_SQL
from tests.yardstick.synthetic import FAULTS, stories, write
from unisono.laws import LAWS, VIOLATIONS_MAX, Violation, judge_all
from unisono.spark.measures import added, counted, quantiles
from unisono.trace.files import TraceFile, trace_files
from unisono.trace.history import History
from unisono.trace.parquet import batch_of, writer_to
from unisono.trace.reading import read_trace
from unisono.trace.record import Row

ANYTHING: dict[str, list[str]] = {name: list(LAWS) for name in ("story", "p", "synthetic")}


Found = tuple[dict[str, list[Violation]], list[tuple[str, int, str]], int]


def findings(directory: Path) -> Found:
    violations: dict[str, list[Violation]] = {}
    quarantine, events = [], 0
    for row in judged_here(directory, ANYTHING):
        mine = violations.setdefault(row["run"], [])
        if row["what"] == "violation":
            mine.append(Violation(*(row[name] for name in Violation._fields)))
        elif row["what"] == "quarantine":
            quarantine.append(
                (row["path"], -1 if row["row"] is None else row["row"], row["reason"])
            )
        elif row["what"] == "count":
            events += row["events"]
    return {run: sorted(found) for run, found in violations.items()}, sorted(quarantine), events


def agree(directory: Path) -> dict[str, list[Violation]]:
    """Both ways give the violations of the in-process laws, which are returned."""
    trace = read_trace(directory)
    verdicts = judge_all(trace.histories(), lambda protocol: ANYTHING[protocol])
    plain = {run: verdict.violations for run, verdict in verdicts.items()}
    for found in trace_files(directory):
        plain.setdefault(found.run, [])
    aside = sorted(
        (each.path, -1 if each.row is None else each.row, each.reason) for each in trace.quarantined
    )
    violations, quarantine, events = findings(directory)
    assert violations == plain
    assert quarantine == aside
    assert events == trace.events
    return plain


# -- files ---------------------------------------------------------------------------------------

TALK = """
    a: view 1 a b | send | send | a:1 | a:2 | b:1
    b: view 1 a b | a:1 | a:2 | send | b:1
"""


def rewritten(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(path, partitioning=None)), path)


def as_other_types(table: pa.Table) -> pa.Table:
    kinds = {pa.string(): pa.large_string(), pa.int64(): pa.float64(), pa.int32(): pa.int64()}
    fields = [pa.field(field.name, kinds.get(field.type, field.type)) for field in table.schema]
    fields = [
        pa.field(field.name, pa.int64()) if field.name == "digest" else field for field in fields
    ]
    return table.cast(pa.schema(fields))


CHANGES: dict[str, Callable[[Path], None]] = {
    "other types": lambda folder: rewritten(folder / "a-1.parquet", as_other_types),
    "a column too few": lambda folder: rewritten(
        folder / "a-1.parquet", lambda table: table.drop_columns(["number"])
    ),
    "words in dictionaries": lambda folder: rewritten(
        folder / "a-1.parquet",
        lambda table: table.set_column(
            2, "node", table.column("node").combine_chunks().dictionary_encode()
        ),
    ),
    "a copy": lambda folder: shutil.copy(folder / "a-1.parquet", folder / "z.parquet"),
    "a copy that comes first": lambda folder: shutil.copy(
        folder / "b-1.parquet", folder / "a-0.parquet"
    ),
    "no Parquet": lambda folder: (folder / "c.parquet").write_bytes(b"x" * 100),
    "empty": lambda folder: (folder / "c.parquet").write_bytes(b""),
    "a folder": lambda folder: (folder / "c.parquet").mkdir(),
    "no footer": lambda folder: (folder / "b-1.parquet").write_bytes(
        (folder / "b-1.parquet").read_bytes()[:-300]
    ),
    "not closed": lambda folder: cut(folder / "b-1.parquet"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_files_are_read_as_the_trace_room_reads_them(tmp_path: Path, name: str) -> None:
    write_trace(story(TALK, run="r"), tmp_path)
    CHANGES[name](tmp_path / "run=r")
    agree(tmp_path)


def test_bad_rows_are_put_aside_for_the_same_reasons(tmp_path: Path) -> None:
    history = story(TALK, run="r")
    write_trace(history, tmp_path)
    rows = [row for row, _ in BAD_ROWS] + list(history.rows)
    random.Random(5).shuffle(rows)
    for name, some in (("m.parquet", rows[::2]), ("n.parquet", rows[1::2])):
        with writer_to(tmp_path / "run=r" / name) as writer:
            writer.write_batch(batch_of(some))
    agree(tmp_path)
    _, quarantine, _ = findings(tmp_path)
    assert len({reason for _, _, reason in quarantine}) > 10


def test_lives_and_groups_mixed_in_one_file(tmp_path: Path) -> None:
    """The layout is not trusted: any mixture is judged row by row where it stands."""
    one, two = story(TALK, run="r"), story("a: view 1 a | send | send | a:2", run="r")
    rows = list(one.rows) + [row._replace(group="h", node=f"x{row.node}") for row in two.rows]
    rows = [
        row._replace(sender=f"x{row.sender}", members=None)
        if row.group == "h" and row.sender
        else row
        for row in rows
    ]
    dice = random.Random(3)
    dice.shuffle(rows)
    (tmp_path / "run=r").mkdir()
    for name in ("one.parquet", "two.parquet"):
        with writer_to(tmp_path / "run=r" / name) as writer:
            for at in range(0, len(rows), 4):
                writer.write_batch(batch_of(rows[at : at + 4]))
        rows = [row._replace(step=row.step + 100) for row in rows]
    plain = agree(tmp_path)
    assert plain["r"], "what was shuffled breaks laws"


# -- long runs -----------------------------------------------------------------------------------


def long_run(directory: Path, seed: int, change: Callable[[list[Row]], None] | None) -> None:
    rows = orderly(seed, count=120)
    if change:
        change(rows)
    rows.sort(key=lambda row: (row.node, row.step))
    files: dict[str, TraceFile] = {}
    for row in rows:
        if row.node not in files:
            files[row.node] = TraceFile(directory, f"r{seed}", row.node, 1, row_count_max=60)
        files[row.node].write(row)
    for file in files.values():
        file.close()


@pytest.mark.parametrize(
    ("mutant", "laws"), MUTANTS, ids=lambda each: getattr(each, "__name__", "")
)
def test_a_bug_in_a_long_run_is_told_alike(
    tmp_path: Path, mutant: Callable[..., None], laws: tuple[str, ...]
) -> None:
    for seed in range(2):
        long_run(tmp_path, seed, lambda rows, s=seed: mutant(rows, random.Random(s)))  # type: ignore[misc]
    plain = agree(tmp_path)
    for told in plain.values():
        assert set(laws) <= {violation.law for violation in told}


def test_a_late_message_is_told_alike(tmp_path: Path) -> None:
    def delay(rows: list[Row]) -> None:
        """One delivery comes at the very end; another is told twice on the way."""
        mine = [at for at, row in enumerate(rows) if (row.node, row.kind) == ("b", "deliver")]
        last = max(row.step for row in rows if row.node == "b")
        rows[mine[10]] = rows[mine[10]]._replace(step=last + 1)
        rows.append(rows[mine[20]]._replace(step=last + 2, seq=7))
        rows.append(rows[mine[21]]._replace(step=last + 3))

    long_run(tmp_path, 1, delay)
    plain = agree(tmp_path)
    assert {"total_order", "prefix", "no_duplication"} <= {each.law for each in plain["r1"]}


def test_synthetic_faults_are_found(tmp_path: Path) -> None:
    write(tmp_path, stories(500 * 6 * len(FAULTS), len(FAULTS), 5, faulty=True))
    plain = agree(tmp_path)
    broken = [{each.law for each in plain[run]} for run in sorted(plain)]
    assert broken[0] == {"sending_view"}, "they speak while their view changes"
    for name, laws in zip(list(FAULTS)[1:], broken[1:], strict=True):
        assert laws > broken[0], name
    assert set().union(*broken) >= set(IN_SQL)


def test_a_number_beyond_all_is_told_alike(tmp_path: Path) -> None:
    def beyond(rows: list[Row]) -> None:
        at = next(at for at, row in enumerate(rows) if row.kind == "deliver" and row.step > 60)
        rows[at] = rows[at]._replace(number=10**12)

    long_run(tmp_path, 2, beyond)
    assert agree(tmp_path)["r2"]


def test_a_run_larger_than_memory_is_told_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unisono.trace.columns.ROWS_IN_MEMORY_MAX", 50)
    monkeypatch.setattr("unisono.trace.scan.PARTS_MAX", 2)
    write(tmp_path, stories(6_000, 1, 5, faulty=True))
    assert agree(tmp_path)["r000000"]


def test_a_law_broken_everywhere_is_told_a_hundred_times(tmp_path: Path) -> None:
    rows = orderly(4, count=300)
    rows = [row._replace(digest=1) if row.node == "c" and row.kind == "deliver" else row
            for row in rows if (row.node, row.kind) != ("d", "deliver")]  # fmt: skip
    write_trace(History("r", "story", "g", tuple(rows)), tmp_path)
    plain = agree(tmp_path)
    for law in ("no_creation", "agreement", "safe", "validity"):
        told = [each for each in plain["r"] if each.law == law]
        assert len(told) == (VIOLATIONS_MAX if law != "validity" else len(told)) > 50, law


# -- measures ------------------------------------------------------------------------------------


def test_quantiles_are_exact() -> None:
    import numpy as np

    values = np.array([5, -3, 5, 10**12, 7, 7, 7, 0, 1, 2])
    parts = [counted(values[:4]), counted(values[4:]), counted(values[:0])]
    found = quantiles(added(parts))
    assert found == {
        "p50_us": 5,
        "p90_us": 7,
        "p99_us": 10**12,
        "p999_us": 10**12,
        "max_us": 10**12,
    }
    assert quantiles(counted(values[:0])) == dict.fromkeys(found)
    even = quantiles(counted(np.arange(1, 1001)))
    assert even == {"p50_us": 500, "p90_us": 900, "p99_us": 990, "p999_us": 999, "max_us": 1000}
