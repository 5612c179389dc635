"""Who may connect to a daemon, and what happens when its descriptors run out."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import Counter
from pathlib import Path

import pytest

from tests.waiting import eventually
from unisono.client.listen_address import Tcp, Unix
from unisono.daemon import listening
from unisono.daemon.listening import Listeners


class Greeter(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello")
        transport.close()


async def greeted(path: Path) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    found = await reader.read()
    writer.close()
    return found


@pytest.mark.parametrize(
    ("user", "mode", "found"), [(0, 0o600, b"hello"), (1, 0o600, b""), (1, 0o666, b"hello")]
)
async def test_other_users_connect_only_if_the_mode_allows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, mode: int, found: bytes
) -> None:
    mine = os.getuid()
    monkeypatch.setattr(listening, "user_of", lambda peer: mine + 77_000 * user)
    counts = Counter[str]()
    listeners = Listeners(counts)
    await listeners.open([Unix(f"{tmp_path}/d")], Greeter, mode)
    assert await greeted(tmp_path / "d") == found
    assert counts["drop.user"] == (not found)
    listeners.close()
    assert not (tmp_path / "d").exists()


def test_the_system_says_who_connects() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert listening.user_of(one) == os.getuid()


async def test_without_descriptors_it_waits_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listening, "EXHAUSTED_S", 0.05)
    counts = Counter[str]()
    listeners = Listeners(counts)
    await listeners.open([Unix(f"{tmp_path}/d"), Tcp("127.0.0.1", 0)], Greeter, 0o600)
    accept, calls = socket.socket.accept, 0

    def failing(listener: socket.socket) -> tuple[socket.socket, object]:
        nonlocal calls
        calls += 1
        if calls <= 3:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", failing)
    waiting = asyncio.create_task(greeted(tmp_path / "d"))
    await eventually(lambda: counts["exhausted"] == 3)
    assert await waiting == b"hello"
    assert calls <= 6, "one try each time"
    assert caplog.messages == ["cannot accept clients for now: Too many open files"]
    listeners.close()
