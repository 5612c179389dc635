"""Kernel support for bursts: segmentation, coalescing, large buffers, no echo of own multicasts.

All of it is optional: without it, plain datagrams carry the same packets.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import socket
import struct
import sys

from unisono.model import Address

SOL_UDP, UDP_SEGMENT, UDP_GRO = 17, 103, 104
SO_SNDBUFFORCE, SO_RCVBUFFORCE, SO_ATTACH_FILTER = 32, 33, 26
LINUX = sys.platform.startswith("linux")

MEMORY_KEPT_BYTES = 4 << 20
"""Blocks up to this size stay with the allocator; up to twice as much may be unused."""

REFUSALS = frozenset(
    (errno.EINVAL, errno.EIO, errno.ENOPROTOOPT, errno.EMSGSIZE, errno.EOPNOTSUPP, errno.ENOTSUP)
)
"""Errors of a kernel or device that cannot segment."""

log = logging.getLogger("unisono.net")
_warned: set[str] = set()


def keep_memory() -> None:
    """Make the allocator keep the memory of bursts instead of returning it to the kernel, which
    would clear it again: freeing one large block raises glibc's thresholds. Thresholds set by hand
    stay; other allocators are not affected."""
    bytes(MEMORY_KEPT_BYTES)


def segmenting(size: int) -> list[tuple[int, int, bytes]]:
    """Ancillary data that makes the kernel cut a buffer into datagrams of this size."""
    return [(SOL_UDP, UDP_SEGMENT, struct.pack("H", size))]


def can_segment(sock: socket.socket) -> bool:
    if not LINUX:
        return False
    try:
        sock.getsockopt(SOL_UDP, UDP_SEGMENT)
    except OSError:
        return False
    return True


def coalesce(sock: socket.socket) -> bool:
    """Receive bursts in one call. Returns whether the kernel supports it."""
    if not LINUX:
        return False
    try:
        sock.setsockopt(SOL_UDP, UDP_GRO, 1)
    except OSError:
        return False
    return True


def segment_size(ancillary: list[tuple[int, int, bytes]], size: int) -> int:
    """The size of each packet of a burst; `size` if the kernel reports none."""
    for level, kind, data in ancillary:
        if kind == UDP_GRO and level == SOL_UDP:
            return int.from_bytes(data[:4], sys.byteorder) or size
    return size


def enlarge(sock: socket.socket, nbytes: int, *, receive: bool) -> int:
    """Set a socket buffer; returns its real size. If it is smaller, logs the remedy once."""
    plain = socket.SO_RCVBUF if receive else socket.SO_SNDBUF
    forced = SO_RCVBUFFORCE if receive else SO_SNDBUFFORCE
    for option in (forced, plain) if LINUX else (plain,):
        try:
            sock.setsockopt(socket.SOL_SOCKET, option, nbytes)
            break
        except OSError:
            continue
    # Linux reports twice the usable size.
    real = sock.getsockopt(socket.SOL_SOCKET, plain) // (2 if LINUX else 1)
    key = "net.core.rmem_max" if receive else "net.core.wmem_max"
    if real < nbytes and key not in _warned:
        _warned.add(key)
        advice = f"sysctl -w {key}={nbytes}" if LINUX else "raise the system's socket buffer limit"
        log.warning(
            "the %s buffer has %d bytes instead of %d, so bursts may be lost: as root, %s",
            "receive" if receive else "send", real, nbytes, advice,
        )  # fmt: skip
    return real


def drop_own_multicasts(sock: socket.socket, me: Address) -> bool:
    """Let the kernel drop our own multicasts before they cost a read.

    A classic packet filter on the receive socket: drop when UDP source port and IP source are
    ours. Offsets from 0 are in the UDP header, from SKF_NET_OFF in the IP header.
    """
    if not LINUX:
        return False
    family = socket.AF_INET6 if ":" in me.host else socket.AF_INET
    packed = socket.inet_pton(family, me.host.partition("%")[0])
    words = [int.from_bytes(packed[i : i + 4], "big") for i in range(0, len(packed), 4)]
    source_offset = 0xFFF00000 + (12 if family == socket.AF_INET else 8)
    load_half, load_word, jump_if_equal, answer = 0x28, 0x20, 0x15, 0x06
    to_keep = 2 * len(words) + 1  # instructions from the first comparison's end to `keep`
    program = [(load_half, 0, 0, 0), (jump_if_equal, 0, to_keep, me.port)]
    for index, word in enumerate(words):
        program.append((load_word, 0, 0, source_offset + 4 * index))
        program.append((jump_if_equal, 0, to_keep - 2 * index - 2, word))
    program += [(answer, 0, 0, 0), (answer, 0, 0, 0xFFFFFFFF)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    try:
        sock.setsockopt(
            socket.SOL_SOCKET,
            SO_ATTACH_FILTER,
            struct.pack("@HP", len(program), ctypes.addressof(code)),
        )
    except OSError:
        return False
    return True
