"""The listeners of a daemon: Unix paths that no other daemon holds, or loopback ports."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Callable, Sequence

from unisono.client.listen_address import ListenAddress, Tcp, Unix
from unisono.errors import Misuse

BACKLOG = 1024
PROBE_S = 1.0


class Listeners:
    """Closing removes the paths that were created."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self._paths: list[tuple[str, int]] = []
        self.at: tuple[ListenAddress, ...] = ()

    async def open(
        self, addresses: Sequence[ListenAddress], made: Callable[[], asyncio.Protocol], mode: int
    ) -> None:
        try:
            for address in addresses:
                found = await (self._unix if isinstance(address, Unix) else self._tcp)(
                    address,  # type: ignore[arg-type]
                    made,
                    mode,
                )
                self.at = (*self.at, found)
        except BaseException:
            self.close()
            raise

    async def _unix(
        self, address: Unix, made: Callable[[], asyncio.Protocol], mode: int
    ) -> ListenAddress:
        check_free(address)
        loop = asyncio.get_running_loop()
        before = os.umask(0o777 & ~mode)
        try:
            server = await loop.create_unix_server(made, address.path, backlog=BACKLOG)
        except OSError as error:
            raise Misuse(f"cannot listen at {address}: {error.strerror or error}") from None
        finally:
            os.umask(before)
        self._servers.append(server)
        self._paths.append((address.path, os.stat(address.path).st_ino))
        return address

    async def _tcp(
        self, address: Tcp, made: Callable[[], asyncio.Protocol], mode: int
    ) -> ListenAddress:
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(made, address.host, address.port, backlog=BACKLOG)
        except OSError as error:
            raise Misuse(f"cannot listen at {address}: {os.strerror(error.errno or 0)}") from None
        self._servers.append(server)
        return Tcp(address.host, server.sockets[0].getsockname()[1])

    def close(self) -> None:
        for server in self._servers:
            server.close()
        for path, number in self._paths:
            with contextlib.suppress(OSError):
                if os.stat(path).st_ino == number:
                    os.unlink(path)
        self._servers.clear()
        self._paths.clear()


def check_free(address: ListenAddress) -> None:
    """`Misuse` if the path cannot be used. The socket of a dead daemon is taken over."""
    if isinstance(address, Tcp):
        return
    folder = os.path.dirname(address.path)
    if not os.path.isdir(folder):
        raise Misuse(f"cannot listen at {address}: there is no directory {folder}")
    try:
        kind = os.stat(address.path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise Misuse(f"cannot listen at {address}: {error.strerror}") from None
    if not stat.S_ISSOCK(kind):
        raise Misuse(f"cannot listen at {address}: the file is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_S)
        try:
            probe.connect(address.path)
        except ConnectionRefusedError:
            return
        except OSError as error:
            raise Misuse(f"cannot listen at {address}: {error.strerror or error}") from None
    raise Misuse(f"cannot listen at {address}: another daemon listens there")
