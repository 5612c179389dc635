"""Which runs there are to do: those that are new or have changed since they were judged.

A run is told from its former self by the names, sizes and times of its files, by the code that
judged it, and by the laws that were asked of its protocols. What is known of it stands in the table
`gold/runs`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final

from unisono.errors import BadTrace
from unisono.spark.code import JUDGES, JUDGES_NOT, digest_of
from unisono.spark.layout import BRONZE, RUNS, folders_in, run_folder
from unisono.spark.partitioned import read_table
from unisono.trace.files import REPLAY, TraceFiles, trace_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPEN: Final = "open "
"""Before the fingerprint of a run that was judged while it went on."""
BATCH_BYTES: Final = 1 << 30
BATCH_RUNS: Final = 20_000
"""A batch is so much of trace files and so many runs, or one run that is larger."""
REPLAY_BYTES_MAX: Final = 4096


@dataclass(frozen=True)
class Input:
    """The files of one run, as they lie there now."""

    run: str
    files: tuple[TraceFiles, ...]
    octets: int
    fingerprint: str

    @property
    def replay(self) -> str | None:
        """The command that makes this run again, where whoever made it left word of it."""
        try:
            with (self.files[0].path.parent / REPLAY).open("rb") as file:
                text = file.read(REPLAY_BYTES_MAX).decode("utf-8", "replace")
        except OSError:
            return None
        return next((line.strip() for line in text.splitlines() if line.strip()), None)


def inputs_in(
    directory: str | os.PathLike[str], runs: Sequence[str] | None = None
) -> dict[str, Input]:
    """What a trace directory holds, by run; of all runs, or of those named. `BadTrace` when that is
    nothing, or one of them is not there."""
    files: dict[str, list[TraceFiles]] = {}
    for found in trace_files(directory):
        files.setdefault(found.run, []).append(found)
    if runs:
        missing = sorted(set(runs) - files.keys())
        if missing:
            known = ", ".join(sorted(files)[:5]) + (", …" if len(files) > 5 else "")
            raise BadTrace(f"{directory}: no run {missing[0]!r} in it; there are {known}")
        files = {run: files[run] for run in sorted(set(runs))}
    return {run: _input(run, found) for run, found in sorted(files.items())}


def judge_version() -> str:
    """The code that judges and measures: what another found may be found otherwise now."""
    return digest_of(JUDGES, JUDGES_NOT)


def _input(run: str, files: list[TraceFiles]) -> Input:
    octets, digest = 0, blake2b(judge_version().encode(), digest_size=12)
    for found in files:
        try:
            about = found.path.stat()
        except OSError:
            # A link to nowhere, or gone since it was listed: reading it will say so.
            digest.update(f"\n{found.name} -".encode())
            continue
        octets += about.st_size
        digest.update(f"\n{found.name} {about.st_size} {about.st_mtime_ns}".encode())
    return Input(run, tuple(files), octets, digest.hexdigest())


def word_of(laws: Sequence[str]) -> str:
    """The laws that are asked of a protocol, as one word to compare."""
    return blake2b(" ".join(sorted(set(laws))).encode(), digest_size=4).hexdigest()


def changed(
    session: SparkSession,
    out: Path,
    inputs: Mapping[str, Input],
    asked: Callable[[str], Sequence[str]],
    going_on: bool = False,
    silver: bool = False,
) -> list[Input]:
    """The runs that the tables do not tell of, or not as they are now. `asked` are the laws of a
    protocol. A run that was judged while it went on is to be judged again, unless it still does;
    with `silver`, so is one of which only gold was written."""
    known = read_table(session, out, RUNS, list(inputs))
    if known.num_rows == 0:
        return list(inputs.values())
    columns = ["run", "fingerprint", "protocols", "asked", "events"]
    # A run has its events there, unless it has none.
    told = {folder.name for folder in folders_in(out, BRONZE[0])} if silver else set()
    done = set()
    for run, fingerprint, protocols, words, events in zip(
        *(known.column(name).to_pylist() for name in columns), strict=True
    ):
        now = inputs.get(run)
        if going_on:
            fingerprint = fingerprint.removeprefix(OPEN)
        same = now is not None and now.fingerprint == fingerprint
        if silver and events and run_folder(run) not in told:
            continue
        if same and words == " ".join(word_of(asked(name)) for name in protocols):
            done.add(run)
    return [each for run, each in inputs.items() if run not in done]


def gone(folders: Sequence[Path], inputs: Mapping[str, Input]) -> list[str]:
    """The folders of runs that the trace directory no longer has."""
    there = {run_folder(run) for run in inputs}
    return [folder.name for folder in folders if folder.name not in there]


def batches_of(inputs: Sequence[Input]) -> Iterator[list[Input]]:
    """The runs in batches that are bounded in bytes and in number."""
    batch: list[Input] = []
    octets = 0
    for each in inputs:
        if batch and (octets + each.octets > BATCH_BYTES or len(batch) >= BATCH_RUNS):
            yield batch
            batch, octets = [], 0
        batch.append(each)
        octets += each.octets
    if batch:
        yield batch
