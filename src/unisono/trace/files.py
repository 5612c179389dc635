"""Trace files: Parquet, one or more files per incarnation, and how damaged files are read.

A closed file is plain Parquet that anything reads. While it is open it is a row of frames, one at
least every second of trace time (see `parquet`); a process that is killed loses what came after the
last of them, no more. A long trace spans several files, since each row group costs the writer
memory until its file is closed. The columns hold the truth: file names only give the order to read
in, and whether a part is missing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from unisono.errors import BadTrace, Misuse
from unisono.trace.operations import SUFFIX
from unisono.trace.parquet import SCHEMA, batch_of, frame_of, seal, writer_to
from unisono.trace.record import Row

__all__ = [
    "REPLAY",
    "SCHEMA",
    "RunFiles",
    "TraceFile",
    "TraceFiles",
    "clear_run",
    "note_replay",
    "runs_of",
    "safe_name",
    "trace_files",
]

SEGMENT_GROUPS_MAX: Final = 500
"""Row groups in one file, at some 16 KB of the writer's memory each; then comes the next file."""
NAME_BYTES_MAX: Final = 150
"""A longer node name is cut in the file's name, with a hash instead of the rest."""

DRAFT: Final = ".draft"
"""The Parquet file that takes the place of the frames when it is closed."""
REPLAY: Final = "replay.txt"
"""Beside a run's files: the command that makes the run again."""

_parts = re.compile(r"(?P<stem>.*?)(?:\.s(?P<segment>[0-9]{6,}))?\.parquet", re.DOTALL).fullmatch


# -- writing -------------------------------------------------------------------------------------


def safe_name(name: str) -> str:
    """The name as part of a path: percent-encoded, never hidden, never too long."""
    encoded = quote(name, safe="")
    if encoded[:1] in (".", "_"):
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}"
    if len(encoded) > NAME_BYTES_MAX:
        digest = blake2b(name.encode(), digest_size=8).hexdigest()
        encoded = f"{encoded[:100]}~{digest}"
    return encoded


def run_folder(directory: str | os.PathLike[str], run: str) -> Path:
    if not run or len(quote(run, safe="")) > NAME_BYTES_MAX:
        raise Misuse(f"a run is named with 1 to {NAME_BYTES_MAX} bytes, not {run[:20]!r}")
    return Path(directory) / f"run={safe_name(run)}"


def note_replay(directory: str | os.PathLike[str], run: str, line: str) -> None:
    """Put the line that makes the run again beside its files."""
    path = run_folder(directory, run) / REPLAY
    try:
        path.write_text(f"{line}\n", encoding="utf-8")
    except OSError as error:
        raise BadTrace(f"cannot write {path}: {error.strerror or error}") from None


def clear_run(directory: str | os.PathLike[str], run: str) -> None:
    """Remove the traces of an earlier run of this name; other files stay."""
    _remove(run_folder(directory, run), lambda name: name.endswith((".parquet", DRAFT, SUFFIX)))


def _remove(folder: Path, is_old: Callable[[str], bool]) -> None:
    try:
        for path in folder.iterdir() if folder.is_dir() else ():
            if is_old(path.name) and not path.is_dir():
                path.unlink()
    except OSError as error:
        raise BadTrace(f"cannot clear {folder}: {error.strerror or error}") from None


