"""MTP cores on one stage, for tests that look inside."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from tests.scenarios.stage import Actor, Stage
from unisono.core import EVERYONE, Effect, Event, Received, Send
from unisono.core import Target as To
from unisono.layout import decode_front, encode
from unisono.protocols.mtp.batch import Batch, BatchRow, MessageBatch, MixedBatch
from unisono.protocols.mtp.core import Mtp
from unisono.protocols.mtp.packets import (
    PROTOCOL,
    Header,
    PacketKind,
    bits_of,
    write_header,
)
from unisono.protocols.mtp.reading import Packet, read
from unisono.wire import cut, seal, tag_of, unseal

GROUP = tag_of("stage")
LATE_MS = 6_000
"""By then a web has come together, or it never does."""
P = TypeVar("P", bound=Packet)


class Sent(NamedTuple):
    """A packet on its way, opened."""

    at_us: int
    by: str
    to: To
    packet: Packet
    life: int
    sealed: bytes


class Room(Stage):
    """A stage that remembers every packet sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Sent] = []

    def born(self, actor: Actor) -> None:
        """Forged packets name the group and have nothing of its terms."""
        actor.inner.codec.group = GROUP

    def _carry(self, actor: Actor, to: Any, packets: list[bytes]) -> None:
        for sealed in packets:
            envelope = unseal(sealed, PROTOCOL, GROUP)
            packet = read(envelope.kind, envelope.body)
            self.sent.append(Sent(self.now_us, actor.name, to, packet, envelope.life, sealed))
        super()._carry(actor, to, packets)

    def hush(self) -> None:
        """Forget what was sent so far."""
        self.sent.clear()

    def of(self, kind: type[P], by: str = "") -> list[P]:
        """The packets of a kind, from all or from one."""
        return [s.packet for s in self.sent if isinstance(s.packet, kind) and by in ("", s.by)]

    def sends(self, kind: type[P], by: str = "") -> list[Sent]:
        return [s for s in self.sent if isinstance(s.packet, kind) and by in ("", s.by)]


def together(*names: str, **options: int) -> Room:
    """A room in which these are members of one web, and quiet. The first are its masters."""
    room = Room()
    settings = " ".join(f"{key}={value}" for key, value in options.items())
    masters = options.get("masters", 1)
    room.obey(f"start mtp {' '.join(names)} {settings}\njoin {' '.join(names[:masters])}")
    gather(room, *names[:masters])
    for name in names[masters:]:  # One after the other: the order of members is theirs.
        room.obey(f"join {name}")
        gather(room, *names[: names.index(name) + 1])
    room.obey("advance 400ms")
    room.hush()
    return room


def gather(room: Room, *names: str) -> None:
    """Let time pass until these see each other."""
    for _ in range(LATE_MS // 50):
        room.obey("advance 50ms")
        if all(set(names) <= seen(room, name) for name in names):
            return
    raise AssertionError(f"not together: {[(name, seen(room, name)) for name in names]}")


def seen(room: Room, name: str) -> set[str]:
    """The names in the member's last view."""
    views = room.actors[name].views
    return {member.name for member in views[-1].members} if views else set()


def core(room: Stage, name: str) -> Mtp:
    inner: Any = room.actors[name].inner
    assert isinstance(inner, Mtp)
    return inner


def step(room: Stage, name: str, event: Event) -> list[Effect]:
    """One step of the bare core, its effects not performed."""
    return core(room, name).step(room.now_us, event)


def packets_in(effects: list[Effect]) -> list[tuple[To, Packet]]:
    """What the effects send: targets and decoded packets."""
    found = []
    for effect in effects:
        if isinstance(effect, Send):
            for packet in effect.packets:
                envelope = unseal(packet, PROTOCOL, GROUP)
                found.append((effect.to, read(envelope.kind, envelope.body)))
    return found


def header_of(room: Stage, name: str, **changes: Any) -> Header:
    """The header that this member would write now, with changes; `last` is given as statuses."""
    who = core(room, name)
    envelope = memoryview(who.packets.header())
    header, _ = decode_front(Header, envelope)
    if "last" in changes:
        last = changes.pop("last")
        changes |= {"bits": bits_of(last), "t": len(last)}
    return header._replace(**changes)


def forged(
    room: Stage, by: str, kind: PacketKind, packet: Any, life: int | None = None, **changes: Any
) -> Received:
    """A packet of our making, with the header of a member as it is now, changed at will."""
    header = write_header(header_of(room, by, **changes))
    its = core(room, by).codec.life if life is None else life
    body = header + encode(packet)
    return Received(room.actors[by].address, [seal(PROTOCOL, kind, GROUP, its, body)])


def batch_of(first: int, payloads: Sequence[bytes], services: bytes) -> MessageBatch:
    """A batch of these messages, each with its service; those alike side by side."""
    groups: list[BatchRow] = []
    alike = groupby(zip(payloads, services, strict=True), key=lambda row: (len(row[0]), row[1]))
    for (length, service), rows in alike:
        groups += BatchRow.of([payload for payload, _ in rows], length, service)
    return MessageBatch(first, tuple(groups))


def payloads_of(batch: Batch) -> list[bytes]:
    """The payloads of a batch."""
    if isinstance(batch, MixedBatch):
        return list(batch.payloads)
    return [
        payload
        for times, length, _, octets, start in batch.groups
        for payload in (cut(octets, start, length, times) if length else [b""] * times)
    ]


def services_of(batch: Batch) -> bytes:
    if isinstance(batch, MixedBatch):
        return batch.services
    return bytes(group.service for group in batch.groups for _ in range(group.times))


def handed(room: Stage, sent: Sent) -> Received:
    """A packet that was sent, as it arrives."""
    return Received(room.actors[sent.by].address, [sent.sealed])


def delivered(text: str) -> dict[str, list[str]]:
    """Per member, what it delivered, in order."""
    heard: dict[str, list[str]] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) > 2 and words[1] == "delivers":
            heard.setdefault(words[0], []).append(words[3])
    return heard


__all__ = ["EVERYONE", "GROUP", "Room", "Sent", "batch_of", "core", "delivered", "forged", "gather"]
__all__ += ["handed", "header_of", "packets_in", "payloads_of", "seen", "services_of", "step"]
__all__ += ["together"]
