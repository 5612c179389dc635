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
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

import pyarrow as pa

from unisono.errors import BadTrace, Misuse
from unisono.trace.checks import AFTER_TORN, TOLD_TWICE, TORN, reason_against
from unisono.trace.history import History, histories_of
from unisono.trace.parquet import LISTS, SCHEMA, ParquetPart, batch_of, frame_of, seal, writer_to
from unisono.trace.record import Row
from unisono.trace.retold import Name, contradicted
from unisono.trace.unread import unread_of

__all__ = [
    "REPLAY",
    "SCHEMA",
    "Quarantined",
    "Trace",
    "TraceFile",
    "TraceFiles",
    "clear_run",
    "note_replay",
    "read_trace",
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
    _remove(run_folder(directory, run), lambda name: name.endswith((".parquet", DRAFT)))


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


# -- reading -------------------------------------------------------------------------------------


class Quarantined(NamedTuple):
    """What was not judged: a row of a file, or (without a row) the file or the rest of it."""

    path: str
    """Under the trace directory."""
    row: int | None
    """Its index in the file, from 0."""
    reason: str


class Trace(NamedTuple):
    """All that a trace directory holds, in memory."""

    runs: dict[str, list[Row]]
    """Sound rows by run, in order of node, incarnation and step. An incarnation's steps
    are counted from 0 in the order of its rows in its files, whatever their own steps."""
    events: int
    """How many they are."""
    quarantined: list[Quarantined]
    torn: dict[str, frozenset[str]]
    """By run, the incarnations of which a file is torn or missing: their last rows are unknown."""
    contradicted: dict[str, frozenset[str]]
    """By run, the incarnations of which a second file contradicts the first, which is judged."""

    @property
    def unjudged(self) -> list[Quarantined]:
        """What was there and was not judged: all but what a killed process could not write."""
        return [each for each in self.quarantined if each.row is not None or not _is_cut(each)]

    def histories(self) -> list[History]:
        """One a run, protocol and group, in that order."""
        found: dict[str, list[tuple[str, list[int | None], str]]] = {}
        for path, row, reason in self.quarantined:
            run = _printable(unquote(path.partition("/")[0][4:]))
            found.setdefault(run, []).append((path, [row], reason))
        unread = {run: unread_of(rows) for run, rows in found.items()}
        return [
            history
            for run, rows in sorted(self.runs.items())
            for history in histories_of(run, rows, self.torn.get(run, frozenset()), unread.get(run))
        ]


class TraceFiles(NamedTuple):
    run: str
    path: Path
    name: str
    """The path under the trace directory, with forward slashes; what is not text is escaped."""
    chain: Path
    """The same for all files of one incarnation, one after the other."""
    gap: bool
    """The part that should come before this one is not there."""


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
    run = _printable(unquote(folder.name[4:]))
    for name in names:
        path, parts = folder / name, _parts(name)
        assert parts is not None, "its suffix was looked at"
        stem, segment = parts["stem"], int(parts["segment"] or 0)
        before = f"{stem}.s{segment - 1:06}.parquet" if segment > 1 else f"{stem}.parquet"
        gap = segment > 0 and before not in names
        yield TraceFiles(
            run, path, _printable(path.relative_to(top).as_posix()), folder / stem, gap
        )


def _printable(name: str) -> str:
    """File names need not be text; messages about them must be."""
    return name.encode("utf-8", "backslashreplace").decode()


def _rows(table: pa.Table) -> Iterator[Row]:
    columns = [
        [each if each is None else tuple(each) for each in column.to_pylist()]
        if name in LISTS and column.null_count < len(column)
        else column.to_pylist()
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    return map(Row._make, zip(*columns, strict=True))


def read_trace(directory: str | os.PathLike[str]) -> Trace:
    """Everything a trace directory holds: sound rows by run, the rest in quarantine.

    Raises `BadTrace` when there is no trace at all; a bad file or row never raises.
    """
    reading = _Reading()
    for found in trace_files(directory):
        reading.read(found)
    for rows in reading.runs.values():
        rows.sort(key=lambda row: (row.node, row.incarnation, row.step))
    events = sum(map(len, reading.runs.values()))
    torn, otherwise = reading.torn_lives(), reading.contradicted()
    return Trace(reading.runs, events, reading.quarantined, torn, otherwise)


def _is_cut(each: Quarantined) -> bool:
    """Whether it is the end of a file whose process was killed."""
    return each.reason.startswith(TORN)


_Key: TypeAlias = tuple[str, str, int]
"""Run, node and incarnation."""


class _Reading:
    """What has been read so far, file by file in the order of their names."""

    def __init__(self) -> None:
        self.runs: dict[str, list[Row]] = {}
        self.quarantined: list[Quarantined] = []
        self._last_steps: dict[_Key, int] = {}
        """By incarnation, the last step in the files read so far."""
        self._counts: dict[_Key, int] = {}
        """By incarnation, how many of its rows are to be judged."""
        self._cut: set[_Key] = set()
        """Incarnations of which a file with fresh rows was torn, or had a gap before it."""
        self._broken: set[Path] = set()
        """Chains of which a part is torn or missing."""
        self._chains: dict[Path, set[_Key]] = {}
        """By chain, the incarnations that it has fresh rows of."""
        self._paths: dict[str, list[Path]] = {}
        """By run, the files read."""
        self._twice: dict[str, set[Name]] = {}
        """By run, the incarnations that a later file repeats."""

    def read(self, found: TraceFiles) -> None:
        if found.gap:
            self._broken.add(found.chain)
        after = found.chain in self._broken
        self._paths.setdefault(found.run, []).append(found.path)
        part = ParquetPart(found.path)
        last: dict[_Key, int] = {}
        fresh: set[_Key] = set()
        start = 0
        for table in part.tables():
            for at, row in enumerate(_rows(table), start):
                reason = reason_against(row)
                if reason is None:
                    key = (found.run, row.node, row.incarnation)
                    last[key] = max(row.step, last.get(key, -1))
                    if row.step <= self._last_steps.get(key, -1):
                        reason = TOLD_TWICE
                        self._twice.setdefault(found.run, set()).add(key[1:])
                    else:
                        fresh.add(key)
                        reason = AFTER_TORN if after or key in self._cut else None
                if reason is None:
                    self._keep(key, row)
                else:
                    self.quarantined.append(Quarantined(found.name, at, reason))
            start += table.num_rows
        if part.lost:
            self.quarantined.append(Quarantined(found.name, None, part.lost))
        if part.torn:
            self._broken.add(found.chain)
        if part.torn or after:
            self._cut |= fresh
        for key, step in last.items():
            self._last_steps[key] = max(step, self._last_steps.get(key, -1))
        self._chains.setdefault(found.chain, set()).update(fresh)

    def _keep(self, key: _Key, row: Row) -> None:
        step = self._counts.get(key, 0)
        self._counts[key] = step + 1
        kept = row if row.step == step else row._replace(step=step)
        self.runs.setdefault(key[0], []).append(kept)

    def contradicted(self) -> dict[str, frozenset[str]]:
        """By run, the incarnations of which two files differ."""
        found = {run: contradicted(self._paths[run], keys) for run, keys in self._twice.items()}
        return {
            run: frozenset(f"{node}#{incarnation}" for node, incarnation in keys)
            for run, keys in found.items()
            if keys
        }

    def torn_lives(self) -> dict[str, frozenset[str]]:
        """By run, the incarnations that have fresh rows in a chain that is broken somewhere."""
        torn: dict[str, set[str]] = {}
        for chain in self._broken:
            for run, node, incarnation in self._chains[chain]:
                torn.setdefault(run, set()).add(f"{node}#{incarnation}")
        return {run: frozenset(keys) for run, keys in torn.items()}
