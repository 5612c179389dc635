"""The real command in processes of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.harness import ENVIRONMENT, UNISONO, Cat
from tests.waiting import LIMIT_S, until
from unisono.cli import run


def unisono(
    *arguments: str, cwd: Path | None = None, stdin: bytes = b""
) -> subprocess.CompletedProcess[str]:
    found = subprocess.run(
        [*UNISONO, *arguments],
        input=stdin,
        capture_output=True,
        cwd=cwd,
        timeout=LIMIT_S,
        env=ENVIRONMENT,
        check=False,
    )
    return subprocess.CompletedProcess(
        found.args, found.returncode, found.stdout.decode(), found.stderr.decode()
    )


def here(capfd: pytest.CaptureFixture[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in this process: of many, a Python for each would take most of the time."""
    code = run(arguments)
    told = capfd.readouterr()
    return subprocess.CompletedProcess(arguments, code, told.out, told.err)


def refused(found: subprocess.CompletedProcess[str], *words: str, code: int = 2) -> str:
    """It was refused with one line on standard error that has these words in it."""
    lines = found.stderr.splitlines()
    assert found.returncode == code, (found.returncode, found.stderr)
    assert len(lines) == 1, found.stderr
    assert lines[0].startswith("unisono: ")
    assert not found.stdout
    for word in words:
        assert word in lines[0]
    return lines[0]


def children_of(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def heeding_ctrl_c() -> None:
    """In a child before it begins: shells let background jobs ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def ends_with_its_members(words: Sequence[str], cwd: Path, sign: int, code: int) -> None:
    """The command with two members, sent a signal: it ends with this code, and so do they."""
    command = subprocess.Popen(
        [*UNISONO, *words],
        cwd=cwd,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=heeding_ctrl_c,
    )
    members: list[int] = []
    try:
        until(lambda: len(children_of(command.pid)) == 2, what="two members")
        members = children_of(command.pid)
        os.kill(command.pid, sign)
        assert command.wait(LIMIT_S) == code
        until(lambda: not any(map(is_alive, members)), what="the members' end")
    finally:
        for pid in (command.pid, *members):
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        command.wait(10)


@contextlib.contextmanager
def cats(names: str, *arguments: str) -> Iterator[dict[str, Cat]]:
    """A cat for each name, all in one view."""
    with contextlib.ExitStack() as stack:
        found = {name: stack.enter_context(Cat(*arguments, "--name", name)) for name in names}
        until(
            lambda: all(each.view == sorted(names) for each in found.values()),
            what="everyone in one view",
        )
        yield found
