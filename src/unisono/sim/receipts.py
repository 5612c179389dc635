"""Received by all: when a message is delivered as safe, does every member of the view hold it?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unisono.model import Member, Message, Service

if TYPE_CHECKING:
    from unisono.sim.process import SimProcess
    from unisono.sim.world import World


class Receipts:
    """Queries the cores themselves, at the moment of delivery.

    Members that stay together deliver in a view what is left of it when it ends. So a member may
    lack a message if the next view of the deliverer, or its transitional view, is without it.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._lacking: dict[SimProcess, list[tuple[Member, str]]] = {}
        """By process, members that lacked what it delivered in its present view."""
        self._marks: dict[SimProcess, dict[Member, int]] = {}
        """By process and sender, the number up to which it is known to hold all."""

    def delivered(self, process: SimProcess, messages: Sequence[Message]) -> None:
        """What a process delivered counts as held, whatever its core still has."""
        mine = self._marks.setdefault(process, {})
        highest: dict[Member, int] = {}
        for message in messages:
            if message.number > mine.get(message.sender, 0):
                mine[message.sender] = message.number
            if message.service == Service.SAFE:
                highest[message.sender] = max(highest.get(message.sender, 0), message.number)
        if highest:
            for member in process.safe_members:
                self._query(process, member, highest)

    def installed(self, process: SimProcess) -> None:
        """The view is over: members that stay must have held each message when it was delivered."""
        for member, text in self._lacking.pop(process, ()):
            if member in process.safe_members:
                self._world.broken("received_by_all", text, process)

    def close(self) -> None:
        """The run is over."""
        for process in list(self._lacking):
            if not process.over:
                self.installed(process)

    def _query(self, process: SimProcess, member: Member, highest: dict[Member, int]) -> None:
        other = self._world.processes.get(member)
        # A process that stopped or left has announced it, and no longer counts.
        if other is None or other is process or other.stopped:
            return
        marks = self._marks.setdefault(other, {})
        if all(marks.get(sender, 0) >= number for sender, number in highest.items()):
            return
        held = other.tap.held()
        for sender, mark in held.items():
            marks[sender] = max(marks.get(sender, 0), mark)
        for sender, number in highest.items():
            # After the last view with the sender, a core no longer reports what it held of it.
            if sender in held and marks[sender] < number:
                text = f"{sender}:{number} is delivered as safe, and {member} does not hold it"
                self._lacking.setdefault(process, []).append((member, text))
