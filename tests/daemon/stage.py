"""Daemons and clients on real sockets of this machine, in one process or in their own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import unisono
from tests.cli.running import ENVIRONMENT, ROOT, UNISONO
from tests.net.ear import free_port
from tests.waiting import LIMIT_S, eventually, until
from unisono.daemon import Daemon
from unisono.daemon.settings import PROTOCOL
from unisono.group import Group

RING = os.environ.get("UNISONO_RING") or PROTOCOL
"""The protocol of the daemons under test."""


def told(story: Callable[[Path], Coroutine[Any, Any, None]]) -> None:
    """Tell it with a directory for sockets: a short one, since their paths are bounded."""
    with tempfile.TemporaryDirectory(prefix="uni") as place:
        asyncio.run(asyncio.wait_for(story(Path(place)), LIMIT_S))


def role(at: int) -> dict[str, int]:
    """The options of the n-th daemon: who begins, or patience with a busy machine."""
    return {"master": int(at == 0)} if RING == "mtp" else {"tries": 60}


def daemon(place: Path, at: int, port: int, **options: Any) -> Daemon:
    keywords = {
        **role(at),
        "join_s": LIMIT_S,
        "name": f"d{at}",
        "port": port,
        "protocol": RING,
        **options,
    }
    return Daemon(f"unix:{place}/d{at}", "ring", **keywords)


@asynccontextmanager
async def daemons(place: Path, count: int = 1, **options: Any) -> AsyncIterator[list[Daemon]]:
    """So many daemons that know each other."""
    port = free_port()
    async with contextlib.AsyncExitStack() as stack:
        found = []
        for at in range(count):
            made = daemon(place, at, port, **options)
            found.append(await stack.enter_async_context(made))
        await eventually(lambda: all(len(each.ring.members) == count for each in found))
        yield found


def joining(place: Path, name: str, group: str = "g", at: int = 0, **options: Any) -> Any:
    options.setdefault("join_s", LIMIT_S)
    options.setdefault("rejoin", False)
    return unisono.join(group, daemon=f"{place}/d{at}", name=name, **options)


async def heard(group: Group, count: int) -> list[bytes]:
    """The next so many messages."""
    return [message.payload for message in await messages(group, count)]


async def messages(group: Group, count: int) -> list[unisono.Message]:
    found: list[unisono.Message] = []
    while len(found) < count:
        item = await anext(group)
        if isinstance(item, unisono.Message):
            found.append(item)
    return found


async def of_size(group: Group, count: int) -> unisono.View:
    async for item in group:
        if isinstance(item, unisono.View) and len(item.members) == count:
            return item
    raise AssertionError("the stream ended")


async def stopped(group: Group) -> str:
    """Why the stream ends, whatever comes before."""
    try:
        async for _ in group:
            pass
    except unisono.Stopped as stop:
        return stop.reason
    raise AssertionError("a clean end")


class Teller:
    """A process that tells JSON, an object a line."""

    def __init__(self, *command: str) -> None:
        self.told: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=ENVIRONMENT
        )
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def of(self, kind: str) -> list[dict[str, Any]]:
        with contextlib.suppress(queue.Empty):
            while True:
                self.told.append(json.loads(self._lines.get_nowait()))
        return [each for each in self.told if each["kind"] == kind]

    def wait(self, kind: str) -> dict[str, Any]:
        until(
            lambda: self.of(kind) or self.process.poll() is not None,
            kind,
            lambda: str(self.told[-3:]),
        )
        assert self.of(kind), (self.process.returncode, self.told[-3:])
        return self.of(kind)[-1]

    def order(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n".encode())
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def patient(place: Path) -> str:
    """A file that lets the ring be slow to form."""
    file = place / "ring.toml"
    file.write_text(f'[group]\ngroup = "ring"\njoin_s = {LIMIT_S}\n')
    return str(file)


@contextlib.contextmanager
def daemon_process(place: Path, at: int, port: int, *more: str) -> Iterator[Teller]:
    command = [*UNISONO, "daemon", "--listen", f"unix:{place}/d{at}", "--ring", "ring", "--json"]
    command += ["--config", patient(place)]
    command += ["--name", f"d{at}", "--port", str(port), "--protocol", RING, *more]
    for name, value in role(at).items():
        command += ["--option", f"{name}={value}"]
    teller = Teller(*command)
    try:
        teller.wait("listening")
        yield teller
    finally:
        teller.close()


def python(module: str, **orders: Any) -> Teller:
    return Teller(sys.executable, "-m", module, json.dumps(orders))
