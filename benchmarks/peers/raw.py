"""Bare sockets: one sender, the others receive; no order, no repair, no flow control.

The ceiling for every protocol of ours: packets as large as ours, sent and received in bursts. What
is lost is lost, so a receiver counts what it got. Small messages share a packet, large ones take
several. `python -m benchmarks.peers.raw INTERFACE PORT` is a member.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

from benchmarks.peers.tools import members_alone, one_sender
from unisono.bench.cluster import Cluster
from unisono.bench.hosts import Hosts
from unisono.bench.line_protocol import (
    DATA,
    END,
    LOAD,
    Command,
    answer,
    head,
    parse,
    payload,
    stamp_ns,
    stride,
)
from unisono.bench.system import Workload
from unisono.net import offload
from unisono.net.bench import BUFFER_BYTES, BURST_COUNT, GROUP, PACKET_BYTES
from unisono.processes import rss_peak_kb

PART: Final = 2
"""A kind of packet that only bare sockets have: a fragment, more of the message follows."""
MARKS_COUNT, MARKS_GAP_S = 5, 0.02
"""End marks may be lost too."""
SILENCE_S: Final = 1.0
"""After this long without an end mark, all of them were lost."""
BURSTS_A_LOOK: Final = 8
"""Bursts between two looks at the clock."""
RECEIVE_BYTES: Final = 1 << 16


class Raw:
    """Bare sockets as a system of the bench."""

    name = "raw"
    services = ("unreliable",)
    default_service = "unreliable"

    def missing(self) -> str:
        return ""

    def refuses(self, workload: Workload) -> str:
        return one_sender(self.name, workload)

    def started(
        self, hosts: Hosts, workload: Workload
    ) -> contextlib.AbstractContextManager[Cluster]:
        return members_alone(hosts, __name__)


class RawMember:
    """Sends to the group, or receives."""

    def __init__(self, port: int, interface: str) -> None:
        where = socket.inet_aton(interface)
        self._sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        offload.enlarge(self._sender, BUFFER_BYTES, receive=False)
        self._sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, where)
        self._sender.connect((GROUP, port))
        self._bursts = BURST_COUNT if offload.can_segment(self._sender) else 1
        self._cut = offload.segmenting(PACKET_BYTES) if self._bursts > 1 else []
        self._receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        offload.enlarge(self._receiver, BUFFER_BYTES, receive=True)
        self._receiver.bind((GROUP, port))
        joined = socket.inet_aton(GROUP) + where
        self._receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)
        offload.coalesce(self._receiver)

    def obey(self, command: Command) -> dict[str, Any]:
        began_ns = time.process_time_ns()
        if command.sends:
            _sleep_until(command.begin_ns)
            told = self._load(command) if command.what == LOAD else self._send_evenly(command)
            for _ in range(MARKS_COUNT):
                time.sleep(MARKS_GAP_S)
                self._sender.send(payload(END, command.round))
        else:
            told = self._count(command) if command.what == LOAD else self._sample(command)
        told = {"did": command.what, "round": command.round, **told}
        return told | {"cpu_ns": time.process_time_ns() - began_ns}

    # -- sending --------------------------------------------------------------------------------

    def _load(self, command: Command) -> dict[str, Any]:
        burst = payload(DATA, command.round, PACKET_BYTES) * self._bursts
        nbytes, cut, send = 0, self._cut, self._sender.sendmsg
        while time.monotonic_ns() < command.end_ns:
            for _ in range(BURSTS_A_LOOK):
                send([burst], cut)
            nbytes += len(burst) * BURSTS_A_LOOK
        # A sender counts what it sent as received.
        found = _counted(nbytes, command, command.begin_ns, time.monotonic_ns())
        return found | {"sent": found["delivered"]}

    def _send_evenly(self, command: Command) -> dict[str, Any]:
        sent, gap_ns = 0, 1e9 / command.rate
        while (now_ns := time.monotonic_ns()) < command.end_ns:
            due = int((now_ns - command.begin_ns) / gap_ns) + 1 - sent
            if due > 0:
                self._send(command, due * command.size)
                sent += due
            _sleep_until(max(command.begin_ns + round(sent * gap_ns), now_ns + 1_000_000))
        return {"count": sent, "samples_us": []}

    def _send(self, command: Command, nbytes: int) -> None:
        """So many bytes at once; the last packet has the stamp."""
        now_ns = time.monotonic_ns()
        parts = -(-nbytes // PACKET_BYTES) - 1
        while parts > 0:
            count = min(parts, self._bursts)
            self._sender.sendmsg([payload(PART, command.round, PACKET_BYTES) * count], self._cut)
            parts -= count
        self._sender.send(payload(DATA, command.round, min(nbytes, PACKET_BYTES), now_ns))

    # -- receiving ------------------------------------------------------------------------------

    def _bursts_of(self, command: Command) -> Iterator[tuple[memoryview, int]]:
        """Each burst of the round with its packets' size, until an end mark or a long silence."""
        buffer = memoryview(bytearray(RECEIVE_BYTES))
        mark = head(END, command.round)
        number = command.round.to_bytes(4, "big")
        while (left_ns := command.end_ns - time.monotonic_ns()) > -SILENCE_S * 1e9:
            self._receiver.settimeout(left_ns / 1e9 + SILENCE_S)
            try:
                nbytes, ancillary, _, _ = self._receiver.recvmsg_into([buffer], 64)
            except TimeoutError:
                return
            if buffer[:5] == mark:
                return
            if buffer[1:5] == number:
                yield buffer[:nbytes], offload.segment_size(ancillary, nbytes)

    def _count(self, command: Command) -> dict[str, Any]:
        nbytes = first_ns = last_ns = 0
        for burst, _ in self._bursts_of(command):
            nbytes += len(burst)
            last_ns = time.monotonic_ns()
            first_ns = first_ns or last_ns
        return _counted(nbytes, command, first_ns, last_ns)

    def _sample(self, command: Command) -> dict[str, Any]:
        every, count = stride(command.rate * command.seconds), 0
        samples_us = []
        for burst, size in self._bursts_of(command):
            now_ns = time.monotonic_ns()
            for at in range(0, len(burst), size):
                if burst[at] == DATA:
                    if count % every == 0:
                        samples_us.append((now_ns - stamp_ns(bytes(burst[at : at + 16]))) / 1000)
                    count += 1
        return {"count": count, "samples_us": samples_us}


def _counted(nbytes: int, command: Command, first_ns: int, last_ns: int) -> dict[str, Any]:
    return {
        "sent": 0,
        "delivered": nbytes // command.size,
        "first_ns": first_ns,
        "last_ns": last_ns,
        "rss_kb": rss_peak_kb(),
    }


def _sleep_until(at_ns: int) -> None:
    time.sleep(max(0, at_ns - time.monotonic_ns()) / 1e9)


def main() -> int:
    interface, port, *_ = sys.argv[1:]
    member = RawMember(int(port), interface)
    answer({"ready": True})
    for line in sys.stdin:
        if line.strip() == "quit":
            break
        answer(member.obey(parse(line)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
