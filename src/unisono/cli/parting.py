"""`python -m unisono.cli.parting FILE COMMAND…`: a command whose network can be cut, for the demo.

With SIGUSR2 it reads the file: the ports whose packets it drops from then on. So a group on one
machine parts without privileges.
"""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from unisono.cli import main
from unisono.model import Address, Packets
from unisono.net import udp
from unisono.net.receive_path import READS_MAX, ReceivePath


class CutReceivePath(ReceivePath):
    """Drops what comes from these ports."""

    ports: Collection[int] = ()

    def read(
        self, sock: socket.socket, taken_max: int = READS_MAX
    ) -> list[tuple[Address, Packets]]:
        found = super().read(sock, taken_max)
        return [(source, packets) for source, packets in found if source.port not in self.ports]


def cut(file: Path, ports: Sequence[int]) -> None:
    """For a process that was started with this file, and is then sent SIGUSR2."""
    file.write_text(" ".join(map(str, ports)))


def _run(file: Path) -> None:
    def read_ports(*_: object) -> None:
        CutReceivePath.ports = frozenset(map(int, file.read_text().split()))

    signal.signal(signal.SIGUSR2, read_ports)
    udp.ReceivePath = CutReceivePath  # type: ignore[attr-defined]
    main()


if __name__ == "__main__":
    place = Path(sys.argv.pop(1))
    _run(place)
