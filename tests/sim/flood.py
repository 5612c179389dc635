"""A small real core for the simulator's own tests: floods, asks again, and goes by heartbeats.

Each member sees who it has heard of lately; messages come in each sender's order, once. Options
plant bugs, so that a checker can be seen to fail.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping

from unisono.core import (
    EVERYONE,
    Arm,
    Capture,
    Congested,
    Core,
    CoreConfig,
    Deliver,
    Depart,
    Effect,
    Event,
    Expired,
    Fail,
    Install,
    Join,
    Leave,
    Multicast,
    Persist,
    Received,
    Restart,
    Send,
)
from unisono.model import Address, Member, Message, Service, View
from unisono.spec import ProtocolSpec

BEAT_US = 50_000
LISTEN_US = 200_000
SILENT_US = 1_000_000
FIFO = Service.FIFO
DOUBLE, CRASHES, SPINS = 1, 2, 3


class Peer:
    """What is known of one other life."""

    def __init__(self, member: Member, told: int) -> None:
        self.member = member
        self.cut = self.had = self.told = told
        self.heard_us = 0
        self.parts: dict[tuple[int, int], tuple[int, bytes]] = {}


class Flood:
    def __init__(self, setting: CoreConfig) -> None:
        self.me = setting.me
        self.counts: dict[str, int] = {}
        self.now_us = 0
        self._bug = setting.options.get("bug", 0)
        self._fragile = setting.options.get("fragile", 0)
        self._chunk = setting.packet_bytes_max - 160
        self._window = setting.window_bytes_max
        self._peers: dict[str, Peer] = {}
        self._said: list[bytes] = []
        self._held: list[Message] = []
        self._congested = False
        self._view: tuple[Member, ...] = ()
        self._views = 0
        self._inside = False
        self._due_us = 0

    def send_credit(self) -> int:
        return self._window if self._view else 0

    def held(self) -> Mapping[Member, int]:
        return {}

    def transition_counts(self) -> Mapping[str, int]:
        return {}

    def step(self, now_us: int, event: Event) -> list[Effect]:
        self.now_us = now_us
        out: list[Effect] = []
        match event:
            case Join():
                out += [Persist(str(self.me).encode()), Arm("beat", 1), Arm("listen", LISTEN_US)]
                self._due_us = now_us
            case Restart(stable):
                self._count("restored", len(stable))
            case Leave():
                self._tell(out, {"bye": 1})
                out.append(Depart())
            case Received(source, packets):
                for packet in packets:
                    self._packet(out, source, bytes(packet))
            case Expired("listen"):
                self._inside = True
                self._look(out)
            case Expired():
                self._beat(out)
            case Multicast(messages, _):
                for payload in messages:
                    self._said.append(payload)
                    number = len(self._said)
                    self._send_message(out, number)
                    self._deliver(out, self._message(self.me, payload, number))
            case Congested(on):
                self._congested = on
                if not on and self._held:
                    out.append(Deliver(self._held))
                    self._held = []
        return out

    def _count(self, name: str, by: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + by

    def _beat(self, out: list[Effect]) -> None:
        if self._fragile and self.now_us - self._due_us > 400_000:
            out.append(Fail("was asleep"))
            return
        self._due_us = self.now_us + BEAT_US
        out.append(Arm("beat", 0 if self._bug == SPINS and self._views > 2 else BEAT_US))
        self._tell(out, {"told": len(self._said)})
        self._look(out)
        for peer in self._peers.values():
            if peer.told > peer.had:
                self._count("nak")
                self._tell(out, {"nak": peer.had + 1}, (peer.member.address,))

    def _tell(
        self,
        out: list[Effect],
        head: dict[str, object],
        to: tuple[Address, ...] | None = None,
        body: bytes = b"",
    ) -> None:
        text = json.dumps({"name": self.me.name, "life": self.me.incarnation} | head).encode()
        packet = len(text).to_bytes(2, "big") + text + body
        packet += zlib.crc32(packet).to_bytes(4, "big")
        out.append(Send(EVERYONE if to is None else to, [packet]))

    def _send_message(
        self, out: list[Effect], number: int, to: tuple[Address, ...] | None = None
    ) -> None:
        payload = self._said[number - 1]
        pieces = -(-len(payload) // self._chunk) or 1
        for piece in range(pieces):
            body = payload[piece * self._chunk : (piece + 1) * self._chunk]
            self._tell(out, {"number": number, "piece": piece, "of": pieces}, to, body)

    def _packet(self, out: list[Effect], source: Address, packet: bytes) -> None:
        if len(packet) < 6 or zlib.crc32(packet[:-4]) != int.from_bytes(packet[-4:], "big"):
            self._count("drop.corrupt")
            return
        start = 2 + int.from_bytes(packet[:2], "big")
        head = json.loads(packet[2:start])
        member = Member(head["name"], source, head["life"])
        if member.name == self.me.name:
            return
        peer = self._peers.get(member.name)
        if peer is None or peer.member.incarnation < member.incarnation:
            if "told" not in head:
                return
            # What was said before the first view is before its time; of whom it hears later it
            # wants all.
            before = 0 if self._inside else head["told"]
            peer = self._peers[member.name] = Peer(member, before)
        elif peer.member != member:
            return
        peer.heard_us = self.now_us
        if "bye" in head:
            peer.heard_us = -SILENT_US
        elif "told" in head:
            peer.told = max(peer.told, head["told"])
        elif "nak" in head:
            for number in range(head["nak"], min(len(self._said), head["nak"] + 20) + 1):
                self._count("repair")
                self._send_message(out, number, (source,))
        elif self._inside:
            self._look(out)
            self._piece(out, peer, head, packet[start:-4])
        self._look(out)

    def _piece(self, out: list[Effect], peer: Peer, head: dict[str, int], body: bytes) -> None:
        number, of = head["number"], head["of"]
        if number <= peer.had:
            if self._bug == DOUBLE and of == 1 and number == peer.had > peer.cut:
                self._deliver(out, self._message(peer.member, body, number))
            return
        if self._bug == CRASHES and number == 3:
            raise ZeroDivisionError("planted")
        peer.told = max(peer.told, number)
        peer.parts[number, head["piece"]] = of, body
        while (peer.had + 1, 0) in peer.parts:
            number, of = peer.had + 1, peer.parts[peer.had + 1, 0][0]
            if not all((number, piece) in peer.parts for piece in range(of)):
                return
            whole = b"".join(peer.parts.pop((number, piece))[1] for piece in range(of))
            peer.had = number
            self._deliver(out, self._message(peer.member, whole, number))

    def _message(self, sender: Member, payload: bytes, number: int) -> Message:
        return Message(sender, payload, number, view=f"{self.me}/{self._views}", service=FIFO)

    def _deliver(self, out: list[Effect], message: Message) -> None:
        if self._congested:
            self._held.append(message)
        else:
            out.append(Deliver([message]))

    def _look(self, out: list[Effect]) -> None:
        """Install who was heard of lately, when that has changed."""
        if not self._inside:
            return
        lately = [p for p in self._peers.values() if self.now_us - p.heard_us < SILENT_US]
        view = tuple(sorted([self.me, *(peer.member for peer in lately)]))
        if view != self._view:
            self._views += 1
            self._view = view
            heard = self._peers.values() if self._views == 1 else ()
            cut = tuple((peer.member, peer.cut) for peer in heard)
            out.append(Install(View(view, id=f"{self.me}/{self._views}", cut=cut)))
            if self._views == 2:
                out.append(Capture("state"))


def make(setting: CoreConfig) -> Core:
    return Flood(setting)


FLOOD = ProtocolSpec(
    name="flood",
    make=make,
    title="flooding with heartbeats",
    services=(Service.RELIABLE, Service.FIFO),
    laws=("no_creation", "no_duplication", "fifo", "progress"),
    options={"bug": 0, "fragile": 0},
    wire_number=203,
)
