"""rmcast cores in a room together, for tests that look inside."""

from __future__ import annotations

from typing import Any

from tests.scenarios.stage import Actor, Stage
from unisono.core import Effect, Event, Received, Send
from unisono.layout import encode
from unisono.model import Address
from unisono.protocols.rmcast.core import Rmcast
from unisono.protocols.rmcast.packets import (
    KINDS,
    PROTOCOL,
    Beat,
    Data,
    Header,
    Packet,
    PacketKind,
    read,
    write_header,
)
from unisono.wire import seal, tag_of, unseal

GROUP = tag_of("stage")


class Room(Stage):
    """A stage for packets of our making."""

    def born(self, actor: Actor) -> None:
        """Packets of our making name the group and say nothing of its terms."""
        actor.inner.codec.group = GROUP


def together(*names: str, **options: int) -> Stage:
    """A stage on which these are members of one group, and quiet."""
    stage = Room()
    settings = " ".join(f"{key}={value}" for key, value in options.items())
    stage.obey(f"start rmcast {' '.join(names)} {settings}\njoin {' '.join(names)}\nadvance 1200ms")
    for name in names:
        assert len(core(stage, name).roster.group()) == len(names)
    return stage


def core(stage: Stage, name: str) -> Rmcast:
    inner: Any = stage.actors[name].inner
    assert isinstance(inner, Rmcast)
    return inner


def step(stage: Stage, name: str, event: Event) -> list[Effect]:
    """One step of the bare core, its effects not performed."""
    return core(stage, name).step(stage.now_us, event)


def packets_in(effects: list[Effect]) -> list[tuple[tuple[Address, ...], Packet]]:
    """What the effects send: to whom, and the packets decoded."""
    found = []
    for effect in effects:
        if isinstance(effect, Send) and isinstance(effect.to, tuple):
            for packet in effect.packets:
                envelope = unseal(packet, PROTOCOL, GROUP)
                found.append((effect.to, read(envelope.kind, envelope.body)))
    return found


def beat(stage: Stage, sender: str, to: str, header: Header) -> Received:
    """A heartbeat with a header of our making."""
    life = core(stage, to).codec.life
    body = write_header(header) + encode(Beat(header))
    packet = seal(PROTOCOL, PacketKind.BEAT, GROUP, life, body)
    return Received(stage.actors[sender].address, [packet])


__all__ = ["GROUP", "KINDS", "Data", "beat", "core", "packets_in", "step", "together"]
