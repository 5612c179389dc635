"""Members that run, whatever their system: ordered about and listened to, all at once."""

from __future__ import annotations

import subprocess
import time
from typing import Any, Final

from unisono.bench.orders import Order
from unisono.bench.processes import Trouble, Voice, answers, complaints, cpu_ns, rss_peak_kb
from unisono.bench.system import Stage, Troupe

READY_S: Final = 60.0
ANSWER_S: Final = 30.0
"""What is given to a system beyond the time of an order, to deliver what it has taken."""
AHEAD_NS, AHEAD_EACH_NS = 100_000_000, 20_000_000
"""So long after the order it begins, and longer for many, that all have read it."""
AT_WORK_S: Final = 0.3
"""So long the group works before one of it is killed."""

Answer = dict[str, Any]


class Crew:
    """One system's members, in the order of their seats."""

    def __init__(self, troupe: Troupe, stage: Stage) -> None:
        self._servers = troupe.servers
        self._voices = [
            Voice(process, f"member {seat.index}", complaints(stage.scratch, "member", seat))
            for process, seat in zip(troupe.members, stage.seats, strict=False)
        ]
        self._round = 0
        self.servers_cpu_ns = 0
        """Of the last order."""

    def wait_ready(self, within_s: float = READY_S) -> list[Answer]:
        return answers(self._voices, within_s)

    def pour(self, seconds: float, size: int, senders: int) -> tuple[int, list[Answer]]:
        """When it began, and what each member answered."""
        return self._order("pour", seconds, size, senders)

    def probe(self, seconds: float, size: int, senders: int, rate: float) -> list[Answer]:
        return self._order("probe", seconds, size, senders, rate)[1]

    def mourn(self, victim: int, size: int, rate: float) -> tuple[int, list[Answer]]:
        """Kill one; when, and what the survivors answered."""
        survivors = [each for at, each in enumerate(self._voices) if at != victim]
        order = self._next("mourn", ANSWER_S, size, len(survivors), rate)
        for voice in survivors:
            voice.order(order.line())
        # Not before all have read it, and the group is at work.
        time.sleep((order.begin_ns - time.monotonic_ns()) / 1e9 + AT_WORK_S)
        killed_ns = time.monotonic_ns()
        self._voices[victim].process.kill()
        return killed_ns, answers(survivors, ANSWER_S)

    def dismiss(self, leaver: int) -> None:
        """Let one leave, and wait until it has."""
        voice = self._voices[leaver]
        voice.order("quit")
        try:
            code = voice.process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            raise Trouble(f"{voice.what} does not leave within {ANSWER_S:g} s") from None
        if code:
            raise Trouble(f"{voice.what} ended with code {code}")

    def rss_peak_kb(self) -> int:
        """Of the servers; members tell their own."""
        return max(map(rss_peak_kb, self._servers), default=0)

    def _next(self, what: str, seconds: float, size: int, senders: int, rate: float) -> Order:
        self._round += 1
        begin_ns = time.monotonic_ns() + AHEAD_NS + AHEAD_EACH_NS * len(self._voices)
        return Order(what, self._round, begin_ns, seconds, size, True, senders, rate)

    def _order(
        self, what: str, seconds: float, size: int, senders: int, rate: float = 0.0
    ) -> tuple[int, list[Answer]]:
        before_ns = sum(map(cpu_ns, self._servers))
        order = self._next(what, seconds, size, senders, rate)
        for at, voice in enumerate(self._voices):
            voice.order(order.line(speaks=at < senders))
        found = answers(self._voices, seconds + ANSWER_S)
        self.servers_cpu_ns = sum(map(cpu_ns, self._servers)) - before_ns
        return order.begin_ns, found
