"""Members of an RMP group in one process: a clock, timers, and a network that tests may cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeVar

from unisono.core import (
    Arm,
    CoreConfig,
    Deliver,
    Disarm,
    Effect,
    Event,
    Everyone,
    Expired,
    Install,
    Join,
    Multicast,
    Received,
    Request,
    Send,
)
from unisono.model import Address, ChangeKind, Member, Message, Service, ServiceLevel, View
from unisono.protocols.rmp.core import Rmp
from unisono.protocols.rmp.labels import label
from unisono.requests import GroupCommand

DELAY_US = 200
E = TypeVar("E", bound=Effect)


class Stage:
    """The members that were made so far, all started."""

    def __init__(
        self, *names: str, window_bytes: int = 4 << 20, group: str = "stage", **options: int
    ) -> None:
        self.now_us = 0
        self._group = group
        self.cores: dict[str, Rmp] = {}
        self.done: dict[str, list[Effect]] = {}
        self.packets: list[tuple[int, str, str]] = []
        """When, sender and label of each that was sent."""
        self.sealed: list[bytes] = []
        """The packets themselves."""
        self.is_lost: Callable[[str, str, str], bool] = lambda sender, receiver, what: False
        self._options = options
        self._window_bytes = window_bytes
        self._queue: list[tuple[int, int, str, Event | None, Any]] = []
        self._order = count()
        self._armed: dict[tuple[str, Any], int] = {}
        for name in names:
            self.start(name)
            self.run(1_500_000)

    def start(self, name: str, incarnation: int = 1, **options: int) -> None:
        member = Member(name, Address("10.0.0.1", 7000 + ord(name)), incarnation)
        chosen = {**self._options, **options}
        config = CoreConfig(
            member, self._group, ord(name), window_bytes_max=self._window_bytes, options=chosen
        )
        self.cores[name] = Rmp(config)
        self.done[name] = []
        self.step(name, Join())

    def kill(self, name: str) -> None:
        del self.cores[name]

    def step(self, name: str, event: Event) -> None:
        if name not in self.cores:
            return
        for effect in self.cores[name].step(self.now_us, event):
            self._perform(name, effect)

    def multicast(
        self, name: str, *payloads: bytes, service: ServiceLevel = Service.AGREED
    ) -> None:
        self.step(name, Multicast(payloads, service))

    def request(self, name: str, command: GroupCommand, key: int = 0) -> None:
        self.step(name, Request(command, key))

    def _perform(self, name: str, effect: Effect) -> None:
        if isinstance(effect, Arm):
            self._armed[name, effect.timer] = at = self.now_us + effect.after_us
            heappush(self._queue, (at, next(self._order), name, None, effect.timer))
        elif isinstance(effect, Disarm):
            self._armed.pop((name, effect.timer), None)
        elif isinstance(effect, Send):
            self._send(name, effect)
        else:
            self.done[name].append(effect)

    def _send(self, sender: str, effect: Send) -> None:
        packets = [bytes(packet) for packet in effect.packets]
        self.packets += [(self.now_us, sender, label(packet)) for packet in packets]
        self.sealed += packets
        mine = self.cores[sender].me.address
        for name, core in self.cores.items():
            if not isinstance(effect.to, Everyone) and core.me.address not in effect.to:
                continue
            for packet in packets:
                if name != sender and not self.is_lost(sender, name, label(packet)):
                    event = Received(mine, [packet])
                    at = self.now_us + DELAY_US
                    heappush(self._queue, (at, next(self._order), name, event, None))

    def run(self, for_us: int) -> None:
        end = self.now_us + for_us
        while self._queue and self._queue[0][0] <= end:
            at, _, name, event, timer = heappop(self._queue)
            self.now_us = max(self.now_us, at)
            if event is not None:
                self.step(name, event)
            elif self._armed.get((name, timer)) == at:
                del self._armed[name, timer]
                self.step(name, Expired(timer))
        self.now_us = end

    # -- what happened ----------------------------------------------------------------------------

    def only(self, name: str, kind: type[E]) -> list[E]:
        return [effect for effect in self.done[name] if isinstance(effect, kind)]

    def delivered(self, name: str) -> list[Message]:
        return [message for effect in self.only(name, Deliver) for message in effect.messages]

    def views(self, name: str) -> list[View]:
        return [effect.view for effect in self.only(name, Install)]

    def changes(self, name: str, *kinds: ChangeKind) -> list[str]:
        return [
            f"{change} {change.where.value}"
            for view in self.views(name)
            for change in view.changes
            if change.what in kinds
        ]

    def sent(self, sender: str, word: str, since_us: int = 0) -> list[str]:
        return [
            what
            for at, who, what in self.packets
            if who == sender and at >= since_us and what.split(" ")[0] == word
        ]

    def payloads(self, name: str) -> Sequence[bytes]:
        return [message.payload for message in self.delivered(name)]

    def members(self, name: str) -> Iterator[str]:
        return (member.name for member in self.views(name)[-1].members)