class TraceFile:
    """A sink that is a file. Holds at most `row_count_max` rows before they are written, and none
    longer than `flush_us` of trace time; the same rows always make the same bytes."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        run: str,
        node: str,
        incarnation: int,
        row_count_max: int = 20_000,
        flush_us: int = 1_000_000,
    ) -> None:
        self._folder = run_folder(directory, run)
        self._stem = f"{safe_name(node)}-{incarnation}"
        self._row_count_max = row_count_max
        self._flush_us = flush_us
        self._rows: list[Row] = []
        self._segment = 0
        self._closed = False
        self._open(f"{self._stem}.parquet")
        # What an earlier run of the same name left would be read as the rest of this trace.
        _remove(self._folder, self._is_segment)

    def _is_segment(self, name: str) -> bool:
        parts = _parts(name)
        return bool(parts and parts["stem"] == self._stem and parts["segment"])

    def _open(self, name: str) -> None:
        self.path = self._folder / name
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._frames = self.path.open("wb")
            self._draft = self._folder / f".{name}{DRAFT}"
            self._parquet = writer_to(self._draft)
        except OSError as error:
            raise BadTrace(f"cannot write {self.path}: {error.strerror or error}") from None
        self._group_count = 0

    def write(self, row: Row) -> None:
        rows = self._rows
        rows.append(row)
        if len(rows) >= self._row_count_max or row.t_us - rows[0].t_us >= self._flush_us:
            self.flush()

    def flush(self) -> None:
        """Hand everything to the operating system, as one more row group."""
        if self._rows:
            if self._group_count == SEGMENT_GROUPS_MAX:
                self._end_segment()
                self._segment += 1
                self._open(f"{self._stem}.s{self._segment:06}.parquet")
            batch = batch_of(self._rows)
            self._frames.write(frame_of(batch))
            self._frames.flush()
            self._parquet.write_batch(batch)
            self._rows.clear()
            self._group_count += 1

    def _end_segment(self) -> None:
        self._parquet.close()
        seal(self._draft)
        self._draft.replace(self.path)
        self._frames.close()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.flush()
            self._end_segment()

    def abandon(self) -> None:
        """Stop as if killed: what was flushed is there, as frames."""
        if not self._closed:
            self._closed = True
            self._rows.clear()
            self._parquet.is_open = False
            self._draft.unlink(missing_ok=True)
            self._frames.close()

    def __del__(self) -> None:
        if hasattr(self, "_parquet"):
            self.abandon()


# -- finding -------------------------------------------------------------------------------------


class TraceFiles(NamedTuple):
    run: str
    path: Path
    name: str
    """The path under the trace directory, with forward slashes; what is not text is escaped."""
    chain: Path
    """The same for all files of one incarnation, one after the other."""
    gap: bool
    """The part that should come before this one is not there."""


class RunFiles(NamedTuple):
    """A run and its files, in the order of their names."""

    name: str
    files: list[TraceFiles]


def runs_of(files: Iterable[TraceFiles]) -> list[RunFiles]:
    by_run: dict[str, list[TraceFiles]] = {}
    for found in files:
        by_run.setdefault(found.run, []).append(found)
    return [RunFiles(run, mine) for run, mine in by_run.items()]


def trace_files(directory: str | os.PathLike[str]) -> list[TraceFiles]:
    """The files of a trace directory, or of one `run=…` folder of it, in order of their names."""
    top = Path(directory)
    try:
        if not top.exists():
            raise BadTrace(f"{top}: no such directory; give the one that --trace wrote")
        if not top.is_dir():
            raise BadTrace(f"{top}: not a directory; give the one that holds the run=… folders")
        top = top.resolve()
        if top.name.startswith("run="):
            folders, top = [top], top.parent
        else:
            folders = [path for path in top.iterdir() if path.name.startswith("run=")]
        found = [
            file
            for folder in folders
            if folder.is_dir()
            for file in _files_of(
                folder,
                top,
                {
                    path.name
                    for path in folder.iterdir()
                    if path.suffix == ".parquet" and path.name[0] not in "._"
                },
            )
        ]
    except OSError as error:
        raise BadTrace(f"{directory}: cannot be read: {error.strerror or error}") from None
    if not found:
        raise BadTrace(
            f"{directory}: no trace in it; give a directory with run=…/*.parquet as --trace wrote"
        )
    return sorted(found, key=lambda file: (file.name, file.path))


def _files_of(folder: Path, top: Path, names: set[str]) -> Iterator[TraceFiles]:
    run = printable(unquote(folder.name[4:]))
    for name in names:
        path, parts = folder / name, _parts(name)
        assert parts is not None, "its suffix was looked at"
        stem, segment = parts["stem"], int(parts["segment"] or 0)
        before = f"{stem}.s{segment - 1:06}.parquet" if segment > 1 else f"{stem}.parquet"
        gap = segment > 0 and before not in names
        yield TraceFiles(run, path, printable(path.relative_to(top).as_posix()), folder / stem, gap)


def printable(name: str) -> str:
    """File names need not be text; messages about them must be."""
    return name.encode("utf-8", "backslashreplace").decode()
