"""Output that cannot be written is never taken for a broken law, nor is a mistake of our own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.harness import ENVIRONMENT, UNISONO
from tests.net.recorder import free_port
from tests.waiting import LIMIT_S
from unisono import cli

FULL = Path("/dev/full")
COMMANDS = ("sim --json --messages 5", "sim --messages 5", "cat g --linger 0")


def through_a_shell(line: str) -> tuple[int, list[str]]:
    if line.startswith("cat"):
        # A group of its own: tests run side by side.
        line += f" --port {free_port()}"
    found = subprocess.run(
        ["sh", "-c", f'exec "$@" {line}', "sh", *UNISONO],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=ENVIRONMENT,
        check=False,
    )
    return found.returncode, found.stderr.splitlines()


@pytest.mark.real
@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_device_is_reported_in_one_line(command: str) -> None:
    code, lines = through_a_shell(f"{command} >/dev/full")
    assert lines == ["unisono: cannot write the output: No space left on device"]
    assert code == cli.BAD_INPUT


@pytest.mark.parametrize("command", COMMANDS)
def test_a_closed_output_is_refused_in_one_line(command: str) -> None:
    code, lines = through_a_shell(f"{command} >&-")
    assert len(lines) == 1 and "standard output is closed" in lines[0]
    assert code == cli.BAD_INPUT


@pytest.mark.real
@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_other_closed_descriptors_do_no_harm(closed: str) -> None:
    command = "cat g --linger 0 --settle 0"
    assert through_a_shell(f"{command} {closed}") == (cli.OK, [])


def test_an_internal_error_is_reported_as_such(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def planted(*_: object) -> int:
        raise LookupError("planted")

    monkeypatch.setattr("unisono.cli.verify.verify", planted)
    assert cli.run(["verify", "."]) == cli.INTERNAL == 70
    assert "LookupError: planted" in capsys.readouterr().err


def test_a_file_that_cannot_be_had_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def denied(*_: object) -> int:
        raise PermissionError(13, "Permission denied", "there")

    monkeypatch.setattr("unisono.cli.verify.verify", denied)
    assert cli.run(["verify", "."]) == cli.BAD_INPUT
    assert capsys.readouterr().err == "unisono: there: Permission denied\n"
