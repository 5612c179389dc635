"""Daemons and clients on real sockets of this machine, in one process or in their own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import unisono
from tests.harness import UNISONO, Child
from tests.net.recorder import free_port
from tests.waiting import LIMIT_S, eventually
from unisono.core import DEFAULT_PROTOCOL as PROTOCOL
from unisono.daemon import Daemon
from unisono.group import Group

RING = os.environ.get("UNISONO_RING") or PROTOCOL
"""The protocol of the daemons under test."""


def role(at: int) -> dict[str, int]:
    """The options of the n-th daemon: its role, or patience with a busy machine."""
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


def patient(place: Path) -> str:
    """A file that lets the ring be slow to form."""
    file = place / "ring.toml"
    file.write_text(f'[group]\ngroup = "ring"\njoin_s = {LIMIT_S}\n')
    return str(file)


@contextlib.contextmanager
def daemon_process(place: Path, at: int, port: int, *more: str) -> Iterator[Child]:
    command = [*UNISONO, "daemon", "--listen", f"unix:{place}/d{at}", "--ring", "ring", "--json"]
    command += ["--config", patient(place)]
    command += ["--name", f"d{at}", "--port", str(port), "--protocol", RING]
    for name, value in role(at).items():
        command += ["--option", f"{name}={value}"]
    command += more
    with Child(f"d{at}", *command) as process:
        process.expect("listening")
        yield process
