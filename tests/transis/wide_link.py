"""A wide link between network namespaces: a process that forwards packets after a delay.

`python wide_link.py DELAY_MS NAMESPACE…` gives each namespace an interface `wide` with the address
10.78.K.1, K from 1, and forwards between them until its input ends. A line `cut K` stops what is
from or for namespace K, and `heal` ends that.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import selectors
import struct
import subprocess
import sys
import time
from heapq import heappop, heappush
from typing import Final

TUNSETIFF: Final = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
CLONE_NEWNET: Final = 0x40000000
PACKET_BYTES: Final = 65_536


def enter(namespace: str) -> None:
    with open(f"/run/netns/{namespace}", "rb") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")


def interface(place: int, namespace: str) -> int:
    """The packets that leave a namespace, as a file."""
    enter(namespace)
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH", b"wide", IFF_TUN | IFF_NO_PI))
    for words in (
        ("addr", "add", f"10.78.{place}.1/24", "dev", "wide"),
        ("link", "set", "lo", "up"),
        ("link", "set", "wide", "mtu", "1500", "up"),
        ("route", "add", "10.78.0.0/16", "dev", "wide"),
    ):
        subprocess.run(("ip", *words), check=True)
    return file


def forward(delay_s: float, files: dict[int, int]) -> None:
    selector = selectors.DefaultSelector()
    for place, file in files.items():
        selector.register(file, selectors.EVENT_READ, place)
    selector.register(sys.stdin.fileno(), selectors.EVENT_READ, 0)
    under_way: list[tuple[float, int, int, bytes]] = []
    cut, count = 0, 0
    while True:
        wait_s = under_way[0][0] - time.monotonic() if under_way else None
        for key, _ in selector.select(max(wait_s, 0) if wait_s is not None else None):
            if not key.data:
                words = os.read(sys.stdin.fileno(), 100).decode().split()
                if not words:
                    return
                cut = int(words[1]) if words[0] == "cut" else 0
                continue
            packet = os.read(key.fd, PACKET_BYTES)
            target = packet[18] if len(packet) > 19 and packet[0] >> 4 == 4 else 0
            if target in files and cut not in (key.data, target):
                count += 1
                heappush(under_way, (time.monotonic() + delay_s, count, target, packet))
        while under_way and under_way[0][0] <= time.monotonic():
            _, _, target, packet = heappop(under_way)
            os.write(files[target], packet)


if __name__ == "__main__":
    made = {place: interface(place, name) for place, name in enumerate(sys.argv[2:], 1)}
    print("ready", flush=True)
    forward(float(sys.argv[1]) / 1000, made)
