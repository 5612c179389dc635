"""Processes of a run: started where their seat is, and ended whatever happens."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from unisono.bench.system import Seat
from unisono.errors import UnisonoError

PATH: Final = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
"""Where servers and `ip` lie, also for those whose own path leaves them out."""
END_S: Final = 3.0
"""What a process is given to end before it is killed."""
PR_SET_PDEATHSIG: Final = 1
TICKS_S: Final = os.sysconf("SC_CLK_TCK")


class Trouble(UnisonoError):
    """A measurement went wrong; the text says what happened."""


def complaints(scratch: Path, name: str, seat: Seat) -> Path:
    """The file that a process of this name writes its standard error to."""
    return scratch / f"{name}-{seat.index}.err"


def spawned(
    seat: Seat,
    command: Sequence[str],
    scratch: Path,
    name: str = "member",
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Start a command on a seat, with pipes of text to it and from it.

    Its standard error goes to a file, so that nobody waits for a reader; when it dies the last
    line of that file is told.
    """
    with complaints(scratch, name, seat).open("w") as errors:
        return subprocess.Popen(
            [*seat.prefix, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "PATH": PATH, **(environment or {})},
            # Ctrl-C is for the command, which then ends them itself.
            start_new_session=True,
            preexec_fn=_die_with_parent(),
        )


def _die_with_parent() -> Callable[[], None] | None:
    """Let the kernel end the process when the bench is killed, and cannot."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl  # found here: the child should do next to nothing
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def ended_with(
    processes: Iterable[subprocess.Popen[str]] = (),
) -> Iterator[list[subprocess.Popen[str]]]:
    """A list that is filled meanwhile; all in it are ended afterwards."""
    kept = list(processes)
    try:
        yield kept
    finally:
        end(kept)


def end(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Ask all to end, wait a little, and kill who has not."""
    for process in processes:
        if process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                process.stdin.close()
        if process.poll() is None:
            process.terminate()
    for process in processes:
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def cpu_ns(pid: int) -> int:
    """Time of processors that a process has had; none when it is gone."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1_000_000_000 // TICKS_S
    return 0


def rss_peak_kb(pid: int | str = "self") -> int:
    """The most memory that a process held; none when it is gone or nobody knows."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0
