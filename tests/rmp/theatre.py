"""Sites of an RMP ring on a stage, for tests that look at their packets and effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from tests.scenarios.stage import Actor, Stage
from unisono.core import Deliver, Effect, Install, Multicast, Request, Stabilize, Target
from unisono.model import Change, Message, Service, ServiceLevel, View
from unisono.protocols.rmp.core import Rmp
from unisono.protocols.rmp.data_packets import Data
from unisono.protocols.rmp.packets import PROTOCOL, AckFields, Packet, PacketKind, read
from unisono.requests import GroupCommand
from unisono.wire import note_in, unseal

DETECT_US = 200_000
LATE_MS = 8_000
"""By then what is expected has happened, or never does."""
E = TypeVar("E")


class Sent(NamedTuple):
    """A packet on its way, decoded."""

    at_us: int
    by: str
    to: Target
    kind: PacketKind
    trid: int
    packet: Any


Losing = Callable[[str, str, Packet], bool]
"""Whether a packet, from one name to another, is lost."""


def opened(sealed: bytes) -> tuple[PacketKind, int, Packet]:
    envelope = unseal(sealed, PROTOCOL, int.from_bytes(sealed[6:14], "big"))
    return PacketKind(envelope.kind), envelope.life, read(envelope.kind, envelope.body)


class Room(Stage):
    """A stage that records packets and effects, and loses what a test wants lost."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Sent] = []
        self.loses: Losing | None = None
        self.effects: dict[str, list[Effect]] = {}

    def _carry(self, actor: Actor, to: Any, packets: list[bytes]) -> None:
        for sealed in packets:
            if note_in(sealed) is None:
                self.sent.append(Sent(self.now_us, actor.name, to, *opened(sealed)))
        if self.loses is None:
            super()._carry(actor, to, packets)
            return
        for other in self.actors.values():
            if other is actor or (isinstance(to, tuple) and other.address not in to):
                continue
            kept = [p for p in packets if not self.loses(actor.name, other.name, opened(p)[2])]
            if kept:
                super()._carry(actor, (other.address,), kept)

    def _perform(self, actor: Actor, effect: Effect) -> None:
        self.effects.setdefault(actor.name, []).append(effect)
        super()._perform(actor, effect)

    # -- what happened ----------------------------------------------------------------------------

    def of(self, *kinds: PacketKind, by: str = "") -> list[Sent]:
        return [sent for sent in self.sent if sent.kind in kinds and by in ("", sent.by)]

    def acks(self) -> list[AckFields]:
        """Each ACK once, from the site that made it."""
        found = {s.packet.timestamp: s.packet for s in self.of(PacketKind.ACK)}
        return [found[timestamp] for timestamp in sorted(found)]

    def found(self, name: str, kind: type[E]) -> list[E]:
        return [each for each in self.effects.get(name, []) if isinstance(each, kind)]

    def messages(self, name: str) -> list[Message]:
        return [m for effect in self.found(name, Deliver) for m in effect.messages]

    def payloads(self, name: str) -> list[str]:
        return [message.payload.decode() for message in self.messages(name)]

    def stable(self, name: str) -> list[str]:
        return [m.payload.decode() for e in self.found(name, Stabilize) for m in e.messages]

    def views(self, name: str) -> list[View]:
        return [effect.view for effect in self.found(name, Install)]

    def changes(self, name: str) -> list[Change]:
        return [change for view in self.views(name) for change in view.changes]

    def members(self, name: str) -> str:
        """Of its last view, by name."""
        return "".join(member.name for member in self.views(name)[-1].members)

    def forget(self) -> None:
        """What happened so far."""
        self.sent.clear()
        self.effects.clear()

    # -- what happens next ------------------------------------------------------------------------

    def pass_ms(self, amount: int) -> None:
        self.obey(f"advance {amount}ms")

    def until(self, happened: Callable[[], Any], late_ms: int = LATE_MS) -> None:
        for _ in range(late_ms):
            if happened():
                return
            self.pass_ms(1)
        assert happened(), "it never happens"

    def multicast(self, name: str, text: str, service: ServiceLevel = Service.AGREED) -> None:
        self._step(self.actors[name], Multicast([text.encode()], service))

    def multicast_all(self, name: str, texts: list[str], service: ServiceLevel) -> None:
        self._step(self.actors[name], Multicast([text.encode() for text in texts], service))

    def request(self, name: str, command: GroupCommand, key: int = 0) -> None:
        self._step(self.actors[name], Request(command, key))

    def site(self, name: str) -> Any:
        inner = self.actors[name].inner
        assert isinstance(inner, Rmp)
        return inner

    def key(self, name: str) -> int:
        key: int = self.site(name)._state.key
        return key

    def names(self) -> dict[int, str]:
        return {self.key(name): name for name, actor in self.actors.items() if actor.inner}

    def token_state(self, name: str) -> str:
        state: str = self.site(name)._token_machine.state.name
        return state

    def reform_state(self, name: str) -> str:
        state: str = self.site(name)._reform_machine.state.name
        return state

    def holder(self) -> str:
        """The site that has the token, once one has it."""
        self.until(lambda: self._holders())
        return self._holders()[0]

    def _holders(self) -> list[str]:
        return [n for n, a in self.actors.items() if a.core and self.token_state(n) == "TOKEN_SITE"]

    def rest_at(self, name: str) -> None:
        """Until the token is at this site, and what was ordered is stable."""
        site = self.site(name)
        self.until(
            lambda: (
                self.token_state(name) == "TOKEN_SITE"
                and site._resilience.stable() >= site._queue.named
            )
        )


def together(*names: str, room: Room | None = None, **options: int) -> Room:
    """A ring of these, in this order on the token list, and quiet."""
    room = room or Room()
    settings = {"detect_us": DETECT_US, "verdict_us": 1_000_000, **options}
    words = " ".join(f"{key}={value}" for key, value in settings.items())
    room.obey(f"start rmp {' '.join(names)} {words}")
    for count, name in enumerate(names, 1):
        room.obey(f"join {name}")
        for _ in range(100):
            if all(room.views(each) and len(room.members(each)) == count for each in names[:count]):
                break
            room.pass_ms(20)
        else:
            raise AssertionError("not together")
    room.rest_at(names[0])
    room.forget()
    return room


def is_data_of(packet: Packet, key: int) -> bool:
    return isinstance(packet, Data) and packet.sender == key
