"""Processes under test: lines in, lines of JSON out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.waiting import LIMIT_S, until
from unisono.processes import Process

ROOT = Path(__file__).resolve().parents[1]
UNISONO = (sys.executable, "-m", "unisono")
ENVIRONMENT = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "PYTHONUNBUFFERED": ""}


def output_of(*words: str, cwd: Path = ROOT, within_s: float = LIMIT_S, **environment: str) -> str:
    """The output of a Python program that ends well: `-c` and a program, `-m` and a module, or a
    file."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env=ENVIRONMENT | environment,
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout


class Child(Process):
    """A process under test. Leaving the `with` kills it; pytest shows its standard error."""

    def __init__(self, name: str, *command: str) -> None:
        super().__init__(name, command, ENVIRONMENT, ROOT)

    def __exit__(self, *_: object) -> None:
        super().__exit__(*_)
        print(self.errors, end="", file=sys.stderr)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Its objects of this kind, so far."""
        return [each for each in self.objects if each["kind"] == kind]

    def expect(self, kind: str) -> dict[str, Any]:
        """The last object of this kind, as soon as there is one."""
        until(
            lambda: self.of(kind) or not self.is_alive,
            f"{kind} of {self.name}",
            lambda: str(self.objects[-3:]),
        )
        if not self.of(kind):
            self.wait(LIMIT_S)
        assert self.of(kind), (self.code, self.objects[-3:])
        return self.of(kind)[-1]


class Module(Child):
    """A module of the tests that runs by itself, with its orders as JSON."""

    def __init__(
        self, name: str, module: str, orders: Mapping[str, Any], before: Sequence[str] = ()
    ) -> None:
        super().__init__(name, *before, sys.executable, "-m", module, json.dumps(orders))


class Cat(Child):
    """A `unisono cat --json`."""

    def __init__(self, *arguments: str, before: Sequence[str] = ()) -> None:
        super().__init__("cat", *before, *UNISONO, "cat", *arguments, "--json")

    def ended(self) -> int:
        """Its exit code, once it has ended by itself."""
        return self.wait(LIMIT_S)

    @property
    def messages(self) -> list[tuple[str, int, str]]:
        return [(each["sender"], each["number"], each["text"]) for each in self.of("message")]

    @property
    def view(self) -> list[str]:
        views = self.of("view")
        return sorted(views[-1]["members"]) if views else []
