"""Bare sockets: one sender, the others receive; no order, no repair, no flow control.

The ceiling for every protocol of ours: packets as large as ours, sent and received in bursts. What
is lost is lost, so a receiver counts what it got. Small messages share a packet, large ones take
several. `python -m benchmarks.peers.raw HOW` is a member.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

from benchmarks.peers.tools import start_member
from unisono.bench.orders import DATA, END, Order, head, parsed, payload, stamp_ns, stride, tell
from unisono.bench.ours import HERE, free_port
from unisono.bench.processes import ended_with, rss_peak_kb
from unisono.bench.stage import LOOPBACK
from unisono.bench.system import Load, Stage, Troupe
from unisono.config import PORT
from unisono.net import offload
from unisono.net.bench import BUFFER_OCTETS, BURST_COUNT, GROUP, PACKET_OCTETS

PART: Final = 2
"""A kind of packet that only bare sockets have: more of the same follows."""
MARKS_COUNT, MARKS_GAP_S = 5, 0.02
"""End marks may be lost too."""
SILENCE_S: Final = 1.0
"""Who has heard no end mark so long after the end has lost them all."""
BURSTS_A_LOOK: Final = 8
"""The sender looks at the clock so rarely."""
RECEIVE_OCTETS: Final = 1 << 16


class Raw:
    """Bare sockets as a system of the bench."""

    name = "raw"
    only = "unreliable"
    """The one service it has, whatever the others are asked for."""

    def missing(self) -> str:
        return ""

    def refuses(self, load: Load) -> str:
        if load.senders != 1:
            return "raw has one sender: without flow control two would only drown each other"
        return ""

    @contextlib.contextmanager
    def started(self, stage: Stage, load: Load) -> Iterator[Troupe]:
        near = stage.net == LOOPBACK
        port = free_port() if near else PORT
        with ended_with() as members:
            for seat in stage.seats:
                how = {"port": port, "interface": HERE if near else seat.host}
                members.append(start_member(stage, seat, __name__, json.dumps(how)))
            yield Troupe(members)


class Member:
    """One that speaks to the group or listens to it."""

    def __init__(self, port: int, interface: str) -> None:
        where = socket.inet_aton(interface)
        self._mouth = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        offload.enlarge(self._mouth, BUFFER_OCTETS, receive=False)
        self._mouth.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, where)
        self._mouth.connect((GROUP, port))
        self._bursts = BURST_COUNT if offload.can_segment(self._mouth) else 1
        self._cut = offload.segmenting(PACKET_OCTETS) if self._bursts > 1 else []
        self._ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        offload.enlarge(self._ear, BUFFER_OCTETS, receive=True)
        self._ear.bind((GROUP, port))
        joined = socket.inet_aton(GROUP) + where
        self._ear.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)
        offload.coalesce(self._ear)

    def obey(self, order: Order) -> dict[str, Any]:
        began_ns = time.process_time_ns()
        if order.speaks:
            _sleep_until(order.begin_ns)
            told = self._pour(order) if order.what == "pour" else self._say_evenly(order)
            for _ in range(MARKS_COUNT):
                time.sleep(MARKS_GAP_S)
                self._mouth.send(payload(END, order.round))
        else:
            told = self._count(order) if order.what == "pour" else self._note(order)
        told = {"did": order.what, "round": order.round, **told}
        return told | {"cpu_ns": time.process_time_ns() - began_ns}

    # -- speaking -------------------------------------------------------------------------------

    def _pour(self, order: Order) -> dict[str, Any]:
        burst = payload(DATA, order.round, PACKET_OCTETS) * self._bursts
        octets, cut, say = 0, self._cut, self._mouth.sendmsg
        while time.monotonic_ns() < order.end_ns:
            for _ in range(BURSTS_A_LOOK):
                say([burst], cut)
            octets += len(burst) * BURSTS_A_LOOK
        # What the sender itself is given is what it said.
        found = _counted(octets, order, order.begin_ns, time.monotonic_ns())
        return found | {"sent": found["delivered"]}

    def _say_evenly(self, order: Order) -> dict[str, Any]:
        said, gap_ns = 0, 1e9 / order.rate
        while (now_ns := time.monotonic_ns()) < order.end_ns:
            due = int((now_ns - order.begin_ns) / gap_ns) + 1 - said
            if due > 0:
                self._say(order, due * order.size)
                said += due
            _sleep_until(max(order.begin_ns + round(said * gap_ns), now_ns + 1_000_000))
        return {"count": said, "samples_us": []}

    def _say(self, order: Order, octets: int) -> None:
        """So much at once; its last packet has the stamp."""
        now_ns = time.monotonic_ns()
        parts = -(-octets // PACKET_OCTETS) - 1
        while parts > 0:
            count = min(parts, self._bursts)
            self._mouth.sendmsg([payload(PART, order.round, PACKET_OCTETS) * count], self._cut)
            parts -= count
        self._mouth.send(payload(DATA, order.round, min(octets, PACKET_OCTETS), now_ns))

    # -- listening ------------------------------------------------------------------------------

    def _bursts_of(self, order: Order) -> Iterator[tuple[memoryview, int]]:
        """Each burst of the round with its packets' size, until an end mark or a long silence."""
        buffer = memoryview(bytearray(RECEIVE_OCTETS))
        mark = head(END, order.round)
        number = order.round.to_bytes(4, "big")
        while (left_ns := order.end_ns - time.monotonic_ns()) > -SILENCE_S * 1e9:
            self._ear.settimeout(left_ns / 1e9 + SILENCE_S)
            try:
                octets, ancillary, _, _ = self._ear.recvmsg_into([buffer], 64)
            except TimeoutError:
                return
            if buffer[:5] == mark:
                return
            if buffer[1:5] == number:
                yield buffer[:octets], offload.segment_size(ancillary, octets)

    def _count(self, order: Order) -> dict[str, Any]:
        octets = first_ns = last_ns = 0
        for burst, _ in self._bursts_of(order):
            octets += len(burst)
            last_ns = time.monotonic_ns()
            first_ns = first_ns or last_ns
        return _counted(octets, order, first_ns, last_ns)

    def _note(self, order: Order) -> dict[str, Any]:
        every, count = stride(order.rate * order.seconds), 0
        samples_us = []
        for burst, size in self._bursts_of(order):
            now_ns = time.monotonic_ns()
            for at in range(0, len(burst), size):
                if burst[at] == DATA:
                    if count % every == 0:
                        samples_us.append((now_ns - stamp_ns(bytes(burst[at : at + 16]))) / 1000)
                    count += 1
        return {"count": count, "samples_us": samples_us}


def _counted(octets: int, order: Order, first_ns: int, last_ns: int) -> dict[str, Any]:
    return {
        "sent": 0,
        "delivered": octets // order.size,
        "first_ns": first_ns,
        "last_ns": last_ns,
        "rss_kb": rss_peak_kb(),
    }


def _sleep_until(at_ns: int) -> None:
    time.sleep(max(0, at_ns - time.monotonic_ns()) / 1e9)


def main() -> int:
    member = Member(**json.loads(sys.argv[1]))
    tell({"ready": True})
    for line in sys.stdin:
        if line.strip() == "quit":
            break
        tell(member.obey(parsed(line)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
