"""The door of a core: looks at each packet's envelope once, and counts what it turns away."""

from __future__ import annotations

from collections.abc import Iterator

from unisono.errors import BadPacket
from unisono.model import Buffer, Packets
from unisono.wire import NO_LIFE, Envelope, seal, tag_of, unseal


class Door:
    """Seals what goes out and opens what comes in, for one protocol and one group."""

    __slots__ = ("_group", "_kinds", "_protocol", "counts", "life")

    def __init__(self, protocol: int, kinds: dict[int, str], group: str) -> None:
        self._protocol = protocol
        self._kinds = kinds
        self._group = tag_of(group)
        self.counts: dict[str, int] = {}
        self.life = NO_LIFE
        """The connection identifier of this life of the group, once known."""

    def count(self, name: str, by: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + by

    def drop(self, reason: str) -> None:
        self.count(f"drop.{reason}")

    def admit(self, packets: Packets) -> Iterator[Envelope]:
        """The packets that are of this protocol and group, whatever their life."""
        for packet in packets:
            try:
                envelope = unseal(packet, self._protocol, self._group)
            except BadPacket as bad:
                self.drop(bad.reason)
                continue
            kind = self._kinds.get(envelope.kind)
            if kind is None:
                self.drop("kind")
                continue
            self.count(f"in.{kind}")
            yield envelope

    def seal(self, kind: int, body: Buffer, life: int | None = None) -> bytes:
        self.count(f"out.{self._kinds[kind]}")
        its_life = self.life if life is None else life
        return seal(self._protocol, kind, self._group, its_life, body)
