"""A test's hold on a process of its own: words in, lines of JSON out."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[1]


class Hold:
    """A module of ours that runs by itself. Leaving the `with` ends it, whatever happened."""

    def __init__(
        self, name: str, module: str, orders: Mapping[str, Any], before: Sequence[str] = ()
    ) -> None:
        self.name = name
        self.told: list[dict[str, Any]] = []
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.process = subprocess.Popen(
            [*before, sys.executable, "-m", module, json.dumps(orders)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.kill()
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def order(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n".encode())
        self.process.stdin.flush()

    def of(self, kind: str) -> list[dict[str, Any]]:
        """What it told of this kind, so far."""
        with contextlib.suppress(queue.Empty):
            while True:
                self.told.append(json.loads(self._lines.get_nowait()))
        return [each for each in self.told if each["kind"] == kind]
