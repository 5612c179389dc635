"""A sound trace, and its files changed as people and accidents change them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.laws.telling import story, write_trace
from unisono.trace.parquet import ParquetPart, batch_of, frame_of, writer_to
from unisono.trace.reading import read_trace
from unisono.trace.record import Row

TOLD = """
    a: view 1 a b c | send | send | a:1 | a:2 | b:1
    b: view 1 a b c | a:1 | a:2 | send | b:1
    c: view 1 a b c | a:1 | a:2 | b:1
"""


class Files(NamedTuple):
    """What was done to the files of life `c`, and which laws must see it; none where it is an
    accident, of which nobody is to be blamed."""

    name: str
    laws: tuple[str, ...]
    change: Callable[[Path, list[Row]], None]

    @property
    def run(self) -> str:
        return self.name.replace(" ", "-")

    def write(self, directory: Path) -> None:
        write_trace(story(TOLD, run=self.run), directory)
        folder = directory / f"run={self.run}"
        rows = [row for row in read_trace(folder).runs[self.run] if row.node == "c"]
        self.change(folder, rows)


def write_rows(path: Path, rows: list[Row]) -> None:
    with writer_to(path) as writer:
        for row in rows:
            writer.write_batch(batch_of([row]))


def rewritten(change: Callable[[list[Row]], list[Row]]) -> Callable[[Path, list[Row]], None]:
    return lambda folder, rows: write_rows(folder / "c-1.parquet", change(rows))


def in_parts(hurt: Callable[[list[Path]], None]) -> Callable[[Path, list[Row]], None]:
    """The life in three files, with one, two and one of its rows."""

    def change(folder: Path, rows: list[Row]) -> None:
        parts = [rows[:1], rows[1:3], rows[3:]]
        paths = [folder / f"c-1{part}.parquet" for part in ("", ".s000001", ".s000002")]
        for path, part in zip(paths, parts, strict=True):
            write_rows(path, part)
        hurt(paths)

    return change


def cut(path: Path) -> None:
    """As a process leaves it that is killed while it writes its last row group."""
    batches = [batch for table in ParquetPart(path).tables() for batch in table.to_batches()]
    path.write_bytes(b"".join(map(frame_of, batches))[:-1])


def overwrite(path: Path) -> None:
    path.write_bytes(b"x" * 500)


def torn_and_renamed(folder: Path, rows: list[Row]) -> None:
    """The parts of a life do not have the names that they were given."""
    write_rows(folder / "c-1.parquet", rows[:3])
    cut(folder / "c-1.parquet")
    write_rows(folder / "rest.parquet", rows[3:])


# fmt: off
FILES: list[Files] = [
    Files("untouched parts", (),
          in_parts(lambda paths: None)),
    Files("a row copied next to itself", ("no_duplication",),
          rewritten(lambda rows: [*rows[:3], *rows[2:]])),
    Files("a row copied to the end", ("no_duplication",),
          rewritten(lambda rows: [*rows, rows[1]])),
    Files("a row made up at the end", ("no_creation",),
          rewritten(lambda rows: [*rows, rows[1]._replace(number=9999)])),
    Files("a row made up at the front", ("no_creation",),
          rewritten(lambda rows: [rows[0], rows[3]._replace(number=9999), *rows[1:]])),
    Files("two rows of one sender swapped", ("fifo", "causal"),
          rewritten(lambda rows: [rows[0], rows[2], rows[1], rows[3]])),
    Files("an answer moved before its question", ("causal",),
          rewritten(lambda rows: [*rows[:2], rows[3], rows[2]])),
    Files("a middle part cut", (),
          in_parts(lambda paths: cut(paths[1]))),
    Files("a middle part overwritten", (),
          in_parts(lambda paths: overwrite(paths[1]))),
    Files("a middle part deleted", (),
          in_parts(lambda paths: paths[1].unlink())),
    Files("a last part cut", (),
          in_parts(lambda paths: cut(paths[2]))),
    Files("a first part deleted", (),
          in_parts(lambda paths: paths[0].unlink())),
    Files("a torn part and a rest of another name", (),
          torn_and_renamed),
]
# fmt: on
