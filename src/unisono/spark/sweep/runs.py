"""One run of a sweep as a folder: its trace, the line that replays it, and a manifest.

A run is simulated beside its place and put there whole by one rename. Whoever finds it there, a
task that is tried again or a sweep that goes on, can tell from the manifest whether it is whole, of
the same plan and of the same code; then there is nothing to do. Anything else is done anew.
"""

from __future__ import annotations

import errno
import json
import shutil
import socket
import tempfile
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from unisono.errors import BadTrace, Misuse
from unisono.sim.plan import Plan
from unisono.sim.run import Outcome, run
from unisono.spark.code import SIMULATES, digest_of
from unisono.trace.files import REPLAY, run_folder

MANIFEST: Final = "manifest.json"
MARK: Final = ".unisono-sweep"
"""This file says that the traces beside it are a sweep's, and which sweep is at work there."""
SCRATCH: Final = ".sweep-"
RENAMES_MAX: Final = 5
IN_THE_WAY: Final = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
WHY_MAX: Final = 500
"""Characters of a reason that are kept."""


class TaskResult(NamedTuple):
    """What a task tells of a run."""

    run: str
    protocol: str
    seed: int
    nodes: int
    broken: list[str]
    """Laws, the world's own among them; `simulation` when it raised."""
    why: str
    """The first violation, or the error, in words."""
    replay: str
    sent: int
    delivered: int
    steps: int
    virtual_s: float
    wall_s: float
    """What simulating took when it was done."""
    octets: int
    """Of the trace files."""
    there: bool
    """It was done before."""
    dropped: bool
    """It was done and judged before, and its trace is no longer kept."""


RAISED: Final = "simulation"
"""Named among the broken laws when the simulation itself raised."""


def code_version() -> str:
    """The code that decides a run: two that say the same here leave the same traces."""
    return digest_of(SIMULATES)


def check_place(traces: Path, token: str) -> None:
    """The directory here must be the one that the sweep made, not another of the same name."""
    try:
        seen = (traces / MARK).read_text()
    except OSError:
        seen = ""
    if seen != token:
        raise Misuse(
            f"{traces} on {socket.gethostname()} is not the directory of this sweep: --out must be"
            " on storage that all machines share under one path"
        )


def perform(plan: Plan, traces: Path, code: str, drops: bool) -> TaskResult:
    """Simulate the plan unless its run is there. `drops` says that a run whose trace was dropped
    counts as there."""
    folder = run_folder(traces, plan.run_name)
    found = _there(folder, plan, code, drops)
    if found is not None:
        return found
    with tempfile.TemporaryDirectory(
        prefix=SCRATCH, dir=traces, ignore_cleanup_errors=True
    ) as scratch:
        told = _simulate(replace(plan, trace=scratch))
        made = run_folder(scratch, plan.run_name)
        made.mkdir(exist_ok=True)
        if told.broken == [RAISED]:
            _clear(made)
        files = _files(made)
        told = told._replace(octets=sum(size for size, _ in files.values()))
        _write_about(made, plan.replay, plan.detail, code, files, told)
        _put(made, folder, lambda: _there(folder, plan, code, drops) is not None)
    return told


def _simulate(plan: Plan) -> TaskResult:
    started = time.perf_counter()
    try:
        outcome = run(plan, time.perf_counter)
    except (OSError, BadTrace, MemoryError):
        # The machine's trouble, not the seed's: the task fails, and may be tried again.
        raise
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())[:WHY_MAX]
        wall_s = time.perf_counter() - started
        return TaskResult(
            *_names(plan), [RAISED], why, plan.replay, 0, 0, 0, 0.0, wall_s, 0, *_FRESH
        )
    return _told(plan, outcome)


_FRESH: Final = (False, False)


def _names(plan: Plan) -> tuple[str, str, int, int]:
    return plan.run_name, plan.protocol, plan.seed, plan.nodes


def _told(plan: Plan, outcome: Outcome) -> TaskResult:
    from unisono.laws import sentence

    return TaskResult(
        *_names(plan),
        broken=list(outcome.broken),
        why=sentence(outcome.violations[0])[:WHY_MAX] if outcome.violations else "",
        replay=plan.replay,
        sent=outcome.sent,
        delivered=outcome.delivered,
        steps=outcome.steps,
        virtual_s=outcome.virtual_s,
        wall_s=outcome.wall_s,
        octets=0,
        there=False,
        dropped=False,
    )


# -- the folder ----------------------------------------------------------------------------------


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and checksum of each trace file."""
    found = {}
    for path in sorted(folder.glob("*.parquet")):
        content = path.read_bytes()
        found[path.name] = (len(content), zlib.crc32(content))
    return found


def _write_about(
    folder: Path,
    replay: str,
    detail: bool,
    code: str,
    files: dict[str, tuple[int, int]],
    told: TaskResult,
) -> None:
    """Replay line and manifest, beside the trace files."""
    (folder / REPLAY).write_text(replay + "\n")
    says = {"replay": replay, "detail": detail, "code": code, "files": files}
    (folder / MANIFEST).write_text(json.dumps(says | {"told": told._asdict()}, indent=1) + "\n")


def _there(folder: Path, plan: Plan, code: str, drops: bool) -> TaskResult | None:
    """What an earlier simulation told, if its run is whole, of this plan and of this code."""
    try:
        says = json.loads((folder / MANIFEST).read_text())
        if (says["replay"], says["detail"], says["code"]) != (plan.replay, plan.detail, code):
            return None
        told = TaskResult(**says["told"])._replace(there=True)
        if told.broken == [RAISED]:
            # It may have been the machine after all.
            return None
        if told.dropped:
            return told if drops else None
        recorded = {name: tuple(about) for name, about in says["files"].items()}
        return told if recorded and _files(folder) == recorded else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _put(made: Path, folder: Path, is_same: Callable[[], bool]) -> None:
    """Rename into place. What is there and is not the same run, whole, gives way."""
    for attempt in range(RENAMES_MAX):
        try:
            made.rename(folder)
            return
        except OSError as error:
            if error.errno not in IN_THE_WAY:
                raise
        if is_same():
            # Another try of this task was faster, and left the same bytes.
            return
        with suppress(FileNotFoundError):
            folder.rename(made.parent / f"old-{attempt}")
    raise OSError(errno.EBUSY, "is put back again and again by somebody else", str(folder))


def _clear(folder: Path) -> None:
    for path in folder.glob("*.parquet"):
        path.unlink()


def drop(traces: Path, name: str) -> None:
    """Let go of the trace of a run that was judged and kept all laws; what is known of it stays."""
    folder = run_folder(traces, name)
    says = json.loads((folder / MANIFEST).read_text())
    told = TaskResult(**says["told"])._replace(dropped=True)
    with tempfile.TemporaryDirectory(
        prefix=SCRATCH, dir=traces, ignore_cleanup_errors=True
    ) as scratch:
        made = run_folder(scratch, name)
        made.mkdir()
        _write_about(made, says["replay"], says["detail"], says["code"], {}, told)
        # Never half a trace: it is whole, or not there, or dropped.
        _put(made, folder, lambda: False)


def clean(traces: Path) -> None:
    """Remove what sweeps that were killed have left half done."""
    for path in traces.glob(f"{SCRATCH}*"):
        shutil.rmtree(path, ignore_errors=True)
