"""The packet codec of a core: seals and opens envelopes, and counts what it drops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from unisono.errors import BadPacket
from unisono.model import Buffer, Burst, Packets
from unisono.parts.admission import Terms
from unisono.wire import (
    ENVELOPE_BYTES,
    FRONT_BYTES,
    NO_LIFE,
    Datagram,
    Envelope,
    are_sound,
    heads_match,
    note_in,
    open_batch,
    opened,
    seal,
    unseal,
)

ROW_COUNT: Final = 128
"""Packets that are opened at once."""
FRONTS_MAX: Final = 64
"""Fronts that are remembered."""
NOTES_MAX: Final = 4
"""Notes kept of one burst."""
UNLIKE: Final = frozenset(("protocol", "terms", "version"))
"""Why a packet is dropped that may be of our group, from a process with other options."""


class PacketTrain(NamedTuple):
    """Packets whose bodies begin with the same bytes."""

    first: Envelope
    head_bytes: int
    """The length of what is the same; an index follows, and a piece."""
    indices: tuple[int, ...]
    pieces: tuple[bytes, ...]

    def envelopes(self) -> Iterator[Envelope]:
        """One by one."""
        kind, life, body = self.first
        head = bytes(body[: self.head_bytes])
        for index, piece in zip(self.indices, self.pieces, strict=True):
            whole = b"".join((head, index.to_bytes(2, "big"), piece))
            yield Envelope(kind, life, memoryview(whole))

    def rows(self) -> list[tuple[int, tuple[bytes, ...]]]:
        """The pieces of those that follow each other, with the index of the first."""
        indices, pieces = self.indices, self.pieces
        first, count = indices[0], len(indices)
        if indices == tuple(range(first, first + count)):
            return [(first, pieces)]
        starts = [at for at in range(1, count) if indices[at] != indices[at - 1] + 1]
        return [(indices[at], pieces[at:end]) for at, end in pairwise((0, *starts, count))]


class PacketCodec:
    """Seals what goes out and opens what comes in, for one protocol and one group."""

    __slots__ = (
        "_fronts",
        "_kinds",
        "_protocol",
        "_sent",
        "counts",
        "group",
        "life",
        "notes",
        "odd",
        "unlike",
    )

    def __init__(self, protocol: int, kinds: dict[int, str], terms: Terms) -> None:
        self._protocol = protocol
        self._kinds = kinds
        self.group = terms.tag
        """The group field of the envelope: a hash of its name and its terms."""
        self.odd = False
        """Something came for `Admission`."""
        self.unlike = False
        """A packet with other terms arrived."""
        self.notes: list[memoryview] = []
        self._fronts: dict[bytes, tuple[int, int, str]] = {}
        """Those of packets that were let in: kind, life, and the name they are counted by."""
        self.counts: dict[str, int] = {}
        self._sent = {kind: f"out.{name}" for kind, name in kinds.items()}
        self.life = NO_LIFE
        """The identifier of this incarnation of the group, once known."""

    def enter(self, life: int) -> None:
        """This member is in the group, in this incarnation of it."""
        self.life = life

    def take_odd(self) -> tuple[list[memoryview], bool]:
        """What came for `Admission`: notes, and whether a packet with other terms did."""
        notes, unlike = self.notes, self.unlike
        self.notes, self.unlike, self.odd = [], False, False
        return notes, unlike

    def count(self, name: str, by: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + by

    def drop(self, reason: str, by: int = 1) -> None:
        self.count(f"drop.{reason}", by)

    def admit(self, packets: Packets) -> Iterable[Envelope]:
        """The packets that are of this protocol and group, whatever their incarnation."""
        if type(packets) is list and len(packets) == 1:
            alone = self._opened(packets[0])
            return () if alone is None else (alone,)
        return filter(None, map(self._opened, packets))

    def admit_batch(self, packets: Packets, head_bytes: int) -> Iterable[Envelope | PacketTrain]:
        """The same; packets of a burst with the same head, as `seal_batch` writes them, come as one
        train."""
        if type(packets) is not Burst:  # Faster than isinstance.
            return self.admit(packets)
        if 0 < len(packets.buffer) <= packets.size:
            return self.admit([packets.buffer])
        return self._admit_rows(packets.buffer, packets.size, head_bytes)

    def _admit_rows(
        self, buffer: memoryview, size: int, head_bytes: int
    ) -> Iterator[Envelope | PacketTrain]:
        start = 0
        while start < len(buffer):
            # No more at once, and only where it looks worth while: a burst of which none is like
            # its neighbour costs little more than packets that come alone.
            row = buffer[start : start + ROW_COUNT * size]
            indices: tuple[int, ...] = ()
            pieces: tuple[bytes, ...] = ()
            if heads_match(row, size, head_bytes):
                indices, pieces = open_batch(row, size, head_bytes)
            row = row[: max(1, len(indices)) * size]
            start += len(row)
            if len(indices) < 2 or not are_sound(row):
                yield from self.admit(Burst(row, size))
            elif (envelope := self._opened(row[:size], len(indices))) is not None:
                yield PacketTrain(envelope, head_bytes, indices, pieces)

    def _opened(self, packet: Buffer, alike: int = 0) -> Envelope | None:
        """The envelope of a packet, or of `alike` sound ones with the same head."""
        if type(packet) is Datagram and packet.group == self.group:
            counts, name = self.counts, packet.counter
            counts[name] = counts.get(name, 0) + 1
            return packet.envelope
        count = alike or 1
        front = bytes(packet[:FRONT_BYTES])
        if (known := self._fronts.get(front)) and len(packet) >= ENVELOPE_BYTES:
            kind, life, name = known
            known_again = opened(packet, kind, life, alike > 0)
            if known_again is not None:
                self.counts[name] += count
                if type(packet) is Datagram:
                    packet.note_opened(known_again, self.group, name)
                return known_again
        try:
            envelope = unseal(packet, self._protocol, self.group, sound=alike > 0)
        except BadPacket as bad:
            self._turn_away(packet, bad.reason, count)
            return None
        its_kind = self._kinds.get(envelope.kind)
        if its_kind is None:
            self.drop("kind", count)
            return None
        name = f"in.{its_kind}"
        self.count(name, count)
        if len(self._fronts) >= FRONTS_MAX:
            self._fronts.clear()
        self._fronts[front] = (envelope.kind, envelope.life, name)
        if type(packet) is Datagram:
            packet.note_opened(envelope, self.group, name)
        return envelope

    def _turn_away(self, packet: Buffer, reason: str, count: int) -> None:
        if (note := note_in(packet)) is not None:
            self.odd = True
            if len(self.notes) < NOTES_MAX:
                self.notes.append(note)
            return
        self.drop(reason, count)
        if reason in UNLIKE:
            self.odd = self.unlike = True

    def sent(self, kind: int, count: int) -> None:
        self.count(self._sent[kind], count)

    def seal(self, kind: int, body: Buffer, life: int | None = None) -> bytes:
        self.count(self._sent[kind])
        its_life = self.life if life is None else life
        return seal(self._protocol, kind, self.group, its_life, body)
