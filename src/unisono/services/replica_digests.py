"""Whether the state machines of the replicas agree: digests at the same positions, compared."""

from __future__ import annotations

import hashlib
from typing import Final

from unisono.errors import Diverged
from unisono.services.replication.records import DigestMessage
from unisono.state_machine import NamesUpdates, StateMachine

KEPT_COUNT: Final = 1024
"""Positions whose digest is kept, for replicas that are behind."""
NAMES_MAX: Final = 8


class StateDigests:
    """Those of one replica, one every `every` positions; with 0 none."""

    def __init__(self, name: str, machine: StateMachine | None, every: int) -> None:
        self._name = name
        self._machine = machine
        self._every = every if machine is not None else 0
        self._since: dict[str, None] = {}
        self._digests: dict[int, DigestMessage] = {}

    def applied(self, update: bytes, position: int) -> DigestMessage | None:
        """What to tell the others, if this position is compared."""
        if not self._every:
            return None
        machine = self._machine
        assert machine is not None
        what = machine.named(update) if isinstance(machine, NamesUpdates) else "apply()"
        self._since[what] = None
        if position % self._every:
            return None
        digest = hashlib.blake2b(machine.snapshot(), digest_size=16).digest()
        told = DigestMessage(position, digest, ", ".join(list(self._since)[:NAMES_MAX]))
        self._since.clear()
        self._digests[position] = told
        self._digests.pop(position - KEPT_COUNT * self._every, None)
        return told

    def compare(self, sender: str, told: DigestMessage) -> None:
        """`Diverged` if that replica had another state at a position of both."""
        mine = self._digests.get(told.position)
        if mine is not None and mine.digest != told.digest:
            raise Diverged(
                f"replicas {self._name!r} and {sender!r} have different states after update"
                f" {told.position}, which called {mine.since}: what an update does must follow from"
                " its arguments and the state alone, without clock, dice, order of a set, or"
                " anything outside"
            )
