"""The listeners of a daemon: Unix paths that no other daemon holds, or loopback ports."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import stat
import sys
from collections import Counter
from collections.abc import Callable, Sequence

from unisono.client.listen_address import ListenAddress, Tcp, Unix
from unisono.errors import Misuse

BACKLOG = 1024
PROBE_S = 1.0
ACCEPTED_COUNT = 64
"""Clients accepted at once."""
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
EXHAUSTED_S = 1.0
"""A daemon without descriptors accepts again after this time."""
OTHERS = 0o022
"""With any of these permissions (to write is to connect) the socket is for other users too."""

log = logging.getLogger("unisono.daemon")


class Listeners:
    """Closing removes the paths that were created."""

    def __init__(self, counts: Counter[str]) -> None:
        self._sockets: list[socket.socket] = []
        self._accepted: set[asyncio.Task[None]] = set()
        self._counts = counts
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
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sockets.append(listener)
        before = os.umask(0o777 & ~mode)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(address.path)  # Of a daemon that is dead: `check_free` has asked it.
            listener.bind(address.path)
            listener.listen(BACKLOG)
        except OSError as error:
            raise Misuse(f"cannot listen at {address}: {error.strerror or error}") from None
        finally:
            os.umask(before)
        self._serve(listener, made, None if mode & OTHERS else {os.getuid(), 0})
        self._paths.append((address.path, os.stat(address.path).st_ino))
        return address

    async def _tcp(
        self, address: Tcp, made: Callable[[], asyncio.Protocol], mode: int
    ) -> ListenAddress:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        self._sockets.append(listener)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address.host, address.port))
            listener.listen(BACKLOG)
        except OSError as error:
            raise Misuse(f"cannot listen at {address}: {os.strerror(error.errno or 0)}") from None
        self._serve(listener, made, None)
        return Tcp(address.host, listener.getsockname()[1])

    def _serve(
        self, listener: socket.socket, made: Callable[[], asyncio.Protocol], users: set[int] | None
    ) -> None:
        """Accept whenever someone connects. asyncio's own servers log a traceback for each place in
        the backlog when descriptors run out."""
        listener.setblocking(False)
        loop = asyncio.get_running_loop()

        def start() -> None:
            if listener.fileno() >= 0:
                loop.add_reader(listener, accept)

        def accept() -> None:
            for _ in range(ACCEPTED_COUNT):
                try:
                    peer, _ = listener.accept()
                except OSError as error:
                    if error.errno in EXHAUSTED:
                        self._counts["exhausted"] += 1
                        if self._counts["exhausted"] == 1:
                            log.warning("cannot accept clients for now: %s", error.strerror)
                        loop.remove_reader(listener)
                        loop.call_later(EXHAUSTED_S, start)
                    return
                if users is not None and (user := user_of(peer)) not in users:
                    self._counts["drop.user"] += 1
                    log.warning("a client of user %d is refused: see --mode", user)
                    peer.close()
                    continue
                peer.setblocking(False)
                task = loop.create_task(self._connected(peer, made))
                self._accepted.add(task)
                task.add_done_callback(self._accepted.discard)

        start()

    async def _connected(self, peer: socket.socket, made: Callable[[], asyncio.Protocol]) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(made, peer)
        except OSError:
            peer.close()

    def close(self) -> None:
        for listener in self._sockets:
            with contextlib.suppress(RuntimeError, ValueError):
                asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        for path, number in self._paths:
            with contextlib.suppress(OSError):
                if os.stat(path).st_ino == number:
                    os.unlink(path)
        self._sockets.clear()
        self._paths.clear()


def user_of(peer: socket.socket) -> int:
    """The user at the other end of a Unix socket, as the system knows it."""
    process_user_group = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(process_user_group[4:8], sys.byteorder)


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
