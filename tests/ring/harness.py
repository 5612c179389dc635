"""Sites of a ring on one stage, for tests that look at the packets between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from tests.scenarios.stage import Actor, Stage
from unisono.core import EVERYONE, Arm, Deliver, Effect, Event, Received, Send
from unisono.core import Target as To
from unisono.layout import encode
from unisono.model import Buffer, Member, Message, Service
from unisono.parts.turn import OriginRun, write_runs
from unisono.protocols.ring.codes import Code, Timer
from unisono.protocols.ring.core import Site
from unisono.protocols.ring.packets import (
    HEADER_BYTES,
    NO_VERSION,
    PROTOCOL,
    TURN,
    TURN_BYTES,
    Header,
    MemberRecord,
    Packet,
    TurnPacket,
    Version,
    code_of,
    key_of,
    read,
)
from unisono.wire import note_in, seal, tag_of, unseal

GROUP = tag_of("stage")
LATE_MS = 6_000
"""By then a ring has come together, or it never does."""
P = TypeVar("P")


class Sent(NamedTuple):
    """A packet on its way, opened."""

    at_us: int
    by: str
    to: To
    packet: Any
    sealed: bytes

    @property
    def code(self) -> Code:
        return code_of(self.packet)


Losing = Callable[[str, str, Any], bool]
"""Whether a packet, from one name to another, is lost."""


def opened(packet: Buffer) -> Packet:
    envelope = unseal(packet, PROTOCOL, int.from_bytes(packet[6:14], "big"))
    return read(envelope.kind, envelope.life, envelope.body)


class Room(Stage):
    """A stage that remembers every packet sent, and loses what a test wants lost."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Sent] = []
        self.loses: Losing | None = None
        self.has_terms = False
        """Packets carry the members' terms; forged ones carry none."""
        self.heard: dict[str, list[tuple[int, Message]]] = {}
        """Per member: when it delivered what."""

    def born(self, actor: Actor) -> None:
        """Forged packets name the group and have nothing of its terms."""
        if not self.has_terms:
            actor.inner.codec.group = GROUP

    def _carry(self, actor: Actor, to: Any, packets: list[bytes]) -> None:
        for sealed in packets:
            if note_in(sealed) is None:
                self.sent.append(Sent(self.now_us, actor.name, to, opened(sealed), sealed))
        if self.loses is None:
            super()._carry(actor, to, packets)
            return
        for other in self.actors.values():
            if other is actor or (isinstance(to, tuple) and other.address not in to):
                continue
            kept = [p for p in packets if not self.loses(actor.name, other.name, opened(p))]
            if kept:
                super()._carry(actor, (other.address,), kept)

    def _perform(self, actor: Actor, effect: Effect) -> None:
        if isinstance(effect, Deliver):
            here = self.heard.setdefault(actor.name, [])
            here += [(self.now_us, message) for message in effect.messages]
        super()._perform(actor, effect)

    def hush(self) -> None:
        """Forget what was sent so far."""
        self.sent.clear()

    def of(self, *codes: Code, by: str = "") -> list[Sent]:
        """The packets of these codes, from all or from one."""
        return [sent for sent in self.sent if sent.code in codes and by in ("", sent.by)]

    def pass_ms(self, amount: int) -> None:
        self.obey(f"advance {amount}ms")

    def until(self, happened: Callable[[], Any], step_ms: int = 1, late_ms: int = LATE_MS) -> None:
        """Let time pass until it has happened."""
        for _ in range(late_ms // step_ms):
            if happened():
                return
            self.pass_ms(step_ms)
        assert happened(), "it never happens"

    def words(self, name: str) -> list[str]:
        """What a member delivered, in order."""
        return [message.payload.decode() for _, message in self.heard.get(name, [])]


def losing(*codes: Code, by: str = "", to: str = "") -> Losing:
    """Every packet of these codes is lost, on the ways that are named."""

    def loses(source: str, target: str, packet: Packet) -> bool:
        return code_of(packet) in codes and by in ("", source) and to in ("", target)

    return loses


def started(*names: str, **options: int) -> Room:
    """A stage on which these are ready, and none has been asked to join."""
    room = Room()
    settings = " ".join(f"{key}={value}" for key, value in options.items())
    room.obey(f"start ring {' '.join(names)} {settings}")
    return room


def together(*names: str, **options: int) -> Room:
    """A room in which these are on one ring."""
    room = started(*names, **options)
    room.obey(f"join {' '.join(names)}")
    gather(room, *names)
    room.hush()
    return room


def quiet(*names: str, **options: int) -> Room:
    """On one ring that has slowed down, since all are idle."""
    room = together(*names, **options)
    room.pass_ms(400)
    room.hush()
    return room


def gather(room: Room, *names: str, late_ms: int = LATE_MS) -> None:
    """Let time pass until these, and no others, see each other on a ring in force."""
    for _ in range(late_ms // 10):
        room.pass_ms(10)
        if are_together(room, names):
            return
    raise AssertionError(f"not together: {[(name, sorted(seen(room, name))) for name in names]}")


def are_together(room: Room, names: Iterable[str]) -> bool:
    wanted = set(names)
    here = [site(room, name) for name in wanted]
    versions = {each.state.ring.version for each in here if each.state.is_normal}
    return (
        all(seen(room, name) == wanted for name in wanted)
        and all(each.state.is_normal for each in here)
        and len(versions) == 1
    )


def seen(room: Room, name: str) -> set[str]:
    """The names in the member's last view."""
    views = room.actors[name].views
    return {member.name for member in views[-1].members} if views else set()


def site(room: Stage, name: str) -> Site:
    inner: Any = room.actors[name].inner
    assert isinstance(inner, Site)
    return inner


def ring_order(room: Stage, name: str = "") -> list[str]:
    """The members on the ring, from P0 on."""
    who = name or next(iter(room.actors))
    return [member.name for member in site(room, who).state.ring.members]


def holder_of(room: Stage, s: int, name: str = "") -> str:
    """Whose turn follows turn s."""
    order = ring_order(room, name)
    return order[(s + 1) % len(order)]


def S(room: Stage, name: str) -> int:
    """The last turn that a member has."""
    return site(room, name).ordering.S


def at_rest(room: Room, by: str = "") -> int:
    """Let time pass until all have the same turn and the token rests, at `by` if it is named; the
    number of that turn."""

    def rests() -> bool:
        turns = {S(room, name) for name, actor in room.actors.items() if actor.core is not None}
        here = len(turns) == 1 and not room._queue
        return here and by in ("", holder_of(room, min(turns), by))

    room.until(rests)
    return next(S(room, name) for name, actor in room.actors.items() if actor.core is not None)


LAWS = "check total_order agreement virtual_synchrony view_order self_inclusion safe"


def lawful(room: Room) -> None:
    """Nothing that happened so far breaks a law."""
    assert "broken" not in room.obey(LAWS)


def leader_of(room: Room) -> str:
    """P0, as the first that lives sees it."""
    alive = [name for name, actor in room.actors.items() if actor.core is not None]
    return ring_order(room, alive[0])[0]


def step(room: Stage, name: str, event: Event) -> list[Effect]:
    """One step of the bare core, its effects not performed."""
    return site(room, name).step(room.now_us, event)


def silence_holder(who: Site) -> None:
    """It was asked often enough, and nothing came."""
    who.detection.tries = who.parameters.tries
    key = key_of(who.token.holder())
    now_us = who.agenda.now_us
    who.detection.detector.watch(key, now_us)
    while not who.detection.detector.is_silent(key):
        now_us += who.parameters.look_us
        who.detection.detector.look(now_us)


def rebind(who: Site) -> None:
    """Let the machines look up their methods again, after some were replaced."""
    for machine in (who.send, who.receive, who.coordinator, who.reformation):
        machine._bound.clear()
        machine._look_up()


def packets_in(effects: list[Effect]) -> list[tuple[To, Any]]:
    """What the effects send: targets and decoded packets."""
    return [
        (effect.to, opened(packet))
        for effect in effects
        if isinstance(effect, Send)
        for packet in effect.packets
    ]


def delivered_in(effects: list[Effect]) -> list[str]:
    return [
        message.payload.decode()
        for effect in effects
        if isinstance(effect, Deliver)
        for message in effect.messages
    ]


def armed_in(effects: list[Effect]) -> dict[Any, int]:
    return {effect.timer: effect.after_us for effect in effects if isinstance(effect, Arm)}


# -- forged packets -----------------------------------------------------------------------------


def sealed(code: Code, header: Header, tail: bytes = b"") -> bytes:
    body = header.packed(HEADER_BYTES + len(tail)) + tail
    return seal(PROTOCOL, code, GROUP, header.version.leader, body)


def header_of(room: Stage, by: str, **changes: Any) -> Header:
    """The header that a member would write now, with changes."""
    who = site(room, by)
    header = Header(
        who.state.version, who.state.key, who.state.key, 0, S(room, by), who.ordering.safe
    )
    return header._replace(**changes)


def handed(room: Stage, by: str, *packets: bytes) -> Received:
    return Received(room.actors[by].address, list(packets))


def control(room: Stage, by: str, code: Code, **changes: Any) -> Received:
    return handed(room, by, sealed(code, header_of(room, by, **changes)))


def turn(
    room: Stage,
    s: int,
    *words: str,
    service: Service = Service.AGREED,
    by: str = "",
    first: int = 1,
    flags: int = 0,
    origin: str = "",
    k: int = 0,
) -> bytes:
    """The packet of a turn, of the one whose turn it is unless another is named."""
    name = by or holder_of(room, s - 1)
    who = site(room, name)
    speaker = site(room, origin or name).state.key
    pieces = [word.encode() for word in words]
    runs = [OriginRun.of(speaker, first, [int(service)] * len(words), pieces)] if words else []
    content = write_runs(runs)
    header = Header(who.state.ring.version, who.state.key, speaker, 0, s, k)
    return sealed(Code.TOKEN_BC, header, TURN.pack(1, flags, 0) + content)


def invitation(
    member: Member, version: Version, s: int, attempt: int, bits: int, code: Code = Code.REF_INV_BC
) -> bytes:
    header = Header(version, key_of(member), key_of(member), 0, s, 0)
    person = MemberRecord(code, header, attempt, bits, attempt, NO_VERSION, member)
    return sealed(code, header, encode(person))


def turns_of(room: Room, by: str = "") -> list[TurnPacket]:
    """The turns that were sent, each once."""
    found = {sent.packet.header.s: sent.packet for sent in room.of(Code.TOKEN_BC, by=by)}
    return [found[s] for s in sorted(found)]


__all__ = ["EVERYONE", "TURN_BYTES", "Timer"]
