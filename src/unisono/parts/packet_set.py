"""The packets of a protocol: declared records, numbered on the wire, and labelled in traces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from unisono.errors import BadPacket
from unisono.layout import decode, encode
from unisono.model import Buffer, Packets
from unisono.parts.codec import PacketCodec
from unisono.parts.labels import labeller
from unisono.wire import Envelope


class PacketSet:
    """Records by kind, from 1 on in the order given. The label of a record without a `label()` is
    its name."""

    def __init__(self, protocol: int, *records: type[Any]) -> None:
        self.protocol = protocol
        self.records = records
        self._kinds = {record: kind for kind, record in enumerate(records, 1)}
        self.names = {kind: record.__name__.lower() for record, kind in self._kinds.items()}

    def opened(self, codec: PacketCodec, packets: Packets) -> Iterator[tuple[Any, int]]:
        """The packets of a burst, each with the life in its envelope; what cannot be read is
        dropped."""
        for envelope in codec.admit(packets):
            try:
                yield self._read(envelope), envelope.life
            except BadPacket as bad:
                codec.drop(bad.reason)

    def sealed(
        self, codec: PacketCodec, packets: Iterable[Any], life: int | None = None
    ) -> list[bytes]:
        return [codec.seal(self._kinds[type(each)], encode(each), life) for each in packets]

    def label(self, packet: Buffer) -> str:
        """A `ProtocolSpec.label`."""
        return labeller(self.protocol, self.names, self._describe)(packet)

    def _read(self, envelope: Envelope) -> Any:
        return decode(self.records[envelope.kind - 1], envelope.body)

    def _describe(self, envelope: Envelope) -> str:
        named = getattr(self._read(envelope), "label", None)
        return self.names[envelope.kind] if named is None else str(named())
