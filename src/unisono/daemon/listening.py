"""The doors of a daemon: a path that no other daemon holds, or a port of the loopback interface."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Callable, Sequence

from unisono.client.listen_address import Door, Tcp, Unix
from unisono.errors import Misuse

BACKLOG = 1024
PROBE_S = 1.0


class Listeners:
    """All of them. Closing takes the paths away that it made."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self._paths: list[tuple[str, int]] = []
        self.at: tuple[Door, ...] = ()

    async def open(
        self, doors: Sequence[Door], made: Callable[[], asyncio.Protocol], mode: int
    ) -> None:
        try:
            for door in doors:
                found = await (self._unix if isinstance(door, Unix) else self._tcp)(
                    door,  # type: ignore[arg-type]
                    made,
                    mode,
                )
                self.at = (*self.at, found)
        except BaseException:
            self.close()
            raise

    async def _unix(self, door: Unix, made: Callable[[], asyncio.Protocol], mode: int) -> Door:
        check_free(door)
        loop = asyncio.get_running_loop()
        before = os.umask(0o777 & ~mode)
        try:
            server = await loop.create_unix_server(made, door.path, backlog=BACKLOG)
        except OSError as error:
            raise Misuse(f"cannot listen at {door}: {error.strerror or error}") from None
        finally:
            os.umask(before)
        self._servers.append(server)
        self._paths.append((door.path, os.stat(door.path).st_ino))
        return door

    async def _tcp(self, door: Tcp, made: Callable[[], asyncio.Protocol], mode: int) -> Door:
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(made, door.host, door.port, backlog=BACKLOG)
        except OSError as error:
            raise Misuse(f"cannot listen at {door}: {os.strerror(error.errno or 0)}") from None
        self._servers.append(server)
        return Tcp(door.host, server.sockets[0].getsockname()[1])

    def close(self) -> None:
        for server in self._servers:
            server.close()
        for path, number in self._paths:
            with contextlib.suppress(OSError):
                if os.stat(path).st_ino == number:
                    os.unlink(path)
        self._servers.clear()
        self._paths.clear()


def check_free(door: Door) -> None:
    """A path that a dead daemon left is taken over; one that answers is not."""
    if isinstance(door, Tcp):
        return
    folder = os.path.dirname(door.path)
    if not os.path.isdir(folder):
        raise Misuse(f"cannot listen at {door}: there is no directory {folder}")
    try:
        kind = os.stat(door.path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise Misuse(f"cannot listen at {door}: {error.strerror}") from None
    if not stat.S_ISSOCK(kind):
        raise Misuse(f"cannot listen at {door}: there is a file that is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_S)
        try:
            probe.connect(door.path)
        except ConnectionRefusedError:
            return
        except OSError as error:
            raise Misuse(f"cannot listen at {door}: {error.strerror or error}") from None
    raise Misuse(f"cannot listen at {door}: a daemon listens there already")
