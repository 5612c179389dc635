"""Help is quick, and asks for nothing that is not installed."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.cli.running import unisono

COMMANDS = ("demo", "cat", "daemon", "feed", "sim", "verify", "pipeline", "bench")


def test_help_names_every_command() -> None:
    found = unisono("--help")
    assert found.returncode == 0
    assert not found.stderr
    for command in COMMANDS:
        assert command in found.stdout


def test_without_a_command_help_is_shown() -> None:
    assert unisono().stdout == unisono("--help").stdout


def test_help_is_quick() -> None:
    took = []
    for _ in range(3):
        began = time.perf_counter()
        unisono("--help")
        took.append(time.perf_counter() - began)
    # 0.16 s on a quiet machine; those that run tests are busy.
    assert min(took) < 0.8


def test_help_imports_neither_spark_nor_arrow() -> None:
    program = (
        "import sys; from unisono.cli import run; run(['--help']); run(['cat', '--help'])\n"
        "print(sorted({'pyspark', 'pyarrow', 'asyncio', 'pandas'} & sys.modules.keys()))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert found.stdout.decode().splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_and_json(command: str) -> None:
    found = unisono(command, "--help")
    assert found.returncode == 0
    assert "--json" in found.stdout


def test_the_version_is_that_of_the_package() -> None:
    from unisono import __version__

    assert unisono("--version").stdout == f"unisono {__version__}\n"
