"""Child processes that exchange lines with us: started, awaited, measured and ended in one way.

A `Processes` owns what it starts: leaving its `with` ends every child, and if this process is
killed the kernel kills those that its main thread started. The demo, the bench and the tests all
start their processes here.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from unisono.errors import UnisonoError

PATH: Final = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
"""Includes the directories of servers and `ip`, which the PATH of a user may lack."""
END_S: Final = 3.0
"""A child that has not ended so long after SIGTERM is killed."""
POLL_S: Final = 0.02
"""The longest wait between two looks at a condition: not every change comes with a line."""
ERRORS_BYTES_MAX: Final = 1 << 16
ENDING: Final = (signal.SIGINT, signal.SIGTERM)
PR_SET_PDEATHSIG: Final = 1
TICKS_S: Final = os.sysconf("SC_CLK_TCK")

_CHANGED: Final = threading.Condition()
"""Notified when any child wrote a line or closed its output."""


class RunFailed(UnisonoError):
    """A process, or a run of several, failed; the text says what happened."""


class Process:
    """One child, leader of a session of its own. Leaving its `with` kills it.

    A thread reads its output, so the child never blocks on a full pipe. Standard error goes to a
    file; its last line explains an unexpected end.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.name = name
        self.lines: list[bytes] = []
        """All output so far, a line each."""
        self._objects: list[dict[str, Any]] = []
        self._answered_count = 0
        self._is_closed = False
        # Unbuffered, and read by `pread` alone: the child writes at the same offset.
        self._errors = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        with _signals_held():
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env={**os.environ, "PATH": PATH, **(environment or {})},
                cwd=cwd,
                # Ctrl-C is for us; we then end the children.
                start_new_session=True,
                preexec_fn=_prepare_child(),
            )
            # Started with signals held, it never receives one.
            self._reader = threading.Thread(target=self._read, daemon=True)
            self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith(b"\n"):  # The last may have been cut off by a kill.
                with _CHANGED:
                    self.lines.append(line)
                    _CHANGED.notify_all()
        with _CHANGED:
            self._is_closed = True
            _CHANGED.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    # -- talking -----------------------------------------------------------------------------------

    def write(self, *lines: str) -> None:
        """Write these lines to its input; `RunFailed` if it has ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("".join(f"{line}\n" for line in lines).encode())
            self._process.stdin.flush()
        except (OSError, ValueError):
            raise self.failure() from None

    def close_input(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    @property
    def objects(self) -> list[dict[str, Any]]:
        """All output so far, each line a JSON object."""
        for line in self.lines[len(self._objects) :]:
            try:
                self._objects.append(json.loads(line))
            except ValueError:
                raise RunFailed(f"{self.name}: not a line of JSON: {line!r}") from None
        return self._objects

    def next_answer(self) -> dict[str, Any] | None:
        """The next object not returned yet; None if there is none yet.

        `RunFailed` if it reports trouble, or has ended without an answer.
        """
        is_closed = self._is_closed  # Read before the output: no line comes after it.
        if len(self.objects) == self._answered_count:
            if is_closed:
                raise self.failure()
            return None
        answer = self.objects[self._answered_count]
        self._answered_count += 1
        if "trouble" in answer:
            raise RunFailed(f"{self.name}: {answer['trouble']}")
        return answer

    @property
    def errors(self) -> str:
        """What it wrote to standard error, the last 64 KiB."""
        size = os.fstat(self._errors.fileno()).st_size
        start = max(0, size - ERRORS_BYTES_MAX)
        return os.pread(self._errors.fileno(), ERRORS_BYTES_MAX, start).decode(errors="replace")

    # -- its end -----------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def code(self) -> int | None:
        """Its exit code, negative if a signal ended it; None while it runs."""
        return self._process.poll()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self, within_s: float) -> int:
        """Its exit code, with all of its output read."""
        try:
            code = self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise RunFailed(f"{self.name} does not end within {within_s:g} s") from None
        self._reader.join(END_S)
        return code

    def kill(self) -> None:
        """SIGKILL to it and to its own children, and wait for its end."""
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self.close_input()
        self._process.wait()
        self._reader.join(END_S)
        if self._is_closed and self._process.stdout is not None:
            self._process.stdout.close()

    def failure(self) -> RunFailed:
        """Why it ended: the trouble it reported, or its exit code and last error line."""
        try:
            code = self.wait(END_S)
        except RunFailed as failed:
            return failed
        with contextlib.suppress(RunFailed):  # A server's output need not be JSON.
            for each in self.objects:
                if "trouble" in each:
                    return RunFailed(f"{self.name}: {each['trouble']}")
        last = next((line for line in reversed(self.errors.splitlines()) if line.strip()), "")
        return RunFailed(f"{self.name} ended with code {code}" + (last and f": {last.strip()}"))

    def cpu_ns(self) -> int:
        """Processor time it has used; 0 when it is gone."""
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) * 1_000_000_000 // TICKS_S
        return 0


class Processes:
    """Children with one owner: leaving the `with` ends them all, whatever happened."""

    def __init__(self) -> None:
        self._started: list[Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def __iter__(self) -> Iterator[Process]:
        return iter(self._started)

    def start(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Process:
        """Start a command; `environment` is added to ours, `name` is for error messages."""
        process = Process(name, command, environment, cwd)
        self._started.append(process)
        return process

    def end(self, within_s: float = END_S) -> None:
        """Ask all to end, wait a little, then kill those left."""
        for process in self._started:
            process.close_input()
            if process.is_alive:
                process.signal(signal.SIGTERM)
        end_s = time.monotonic() + within_s
        for process in self._started:
            with contextlib.suppress(RunFailed):
                process.wait(max(0.0, end_s - time.monotonic()))
            process.kill()


def wait_for(done: Callable[[], object], within_s: float) -> bool:
    """Wait until `done()` is true; looks again whenever a child wrote a line or ended."""
    end_s = time.monotonic() + within_s
    while not done():
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            return False
        with _CHANGED:
            _CHANGED.wait(min(left_s, POLL_S))
    return True


def answers(processes: Sequence[Process], within_s: float) -> list[dict[str, Any]]:
    """The next answer of each. The first that reports trouble, or ends, fails the whole call."""
    found: dict[Process, dict[str, Any]] = {}

    def answered() -> bool:
        for process in processes:
            if process not in found and (answer := process.next_answer()) is not None:
                found[process] = answer
        return len(found) == len(processes)

    if not wait_for(answered, within_s):
        silent = next(process for process in processes if process not in found)
        raise RunFailed(f"{silent.name}: no answer within {within_s:g} s")
    return [found[process] for process in processes]


def rss_peak_kb(pid: int | str = "self") -> int:
    """Peak memory of a process; 0 when it is gone or the system does not tell."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Signals that end us wait: an exception between fork and exec would lose the child."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _prepare_child() -> Callable[[], None]:
    """What the child does between fork and exec."""
    # The kernel kills a child with the thread that started it: only the main one lives to the end.
    from_main = threading.current_thread() is threading.main_thread()
    on_linux = sys.platform.startswith("linux")
    prctl = ctypes.CDLL(None).prctl if on_linux and from_main else None

    def prepare() -> None:
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)

    return prepare
