"""The usual load of a simulated node: its payloads, and the state that it hands to joiners."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from random import Random
from typing import Final

from unisono.model import ChangeKind, Member, Message, Service, View
from unisono.sim.plan import Weather

_POOL: Final = Random(0).randbytes(1 << 16)
"""Payload bytes are cut from here: varied enough, and cheap."""


def drawn_sizes(weather: Weather, count: int, roll: Random) -> list[int]:
    """Sizes of a burst of messages: mostly small, now and then several packets long."""
    largest = min(weather.packet_bytes_max * weather.large_packets, weather.window_bytes_max // 2)
    sizes = []
    for _ in range(count):
        if roll.random() * 1_000_000 < weather.large_ppm:
            sizes.append(roll.randint(min(200, largest), largest))
        else:
            sizes.append(min(roll.randint(0, 120), largest))
    return sizes


def payload_of(sender: Member, number: int, size: int) -> bytes:
    """Bytes of about this size that no other message has."""
    head = f"{sender}:{number} ".encode()
    start = number * 131 % 4096
    missing = size - len(head)
    while missing > len(_POOL) - start:
        head += _POOL
        missing -= len(_POOL)
    return head + _POOL[start : start + missing] if missing > 0 else head


class Memory:
    """What an application has delivered: the state that it hands to joiners.

    `numbers` is the highest number delivered by sender. `message_set` is a digest of the set of
    messages, whatever their order; `sequence` of their sequence. Where the order is total, the
    same set must come with the same sequence. Both are of messages of this level and above.
    `part` is the view with which a part of the group last went on by itself (`parted`): two parts
    order what was under way each in its own way.
    """

    def __init__(self, level: Service = Service.UNRELIABLE) -> None:
        self._level = level
        self.numbers: dict[str, int] = {}
        self.message_set = 0
        self.sequence = 0
        self.part = ""
        self.adopted: dict[str, int] | None = None
        self._view: View | None = None

    def deliver(self, messages: Sequence[Message]) -> None:
        for message in messages:
            sender = str(message.sender)
            if message.number > self.numbers.get(sender, 0):
                self.numbers[sender] = message.number
            if isinstance(message.service, Service) and message.service < self._level:
                continue
            mark = blake2b(f"{sender}:{message.number}".encode(), digest_size=8).digest()
            self.message_set ^= int.from_bytes(mark, "little")
            link = self.sequence.to_bytes(8, "little") + mark
            self.sequence = int.from_bytes(blake2b(link, digest_size=8).digest(), "little")

    def state(self) -> bytes:
        state = [self.numbers, self.message_set, self.sequence, self.part]
        return json.dumps(state, sort_keys=True).encode()

    def adopt(self, state: bytes, me: Member) -> str:
        """Take over a state; returns what is wrong with it, or nothing."""
        try:
            numbers, message_set, sequence, part = json.loads(state)
        except ValueError:
            return "the adopted state is not one that was captured"
        if self.numbers:
            return "a state was adopted after messages had been delivered"
        self.numbers, self.message_set, self.sequence, self.part = (
            dict(numbers),
            message_set,
            sequence,
            part,
        )
        self.adopted = dict(numbers)
        return self._judge(me)

    def install(self, view: View, me: Member) -> str:
        """Note the first view; returns how it contradicts an adopted state, or nothing. What a
        later view cuts off, of a component that merges with ours, we do not expect any more."""
        # Newcomers are told of a parting too: theirs is that of the state that they adopted.
        is_parted = any(change.what is ChangeKind.PARTED for change in view.changes)
        if is_parted and (self.adopted is None or self._view is not None):
            self.part = view.id
        if self._view is not None:
            for member, number in view.cut:
                self.numbers[str(member)] = max(number, self.numbers.get(str(member), 0))
            return ""
        self._view = view
        return self._judge(me)

    def _judge(self, me: Member) -> str:
        """The state and the cut must agree on every member that may still send."""
        if self.adopted is None or self._view is None:
            return ""
        cut = {str(member): number for member, number in self._view.cut}
        for member in sorted(map(str, self._view.members)):
            has, cut_off = self.adopted.get(member, 0), cut.get(member, 0)
            if has != cut_off and member != str(me):
                return f"the adopted state has {member} up to {has}, the cut says {cut_off}"
        return ""
