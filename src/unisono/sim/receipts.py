"""Received by all: when a message is delivered as safe, does every member of the view hold it?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unisono.model import Member, Message, Service

if TYPE_CHECKING:
    from unisono.sim.incarnations import SimIncarnation
    from unisono.sim.world import World


class Receipts:
    """Asks the cores themselves, at the moment of delivery.

    What is left of a view when it ends is delivered in it by those who stay together. So it is no
    fault that a member lacks a message which the life's next view, or the transitional view in
    which it delivers, is without.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._lacking: dict[SimIncarnation, list[tuple[Member, str]]] = {}
        """By life, members that lacked what it delivered in its present view."""
        self._marks: dict[SimIncarnation, dict[Member, int]] = {}
        """By life and sender, up to which number it is known to hold all."""

    def delivered(self, life: SimIncarnation, messages: Sequence[Message]) -> None:
        """Those that a life delivered count as held, whatever its core still has."""
        mine = self._marks.setdefault(life, {})
        highest: dict[Member, int] = {}
        for message in messages:
            if message.number > mine.get(message.sender, 0):
                mine[message.sender] = message.number
            if message.service == Service.SAFE:
                highest[message.sender] = max(highest.get(message.sender, 0), message.number)
        if highest:
            for member in life.audience:
                self._ask(life, member, highest)

    def installed(self, life: SimIncarnation) -> None:
        """The life's view is over: who stays must have had all when it was delivered."""
        for member, text in self._lacking.pop(life, ()):
            if member in life.audience:
                self._world.broken("received_by_all", text, life)

    def close(self) -> None:
        """The run is over."""
        for life in list(self._lacking):
            if not life.over:
                self.installed(life)

    def _ask(self, life: SimIncarnation, member: Member, highest: dict[Member, int]) -> None:
        other = self._world.life_of.get(member)
        # Who stopped or left has told the others so, and no longer counts.
        if other is None or other is life or other.stopped:
            return
        marks = self._marks.setdefault(other, {})
        if all(marks.get(sender, 0) >= number for sender, number in highest.items()):
            return
        held = other.tap.held()
        for sender, mark in held.items():
            marks[sender] = max(marks.get(sender, 0), mark)
        for sender, number in highest.items():
            # Who is past the view in which the sender was says nothing of it any more.
            if sender in held and marks[sender] < number:
                text = f"{sender}:{number} is delivered as safe, and {member} does not hold it"
                self._lacking.setdefault(life, []).append((member, text))
