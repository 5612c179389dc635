"""Processes of a run: started where their seat is, and ended whatever happens."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from unisono.bench.system import Seat
from unisono.errors import UnisonoError

PATH: Final = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
"""Where servers and `ip` lie, also for those whose own path leaves them out."""
END_S: Final = 3.0
"""What a process is given to end before it is killed."""
ENDING: Final = (signal.SIGINT, signal.SIGTERM)
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
    with complaints(scratch, name, seat).open("w") as errors, _undisturbed():
        return subprocess.Popen(
            [*seat.prefix, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "PATH": PATH, **(environment or {})},
            # Ctrl-C is for the command, which then ends them itself.
            start_new_session=True,
            preexec_fn=_as_a_child(),
        )


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """A signal to end waits: between fork and exec the exception it raises would be lost."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _as_a_child() -> Callable[[], None]:
    """What the child does before it becomes the command: next to nothing."""
    # Let the kernel end it when the bench is killed, and cannot.
    prctl = ctypes.CDLL(None).prctl if sys.platform.startswith("linux") else None

    def begin() -> None:
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)

    return begin


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


class Voice:
    """What a process says: a JSON object a line, waited for no longer than one wants."""

    def __init__(self, process: subprocess.Popen[str], what: str, errors: Path) -> None:
        self.process = process
        self.what = what
        self._errors = errors
        self._pending = b""

    def order(self, line: str) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except (OSError, ValueError):
            raise self._gone() from None

    def hear(self) -> dict[str, Any] | None:
        """A whole line if there is one, without waiting; trouble that is told is raised."""
        line, newline, rest = self._pending.partition(b"\n")
        if not newline:
            return None
        self._pending = rest
        told: dict[str, Any] = json.loads(line)
        if "trouble" in told:
            raise Trouble(f"{self.what}: {told['trouble']}")
        return told

    def fileno(self) -> int:
        # Past the text layer, whose own buffer would hide from `select` what has come already.
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def read(self) -> None:
        """What has come."""
        came = os.read(self.fileno(), 1 << 16)
        if not came:
            raise self._gone()
        self._pending += came

    def _gone(self) -> Trouble:
        """How it ended, and the last it complained of; or the trouble that it told before."""
        while came := os.read(self.fileno(), 1 << 16):
            self._pending += came
        try:
            while self.hear() is not None:
                pass
        except Trouble as trouble:
            return trouble
        try:
            code: int | str = self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            code = "?"
        said = self._errors.read_text().split("\n") if self._errors.exists() else []
        last = next((line.strip() for line in reversed(said) if line.strip()), "")
        return Trouble(f"{self.what} ended with code {code}" + (f": {last}" if last else ""))


def answers(voices: Sequence[Voice], within_s: float) -> list[dict[str, Any]]:
    """One of each. The first that has trouble, or is gone, ends the waiting for all."""
    end_s = time.monotonic() + within_s
    found: dict[Voice, dict[str, Any]] = {}
    while True:
        for voice in voices:
            if voice not in found and (told := voice.hear()) is not None:
                found[voice] = told
        waited_for = [voice for voice in voices if voice not in found]
        if not waited_for:
            return [found[voice] for voice in voices]
        left_s = end_s - time.monotonic()
        ready = select.select(voices, [], [], left_s)[0] if left_s > 0 else []
        if not ready:
            raise Trouble(f"{waited_for[0].what}: no answer within {within_s:g} s")
        for voice in ready:
            voice.read()


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
