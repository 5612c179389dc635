"""The running members of one system: commanded and measured together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from unisono.bench.line_protocol import CRASH, LOAD, PROBE, Command
from unisono.processes import Process, RunFailed, answers, rss_peak_kb

READY_S: Final = 60.0
ANSWER_S: Final = 30.0
"""Granted beyond the time of a command, to deliver what was sent."""
AHEAD_NS, AHEAD_EACH_NS = 100_000_000, 20_000_000
"""The delay of a command, and more per member, so that all have read it when it begins."""
CRASH_AFTER_S: Final = 0.3
"""How long the group works before a member is killed."""

Answer = dict[str, Any]


class Cluster:
    """One system's members, in the order of their hosts, and its servers."""

    def __init__(self, members: Sequence[Process], servers: Sequence[Process] = ()) -> None:
        self.members = members
        self.servers = servers
        """Processes that are not members and whose processor time counts too."""
        self._round = 0
        self.servers_cpu_ns = 0
        """Used during the last command."""

    def wait_ready(self, within_s: float = READY_S) -> list[Answer]:
        return self._answers(self.members, within_s)

    def load(self, seconds: float, size: int, senders: int) -> tuple[int, list[Answer]]:
        """Send as fast as the system allows; when that began, and each member's answer."""
        return self._command(LOAD, seconds, size, senders)

    def probe(self, seconds: float, size: int, senders: int, rate: float) -> list[Answer]:
        """Send at this rate and measure delays; each member's answer."""
        return self._command(PROBE, seconds, size, senders, rate)[1]

    def crash(self, victim: int, size: int, rate: float) -> tuple[int, list[Answer]]:
        """Kill one member of a working group; when that was, and the survivors' answers."""
        survivors = [each for at, each in enumerate(self.members) if at != victim]
        command = self._next(CRASH, ANSWER_S, size, len(survivors), rate)
        for member in survivors:
            member.write(command.line())
        time.sleep((command.begin_ns - time.monotonic_ns()) / 1e9 + CRASH_AFTER_S)
        killed_ns = time.monotonic_ns()
        self.members[victim].kill()
        return killed_ns, self._answers(survivors, ANSWER_S)

    def leave(self, leaver: int) -> None:
        """Let one member leave, and wait until it has."""
        member = self.members[leaver]
        member.write("quit")
        if code := member.wait(ANSWER_S):
            raise RunFailed(f"{member.name} ended with code {code}")

    def servers_rss_peak_kb(self) -> int:
        return max((rss_peak_kb(server.pid) for server in self.servers), default=0)

    def _answers(self, members: Sequence[Process], within_s: float) -> list[Answer]:
        try:
            return answers(members, within_s)
        except RunFailed:
            # Members fail when their server does: report the cause.
            for server in self.servers:
                if not server.is_alive:
                    raise server.failure() from None
            raise

    def _next(self, what: str, seconds: float, size: int, senders: int, rate: float) -> Command:
        self._round += 1
        begin_ns = time.monotonic_ns() + AHEAD_NS + AHEAD_EACH_NS * len(self.members)
        return Command(what, self._round, begin_ns, seconds, size, True, senders, rate)

    def _command(
        self, what: str, seconds: float, size: int, senders: int, rate: float = 0.0
    ) -> tuple[int, list[Answer]]:
        before_ns = sum(server.cpu_ns() for server in self.servers)
        command = self._next(what, seconds, size, senders, rate)
        for at, member in enumerate(self.members):
            member.write(command.line(sends=at < senders))
        found = self._answers(self.members, seconds + ANSWER_S)
        self.servers_cpu_ns = sum(server.cpu_ns() for server in self.servers) - before_ns
        return command.begin_ns, found
