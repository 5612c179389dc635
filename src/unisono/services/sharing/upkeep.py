"""What a member does for shared objects beside operations: it keeps its own lease, ends the
sessions of those that are gone, and advances the group's time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from unisono.services.objects.table import TICK_MS_MAX, ObjectTable
from unisono.services.objects.values import encoded

RENEWALS: Final = 3
"""Times that a lease is renewed while it lasts, at least."""
STEPS: Final = 12
"""Looks at the clock within a lease."""
PATIENCE: Final = 1.25
"""What others wait beyond a lease, in leases: clocks whose rates differ by a quarter do no harm."""
RANK: Final = 0.25
"""So many leases later acts the next member, if the one before it does not."""
TICK_S: Final = 0.25


class Upkeep:
    """A lease counts at its holder from when the message was sent, and at the others from when it
    was delivered to them: so it is over at the holder before anybody ends the session."""

    def __init__(
        self,
        table: ObjectTable,
        lease_s: float,
        send: Callable[[str, bytes], None],
        rank: Callable[[], int],
        lapsed: Callable[[], None],
    ) -> None:
        self._table = table
        self.lease_s = lease_s
        self._send = send
        self._rank = rank
        self._lapsed = lapsed
        self._until_s = 0.0
        self._renewed_s = 0.0
        self._heard_s: dict[str, float] = {}
        """By session that has something, when its last message came."""
        self._ticked = (0, time.monotonic())
        """The group's time, and when it came here."""

    @property
    def is_leased(self) -> bool:
        return time.monotonic() < self._until_s

    def sent(self, now_s: float) -> None:
        """Any message renews the lease, once it is delivered."""
        self._renewed_s = now_s

    def confirmed(self, sent_s: float) -> None:
        """What was sent then has its place."""
        self._until_s = max(self._until_s, sent_s + self.lease_s)

    def renounce(self) -> int:
        """Nothing that this member had is its own any more; since so many microseconds."""
        since_s = max(0.0, time.monotonic() - self._until_s)
        self._until_s = 0.0
        return round(since_s * 1e6)

    def heard(self, session: str) -> None:
        if session in self._table.sessions:
            self._heard_s[session] = time.monotonic()

    async def run(self, me: Callable[[], str]) -> None:
        while True:
            await asyncio.sleep(min(self.lease_s / STEPS, TICK_S))
            self._look(me(), time.monotonic())

    def _look(self, me: str, now_s: float) -> None:
        sessions = self._table.sessions
        if me in sessions:
            if now_s >= self._until_s:
                self._lapsed()
            elif now_s - self._renewed_s >= self.lease_s / RENEWALS:
                self._send("renew", b"")
        self._heard_s = {name: self._heard_s.get(name, now_s) for name in sessions}
        patience_s = self.lease_s * (PATIENCE + RANK * self._rank())
        for session, heard_s in self._heard_s.items():
            if session != me and now_s - heard_s >= patience_s:
                self._heard_s[session] = now_s  # Once more if this is not ordered.
                message = sessions[session].message
                self._send("expire", b"," + encoded([session, message])[1:-1])
        self._tick(now_s)

    def _tick(self, now_s: float) -> None:
        now_ms, since_s = self._ticked
        if self._table.now_ms != now_ms or not self._table.timed:
            self._ticked = (self._table.now_ms, now_s)
        elif now_s - since_s >= TICK_S * (1 + self._rank()):
            until_ms = now_ms + min(int((now_s - since_s) * 1000), TICK_MS_MAX)
            self._send("tick", b",%d,%d" % (now_ms, until_ms))
