"""The runs that are new or have changed since they were judged.

A run has changed when the names, sizes or times of its files differ from those in the table
`gold/runs`, or the code that judges, or the laws that its protocols claim.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Final

from unisono.errors import BadTrace
from unisono.spark.code import JUDGES, JUDGES_NOT, digest_of
from unisono.spark.partitioned import runs_table
from unisono.trace.files import REPLAY, TraceFiles, trace_files

OPEN: Final = "open "
"""Prefix of the fingerprint of a run that was judged while it went on."""
BATCH_BYTES: Final = 1 << 30
BATCH_RUNS: Final = 20_000
"""Limits of a batch; a larger run is a batch by itself."""
REPLAY_BYTES_MAX: Final = 4096


@dataclass(frozen=True)
class Input:
    """The files of one run, as they are now."""

    run: str
    files: tuple[TraceFiles, ...]
    nbytes: int
    fingerprint: str
    recorded: datetime
    """When its newest file was written."""

    @property
    def replay(self) -> str | None:
        """The command that reproduces this run, if it is recorded beside its files."""
        try:
            with (self.files[0].path.parent / REPLAY).open("rb") as file:
                text = file.read(REPLAY_BYTES_MAX).decode("utf-8", "replace")
        except OSError:
            return None
        return next((line.strip() for line in text.splitlines() if line.strip()), None)


def inputs_in(
    directory: str | os.PathLike[str], runs: Sequence[str] | None = None
) -> dict[str, Input]:
    """The runs of a trace directory, or those named. `BadTrace` when there is none, or one of them
    is missing."""
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
    """A digest of the code that judges and measures."""
    return digest_of(JUDGES, JUDGES_NOT)


def _input(run: str, files: list[TraceFiles]) -> Input:
    nbytes, newest_s, digest = 0, 0.0, blake2b(judge_version().encode(), digest_size=12)
    for found in files:
        try:
            about = found.path.stat()
        except OSError:
            # A dangling link, or removed since it was listed: reading it reports that.
            digest.update(f"\n{found.name} -".encode())
            continue
        nbytes += about.st_size
        newest_s = max(newest_s, about.st_mtime)
        digest.update(f"\n{found.name} {about.st_size} {about.st_mtime_ns}".encode())
    recorded = datetime.fromtimestamp(newest_s, UTC)
    return Input(run, tuple(files), nbytes, digest.hexdigest(), recorded)


def laws_digest(laws: Sequence[str]) -> str:
    return blake2b(" ".join(sorted(set(laws))).encode(), digest_size=4).hexdigest()


def changed(
    out: Path,
    inputs: Mapping[str, Input],
    laws_of: Callable[[str], Sequence[str]],
    going_on: bool = False,
    rows_in: str | None = None,
    elsewhere: Collection[str] | None = None,
) -> list[Input]:
    """The runs that are not in the tables as they are now. `laws_of` gives a protocol's laws. A run
    that was judged while it went on is judged again, unless it still does; so is one whose events
    and messages are not in tables of the format `rows_in`, and one that is not `elsewhere`."""
    known = runs_table(out, list(inputs))
    if known.num_rows == 0:
        return list(inputs.values())
    columns = ["run", "fingerprint", "protocols", "asked", "events", "rows_in"]
    done = set()
    for run, fingerprint, protocols, digests, events, kept in zip(
        *(known.column(name).to_pylist() for name in columns), strict=True
    ):
        now = inputs.get(run)
        if going_on:
            fingerprint = fingerprint.removeprefix(OPEN)
        same = now is not None and now.fingerprint == fingerprint
        if events and rows_in and kept != rows_in:
            continue
        if elsewhere is not None and run not in elsewhere:
            continue
        if same and digests == " ".join(laws_digest(laws_of(name)) for name in protocols):
            done.add(run)
    return [each for run, each in inputs.items() if run not in done]


def batches_of(inputs: Sequence[Input]) -> Iterator[list[Input]]:
    """The runs in batches that are bounded in bytes and in number."""
    batch: list[Input] = []
    nbytes = 0
    for each in inputs:
        if batch and (nbytes + each.nbytes > BATCH_BYTES or len(batch) >= BATCH_RUNS):
            yield batch
            batch, nbytes = [], 0
        batch.append(each)
        nbytes += each.nbytes
    if batch:
        yield batch
