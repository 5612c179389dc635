"""The send path: bursts, the fallback, the bounded queue."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.waiting import LIMIT_S
from unisono.net import offload
from unisono.net.send_path import BYTES_MAX, SEGMENTS_MAX, SendPath, runs
from unisono.net.udp import COUNTED

TO = ("10.0.0.9", 9)


class Wire:
    """A socket's sending side that can be set to refuse bursts, or everything."""

    def __init__(self) -> None:
        self.took: list[bytes] = []
        self.calls = 0
        self.refuses_bursts = 0
        self.refuses_all = 0
        self.room = 1 << 30

    def fileno(self) -> int:
        return -1

    def getsockopt(self, level: int, option: int) -> int:
        return 0

    def sendmsg(self, buffers: Any, ancillary: Any, flags: int, to: Any) -> int:
        if self.refuses_bursts:
            raise OSError(self.refuses_bursts, "no bursts here")
        (data,) = buffers
        size = int.from_bytes(ancillary[0][2], "little")
        for start in range(0, len(data), size):
            self.take(data[start : start + size])
        self.calls += 1
        return len(data)

    def sendto(self, data: Any, to: Any) -> int:
        self.take(data)
        self.calls += 1
        return len(data)

    def take(self, data: Any) -> None:
        if self.refuses_all:
            raise OSError(self.refuses_all, "refused")
        if self.room <= 0:
            raise BlockingIOError(errno.EAGAIN, "full")
        self.room -= 1
        self.took.append(bytes(data))


def outbox(wire: Wire, queue_bytes_max: int = 1 << 20) -> tuple[SendPath, dict[str, int]]:
    counts = dict.fromkeys(COUNTED, 0)
    made = SendPath(cast(socket.socket, wire), counts, queue_bytes_max, offloads=True)
    made.segments = True  # also where the kernel has no offload
    return made, counts


@given(st.lists(st.integers(0, 2000) | st.sampled_from([1400, 1400, 65_000]), max_size=200))
def test_runs_are_the_packets_in_order_and_fit_one_call(sizes: list[int]) -> None:
    packets = [bytes([place % 256]) * size for place, size in enumerate(sizes)]
    found = []
    for data, size, count in runs(packets):
        assert count <= SEGMENTS_MAX and (count == 1 or len(data) <= BYTES_MAX)
        cut = [bytes(data[at : at + size]) for at in range(0, len(data), size)] if size else [b""]
        assert len(cut) == count
        found += cut
    assert found == packets


def test_packets_of_equal_length_leave_by_one_call() -> None:
    wire = Wire()
    box, counts = outbox(wire)
    packets = [bytes([n]) * 1400 for n in range(40)] + [b"short"]
    box.send([TO, TO], packets)
    assert wire.calls == counts["net.out.calls"] == 2
    assert wire.took == packets * 2
    assert counts["net.out.packets"] == 82


@pytest.mark.parametrize("refusal", sorted(offload.REFUSALS))
def test_a_refused_burst_leaves_one_by_one_for_good(refusal: int) -> None:
    wire = Wire()
    wire.refuses_bursts = refusal
    box, counts = outbox(wire)
    packets = [bytes([n]) * 10 for n in range(5)]
    box.send([TO], packets)
    wire.refuses_bursts = 0
    box.send([TO], packets)
    assert wire.took == packets * 2 and wire.calls == 10
    assert not box.segments and counts["net.offload_refused"] == 1


def test_a_bad_target_does_not_cost_the_offload() -> None:
    wire = Wire()
    wire.refuses_bursts = wire.refuses_all = errno.EINVAL
    box, counts = outbox(wire)
    box.send([TO], [b"aa", b"bb"])
    assert box.segments and counts["drop.send_error"] == 2


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (errno.ECONNREFUSED, "drop.refused"),
        (errno.ENETUNREACH, "drop.unreachable"),
        (errno.EPERM, "drop.forbidden"),
        (errno.EBADMSG, "drop.send_error"),
    ],
)
def test_what_the_system_will_not_send_is_counted(error: int, name: str) -> None:
    wire = Wire()
    wire.refuses_all = error
    box, counts = outbox(wire)
    box.send([TO], [b"one"])
    assert counts[name] == 1 and box.waiting_bytes == 0


def test_a_full_socket_makes_packets_wait_in_order_and_drops_at_the_bound() -> None:
    wire = Wire()
    wire.room = 2
    box, counts = outbox(wire, queue_bytes_max=5)
    box.segments = False
    box.send([TO], [b"a", b"b", b"c", b"d"])
    box.send([TO], [b"eee"])
    box.send([TO], [b"f"])  # 6 bytes would wait: dropped and counted
    assert wire.took == [b"a", b"b"] and box.waiting_bytes == 5
    assert counts["drop.send_queue"] == 1
    wire.room = 1
    box.flush()
    assert box.waiting_bytes == 4
    wire.room = 10
    box.flush()
    assert wire.took == [b"a", b"b", b"c", b"d", b"eee"] and box.waiting_bytes == 0


def test_what_still_waits_at_the_end_is_counted() -> None:
    wire = Wire()
    wire.room = 0
    box, counts = outbox(wire)
    box.send([TO], [b"a", b"b"])
    box.close()
    assert counts["drop.send_queue"] == 2


@pytest.mark.real
async def test_a_device_without_buffers_is_tried_again_soon() -> None:
    wire = Wire()
    box, _ = outbox(wire)
    left, right = socket.socketpair()
    wire.fileno = left.fileno  # type: ignore[method-assign]
    box.attach(asyncio.get_running_loop())
    wire.refuses_all = errno.ENOBUFS
    box.send([TO], [b"late"])
    wire.refuses_all = 0
    async with asyncio.timeout(LIMIT_S):
        while not wire.took:
            await asyncio.sleep(0.001)
    assert wire.took == [b"late"]
    box.close()
    left.close()
    right.close()


@pytest.mark.real
async def test_a_full_real_socket_sends_the_rest_when_it_can() -> None:
    """A datagram socket pair of the local kind blocks when its reader is slow."""

    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    left.setblocking(False)
    right.setblocking(False)

    class Pair(Wire):
        def fileno(self) -> int:
            return left.fileno()

        def sendto(self, data: Any, to: Any) -> int:
            return left.send(data)

    box, _ = outbox(Pair())
    box.segments = False
    loop = asyncio.get_running_loop()
    box.attach(loop)
    packets = [str(n).encode().rjust(1000) for n in range(1000)]
    box.send([TO], packets)
    assert box.waiting_bytes > 0
    async with asyncio.timeout(LIMIT_S):
        heard = [await loop.sock_recv(right, 2000) for _ in packets]
    assert heard == packets and box.waiting_bytes == 0
    box.close()
    left.close()
    right.close()
