"""A tiny real core: no ordering and no repair. Multicasts and delivers, no more."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unisono.core import (
    EVERYONE,
    Adopt,
    Arm,
    Capture,
    Captured,
    Congested,
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
    Received,
    Send,
    Target,
)
from unisono.model import Address, Member, Message, Packets, Service, View
from unisono.spec import ProtocolSpec

OPTIONS = {"beat_us": 20_000, "refill_us": 0, "silent": 0, "fail_at": 0, "bug_at": 0}


class Flood:
    """Members are those whose hello was received and whose bye was not."""

    def __init__(self, setting: CoreConfig) -> None:
        self.me = setting.me
        self.counts: dict[str, int] = {}
        self.setting = setting
        self.options = {**OPTIONS, **setting.options}
        self.members = {setting.me}
        self.said = 0
        self.used = 0
        self.kept: list[Message] | None = None
        self.out: list[Effect] = []

    def send_credit(self) -> int:
        return max(0, self.setting.window_bytes_max - self.used)

    def held(self) -> Mapping[Member, int]:
        return {}

    def transition_counts(self) -> Mapping[str, int]:
        return {}

    def step(self, now_us: int, event: Event) -> list[Effect]:
        self.out = []
        match event:
            case Join():
                self.hello()
                if not self.options["silent"]:
                    self.install()
            case Expired("beat"):
                self.hello()
            case Expired("refill"):
                self.used = 0
            case Multicast(messages, service):
                self.say(list(messages), service)
            case Received(_, packets):
                self.hear(packets)
            case Congested(on):
                self.congested(on)
            case Captured(Member() as newcomer, state):
                self.send((newcomer.address,), "state", state=state.hex())
            case Leave():
                self.send(EVERYONE, "bye")
                self.out.append(Depart())
        return self.out

    def say(self, messages: list[bytes], service: Any) -> None:
        if self.options["bug_at"] and self.said + len(messages) >= self.options["bug_at"]:
            raise RuntimeError("planted")
        packets = []
        for payload in messages:
            self.said += 1
            packets.append(self.packet("say", payload, number=self.said))
            self.deliver(Message(self.me, payload, self.said, self.view_id(), service=service))
        if self.options["refill_us"]:
            self.used += sum(map(len, messages))
            self.out.append(Arm("refill", self.options["refill_us"]))
        self.out.append(Send(EVERYONE, packets))
        if self.options["fail_at"] and self.said >= self.options["fail_at"]:
            self.out.append(Fail("told to fail"))

    def hear(self, packets: Packets) -> None:
        for packet in packets:
            raw = bytes(packet)
            try:
                head = json.loads(raw.partition(b"\n")[0])
            except ValueError:
                self.count("drop.malformed")
                continue
            if head["group"] != self.setting.group:
                self.count("drop.group")
                continue
            name, host, port, incarnation = head["from"]
            sender = Member(name, Address(host, port), incarnation)
            self.count(f"in.{head['kind']}")
            if sender != self.me:
                getattr(self, f"on_{head['kind']}")(sender, head, raw.partition(b"\n")[2])

    def on_hello(self, sender: Member, head: dict[str, Any], payload: bytes) -> None:
        if sender in self.members or self.options["silent"]:
            return
        eldest = min(self.members, key=lambda who: who.incarnation) == self.me
        self.members.add(sender)
        self.install()
        self.send((sender.address,), "hello")
        if eldest and self.setting.with_state and sender.incarnation > self.me.incarnation:
            self.out.append(Capture(sender))

    def on_bye(self, sender: Member, head: dict[str, Any], payload: bytes) -> None:
        if sender in self.members:
            self.members.discard(sender)
            self.install()

    def on_say(self, sender: Member, head: dict[str, Any], payload: bytes) -> None:
        if sender in self.members:
            self.deliver(Message(sender, payload, head["number"], self.view_id()))

    def on_state(self, sender: Member, head: dict[str, Any], payload: bytes) -> None:
        self.out.append(Adopt(bytes.fromhex(head["state"])))

    def deliver(self, message: Message) -> None:
        if self.kept is not None:
            self.kept.append(message)
        else:
            self.out.append(Deliver([message]))

    def congested(self, on: bool) -> None:
        self.count(f"congested.{on}")
        if on:
            self.kept = self.kept if self.kept is not None else []
        elif self.kept is not None:
            self.out.append(Deliver(self.kept))
            self.kept = None

    def install(self) -> None:
        self.out.append(Install(View(tuple(sorted(self.members)), self.view_id())))

    def view_id(self) -> str:
        return "+".join(sorted(map(str, self.members)))

    def hello(self) -> None:
        self.send(EVERYONE, "hello")
        self.out.append(Arm("beat", self.options["beat_us"]))

    def send(self, to: Target, kind: str, **more: Any) -> None:
        self.out.append(Send(to, [self.packet(kind, **more)]))

    def packet(self, kind: str, payload: bytes = b"", **more: Any) -> bytes:
        self.count(f"out.{kind}")
        me = [self.me.name, *self.me.address, self.me.incarnation]
        head = {"group": self.setting.group, "kind": kind, "from": me, **more}
        return json.dumps(head).encode() + b"\n" + payload

    def count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1


FLOOD = ProtocolSpec(
    name="flood",
    make=Flood,
    title="No ordering",
    services=(Service.UNRELIABLE, Service.RELIABLE),
    laws=(),
    options=OPTIONS,
    wire_number=202,
)
UNSURE = replace(FLOOD, name="unsure", services=(Service.UNRELIABLE,))


class Lingering(Flood):
    """It never gets to leaving."""

    def step(self, now_us: int, event: Event) -> list[Effect]:
        return [] if isinstance(event, Leave) else super().step(now_us, event)


LINGERING = replace(FLOOD, name="lingering", make=Lingering)
