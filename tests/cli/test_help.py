"""Help is quick, and asks for nothing that is not installed."""

from __future__ import annotations

import subprocess
import sys

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
    """As quick as what it imports: neither Spark nor Arrow nor asyncio, and of ours only itself."""
    program = (
        "import sys; from unisono.cli import run; run(['--help']); run(['cat', '--help'])\n"
        "print(sorted({'pyspark', 'pyarrow', 'asyncio', 'pandas'} & sys.modules.keys()))\n"
        "print(len([name for name in sys.modules if name.startswith('unisono')]))\n"
        "print(len(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    heavy, ours, everything = found.stdout.decode().splitlines()[-3:]
    assert heavy == "[]"
    assert int(ours) < 20 and int(everything) < 600


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_and_json(command: str) -> None:
    found = unisono(command, "--help")
    assert found.returncode == 0
    assert "--json" in found.stdout


def test_the_version_is_that_of_the_package() -> None:
    from unisono import __version__

    assert unisono("--version").stdout == f"unisono {__version__}\n"
