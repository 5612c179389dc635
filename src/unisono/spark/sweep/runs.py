"""One run of a sweep as a folder: its trace, the command that reproduces it, and a manifest.

A run is simulated in a scratch directory and published by one rename. The manifest shows whether an
existing run is complete, of the same plan and of the same code; then a retried task or a resumed
sweep skips it. Anything else is simulated again.
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
from unisono.sim.run import run
from unisono.spark.code import SIMULATES, SIMULATES_NOT, digest_of
from unisono.trace.files import REPLAY, run_folder

MANIFEST: Final = "manifest.json"
MARK: Final = ".unisono-sweep"
"""Marks the traces of a sweep, with the token of the sweep that is running."""
SCRATCH: Final = ".sweep-"
RENAMES_MAX: Final = 5
IN_THE_WAY: Final = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
WHY_MAX: Final = 500
"""Characters."""


class TaskResult(NamedTuple):
    """The result of one run: a row of `outcomes.parquet`."""

    run: str
    protocol: str
    seed: int
    nodes: int
    broken: list[str]
    """Laws, those of the simulator included; `simulation` when it raised."""
    why: str
    """The first violation, or the error, as a sentence."""
    replay: str
    sent: int
    delivered: int
    steps: int
    virtual_s: float
    wall_s: float
    """The duration of the simulation."""
    octets: int
    """Of the trace files."""
    there: bool
    """It existed before."""
    dropped: bool
    """It was judged before, and its trace has been deleted."""


RAISED: Final = "simulation"
"""Named among the broken laws when the simulation itself raised."""


def code_version() -> str:
    """A digest of the code that determines a run."""
    return digest_of(SIMULATES, SIMULATES_NOT)


def check_directory(traces: Path, token: str) -> None:
    """`Misuse` when the directory on this machine is not the one of the driver."""
    try:
        seen = (traces / MARK).read_text()
    except OSError:
        seen = ""
    if seen != token:
        raise Misuse(
            f"{traces} on {socket.gethostname()} is not the directory of this sweep: put --out on"
            " storage that all machines share under one path"
        )


def perform(plan: Plan, traces: Path, code: str, drops: bool) -> TaskResult:
    """Simulate the plan unless its run exists. With `drops` that includes a deleted trace."""
    folder = run_folder(traces, plan.run_name)
    found = _existing(folder, plan, code, drops)
    if found is not None:
        return found
    with tempfile.TemporaryDirectory(
        prefix=SCRATCH, dir=traces, ignore_cleanup_errors=True
    ) as scratch:
        result = _simulate(replace(plan, trace=scratch))
        made = run_folder(scratch, plan.run_name)
        made.mkdir(exist_ok=True)
        if result.broken == [RAISED]:
            for path in made.glob("*.parquet"):
                path.unlink()
        files = _files(made)
        result = result._replace(octets=sum(size for size, _ in files.values()))
        _write_manifest(made, plan.replay, plan.detail, code, files, result)
        _publish(made, folder, lambda: _existing(folder, plan, code, drops) is not None)
    return result


def _simulate(plan: Plan) -> TaskResult:
    from unisono.laws import sentence

    names = (plan.run_name, plan.protocol, plan.seed, plan.nodes)
    blank = TaskResult(*names, [], "", plan.replay, 0, 0, 0, 0.0, 0.0, 0, False, False)
    started = time.perf_counter()
    try:
        outcome = run(plan, time.perf_counter)
    except (OSError, BadTrace, MemoryError):
        # A fault of the machine, not of the seed: the task fails and may be retried.
        raise
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())[:WHY_MAX]
        return blank._replace(broken=[RAISED], why=why, wall_s=time.perf_counter() - started)
    return blank._replace(
        broken=list(outcome.broken),
        why=sentence(outcome.violations[0])[:WHY_MAX] if outcome.violations else "",
        sent=outcome.sent,
        delivered=outcome.delivered,
        steps=outcome.steps,
        virtual_s=outcome.virtual_s,
        wall_s=outcome.wall_s,
    )


# -- the folder ----------------------------------------------------------------------------------


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and checksum of each trace file."""
    found = {}
    for path in sorted(folder.glob("*.parquet")):
        content = path.read_bytes()
        found[path.name] = (len(content), zlib.crc32(content))
    return found


def _write_manifest(
    folder: Path,
    replay: str,
    detail: bool,
    code: str,
    files: dict[str, tuple[int, int]],
    result: TaskResult,
) -> None:
    """And the replay command, beside the trace files."""
    (folder / REPLAY).write_text(replay + "\n")
    manifest = {"replay": replay, "detail": detail, "code": code, "files": files}
    manifest["told"] = result._asdict()
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")


def _existing(folder: Path, plan: Plan, code: str, drops: bool) -> TaskResult | None:
    """The result of an existing run that is complete, of this plan and of this code."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        expected = {"replay": plan.replay, "detail": plan.detail, "code": code}
        if any(manifest[name] != value for name, value in expected.items()):
            return None
        result = TaskResult(**manifest["told"])._replace(there=True)
        if result.broken == [RAISED]:
            # It may have been a fault of the machine after all.
            return None
        if result.dropped:
            return result if drops else None
        recorded = {name: tuple(each) for name, each in manifest["files"].items()}
        return result if recorded and _files(folder) == recorded else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _publish(made: Path, folder: Path, is_same: Callable[[], bool]) -> None:
    """Rename into place, instead of anything but the same complete run."""
    for attempt in range(RENAMES_MAX):
        try:
            made.rename(folder)
            return
        except OSError as error:
            if error.errno not in IN_THE_WAY:
                raise
        if is_same():
            # Another attempt of this task was faster, and left the same bytes.
            return
        with suppress(FileNotFoundError):
            folder.rename(made.parent / f"old-{attempt}")
    raise OSError(errno.EBUSY, "another process keeps replacing it", str(folder))


def drop(traces: Path, name: str) -> None:
    """Delete the trace of a run that kept all laws; its manifest stays."""
    folder = run_folder(traces, name)
    manifest = json.loads((folder / MANIFEST).read_text())
    result = TaskResult(**manifest["told"])._replace(dropped=True)
    with tempfile.TemporaryDirectory(
        prefix=SCRATCH, dir=traces, ignore_cleanup_errors=True
    ) as scratch:
        made = run_folder(scratch, name)
        made.mkdir()
        _write_manifest(made, manifest["replay"], manifest["detail"], manifest["code"], {}, result)
        _publish(made, folder, lambda: False)


def clean(traces: Path) -> None:
    """Remove the scratch directories of killed sweeps."""
    for path in traces.glob(f"{SCRATCH}*"):
        shutil.rmtree(path, ignore_errors=True)
