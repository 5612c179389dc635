"""Reading one burst before the rest: what is passed over is not taken for a dry socket."""

from __future__ import annotations

from typing import Any

import pytest

from unisono.model import Address
from unisono.net.receive_path import READS_MAX, ReceivePath
from unisono.net.udp import COUNTED

ME, OTHER = ("127.0.0.1", 5000), ("127.0.0.1", 6000)


class Socket:
    """Gives these datagrams."""

    def __init__(self, *datagrams: tuple[tuple[str, int], bytes]) -> None:
        self.left = list(datagrams)

    def recvmsg_into(self, buffers: Any, ancillary: int) -> tuple[int, list[Any], int, Any]:
        if not self.left:
            raise BlockingIOError
        origin, data = self.left.pop(0)
        buffers[0][: len(data)] = data
        return len(data), [], 0, origin


def heard(sock: Socket, most: int) -> list[bytes]:
    inbox = ReceivePath(dict.fromkeys(COUNTED, 0), Address(*ME))
    found: list[bytes] = []
    for _, packets in inbox.read(sock, most):  # type: ignore[arg-type]
        found += map(bytes, packets)
    return found


@pytest.mark.parametrize("echoes", [0, 1, 5])
def test_an_echo_before_the_news_does_not_hide_it(echoes: int) -> None:
    sock = Socket(*[(ME, b"echo")] * echoes, (OTHER, b"one"), (OTHER, b"two"))
    assert heard(sock, 1) == [b"one"]
    assert heard(sock, READS_MAX) == [b"two"]


def test_echoes_without_end_are_not_read_without_end() -> None:
    sock = Socket(*[(ME, b"echo")] * 10 * READS_MAX)
    assert heard(sock, 1) == []
    assert len(sock.left) == 9 * READS_MAX
