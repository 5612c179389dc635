"""Small cores with a planted bug each, which only one kind of fault brings to light.

All beat every 50 ms. A bug shows as an assertion that fails (`no_crash`), or as a law of the world.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from unisono.core import (
    EVERYONE,
    Arm,
    CoreConfig,
    Deliver,
    Effect,
    Event,
    Expired,
    Install,
    Join,
    Multicast,
    Persist,
    Received,
    Request,
    Restart,
    Send,
)
from unisono.model import Address, Member, Message, Service, View
from unisono.requests import GoOn
from unisono.spec import ProtocolSpec

BEAT_US = 50_000


class Toy:
    """Tells the others that it is there, and is alone in its view."""

    def __init__(self, setting: CoreConfig) -> None:
        self.me = setting.me
        self.setting = setting
        self.counts: dict[str, int] = {}
        self.arrows: dict[str, int] = {}
        self.now_us = 0
        self.beats = 0

    def send_credit(self) -> int:
        return 1 << 16

    def held(self) -> Mapping[Member, int]:
        return {}

    def transition_counts(self) -> Mapping[str, int]:
        return self.arrows

    def step(self, now_us: int, event: Event) -> list[Effect]:
        self.now_us = now_us
        out: list[Effect] = []
        if isinstance(event, Join):
            out += [Install(View((self.me,), f"{self.me}")), Arm("beat", BEAT_US)]
            self.begin(out)
        elif isinstance(event, Restart):
            self.remember(event.stable)
        elif isinstance(event, Received):
            for packet in event.packets:
                self.hear(json.loads(bytes(packet)), event.source, out)
        elif isinstance(event, Expired) and event.timer == "beat":
            self.beats += 1
            out += [Arm("beat", BEAT_US), Send(EVERYONE, [json.dumps(self.word()).encode()])]
            self.beat(out)
        elif isinstance(event, Expired):
            self.expired(event.timer, out)
        elif isinstance(event, Multicast):
            self.say(event, out)
        elif isinstance(event, Request):
            self.asked(event)
        return out

    def word(self) -> dict[str, Any]:
        return {"name": self.me.name, "life": self.me.incarnation, "at": self.now_us}

    def begin(self, out: list[Effect]) -> None: ...

    def remember(self, records: tuple[bytes, ...]) -> None: ...

    def hear(self, word: dict[str, Any], source: Address, out: list[Effect]) -> None: ...

    def beat(self, out: list[Effect]) -> None: ...

    def expired(self, timer: object, out: list[Effect]) -> None: ...

    def say(self, event: Multicast, out: list[Effect]) -> None: ...

    def asked(self, event: Request) -> None: ...


class TwoRecords(Toy):
    """Writes two records for one thing, as if nothing could come between them."""

    def remember(self, records: tuple[bytes, ...]) -> None:
        assert len(records) % 2 == 0, "half of it was written"

    def beat(self, out: list[Effect]) -> None:
        out += [Persist(b"begun"), Persist(b"done")]


class Hasty(Toy):
    """Tells what it has written before it is written."""

    def __init__(self, setting: CoreConfig) -> None:
        super().__init__(setting)
        self.written = 0
        self.told: dict[str, int] = {}

    def remember(self, records: tuple[bytes, ...]) -> None:
        self.written = len(records)

    def word(self) -> dict[str, Any]:
        self.written += 1
        return {**super().word(), "written": self.written}

    def beat(self, out: list[Effect]) -> None:
        out.append(Persist(b"one more"))

    def hear(self, word: dict[str, Any], source: Address, out: list[Effect]) -> None:
        assert word["written"] > self.told.get(word["name"], 0), "told, and then forgotten"
        self.told[word["name"]] = word["written"]


class Trusting(Toy):
    """Takes for granted that it remembers."""

    def begin(self, out: list[Effect]) -> None:
        out.append(Persist(b"here"))

    def remember(self, records: tuple[bytes, ...]) -> None:
        assert records, "what was written is there"


class Prompt(Toy):
    """Takes for granted that no packet is older than half a second."""

    def hear(self, word: dict[str, Any], source: Address, out: list[Effect]) -> None:
        assert self.now_us - word["at"] < 500_000, "from another time"


class Working(Toy):
    """Is busy for a tenth of a millisecond a second, and cannot die then."""

    def remember(self, records: tuple[bytes, ...]) -> None:
        assert not records or records[-1] == b"idle", "died at work"

    def beat(self, out: list[Effect]) -> None:
        if self.beats % 20 == 0:
            self.arrows["IDLE --beat/work--> BUSY"] = self.beats // 20
            out += [Persist(b"busy"), Arm("work", 100)]

    def expired(self, timer: object, out: list[Effect]) -> None:
        out.append(Persist(b"idle"))


class Growing(Toy):
    """Installs a view a second, and cannot die right after one."""

    def remember(self, records: tuple[bytes, ...]) -> None:
        assert not records or records[-1] == b"whole", "died amid a change"

    def beat(self, out: list[Effect]) -> None:
        if self.beats % 20 == 0:
            view = View((self.me,), f"{self.me}/{self.beats}")
            out += [Persist(b"torn"), Install(view), Persist(b"whole")]


class Suspicious(Toy):
    """Has a table for twenty suspicions, and no bound."""

    def __init__(self, setting: CoreConfig) -> None:
        super().__init__(setting)
        self.heard: dict[str, int] = {}
        self.suspicions = 0

    def hear(self, word: dict[str, Any], source: Address, out: list[Effect]) -> None:
        self.heard[word["name"]] = self.now_us

    def beat(self, out: list[Effect]) -> None:
        for name, at_us in list(self.heard.items()):
            if self.now_us - at_us > 3 * BEAT_US:
                del self.heard[name]
                self.suspicions += 1
        assert self.suspicions <= 20, "the table is full"


class Transitive(Toy):
    """Takes for granted that whoever its neighbours hear it hears, too."""

    def __init__(self, setting: CoreConfig) -> None:
        super().__init__(setting)
        self.heard: dict[str, int] = {}
        self.strange = 0

    def word(self) -> dict[str, Any]:
        return {**super().word(), "hears": sorted(self._lately(3))}

    def hear(self, word: dict[str, Any], source: Address, out: list[Effect]) -> None:
        self.heard[word["name"]] = self.now_us
        missing = set(word["hears"]) - set(self._lately(20)) - {self.me.name}
        assert not missing or self.now_us < 1_000_000, "it hears one that we do not"

    def _lately(self, beats: int) -> list[str]:
        since_us = self.now_us - beats * BEAT_US
        return [name for name, at_us in self.heard.items() if at_us >= since_us]


class Punctual(Toy):
    """Takes for granted that all clocks run alike."""

    def __init__(self, setting: CoreConfig) -> None:
        super().__init__(setting)
        self.since: dict[str, tuple[int, int]] = {}
        self.due_us = 0

    def beat(self, out: list[Effect]) -> None:
        late_us = self.now_us - self.due_us if self.due_us else 0
        assert late_us < 4 * BEAT_US, "the clock has jumped"
        self.due_us = self.now_us + BEAT_US

    def hear(self, word: dict[str, Any], source: Address, out: list[Effect]) -> None:
        theirs, mine = self.since.setdefault(word["name"], (word["at"], self.now_us))
        run_us, theirs_us = self.now_us - mine, word["at"] - theirs
        assert abs(run_us - theirs_us) < 100_000 + run_us // 10, "their clock is another"


class Rising(Toy):
    """Takes for granted that lives of one name count upwards."""

    def __init__(self, setting: CoreConfig) -> None:
        super().__init__(setting)
        self.highest: dict[str, int] = {}

    def hear(self, word: dict[str, Any], source: Address, out: list[Effect]) -> None:
        assert word["life"] >= self.highest.get(word["name"], 0), "a life went back"
        self.highest[word["name"]] = word["life"]


class Open(Toy):
    """Lets everybody in."""

    def __init__(self, setting: CoreConfig) -> None:
        super().__init__(setting)
        self.members: dict[Address, Member] = {self.me.address: self.me}

    def hear(self, word: dict[str, Any], source: Address, out: list[Effect]) -> None:
        member = Member(word["name"], source, word["life"])
        if self.members.get(source) != member:
            self.members[source] = member
            view = View(tuple(sorted(self.members.values())), f"{self.me}/{len(self.members)}")
            out.append(Install(view))


class Expelling(Open):
    """Lets everybody in, and after a second throws the last one out."""

    def beat(self, out: list[Effect]) -> None:
        if self.beats == 20:
            out.append(Install(View(tuple(sorted(self.members.values()))[:-1], "less")))


class ByLevel(Toy):
    """Counts the messages of each level apart."""

    def __init__(self, setting: CoreConfig) -> None:
        super().__init__(setting)
        self.said: dict[Any, int] = {}

    def say(self, event: Multicast, out: list[Effect]) -> None:
        for payload in event.messages:
            self.said[event.service] = self.said.get(event.service, 0) + 1
            number = self.said[event.service]
            said = Message(self.me, payload, number, f"{self.me}", service=event.service)
            out.append(Deliver([said]))


class Complete(Open):
    """Forms a view only of all three, and goes on in no other."""

    said = 0

    def begin(self, out: list[Effect]) -> None:
        out.clear()
        out.append(Arm("beat", BEAT_US))

    def hear(self, word: dict[str, Any], source: Address, out: list[Effect]) -> None:
        member = Member(word["name"], source, word["life"])
        if "said" in word:
            payload = bytes.fromhex(word["payload"])
            out.append(Deliver([Message(member, payload, word["said"])]))
            return
        before, self.members[source] = self.members.get(source), member
        if before != member and len(self.members) == 3:
            members = tuple(sorted(self.members.values()))
            out.append(Install(View(members, "/".join(map(str, members)))))

    def say(self, event: Multicast, out: list[Effect]) -> None:
        for payload in event.messages:
            self.said += 1
            word = {**self.word(), "said": self.said, "payload": payload.hex()}
            out += [
                Deliver([Message(self.me, payload, self.said)]),
                Send(EVERYONE, [json.dumps(word).encode()]),
            ]


class Deaf(Toy):
    """Never thought that anybody would ask."""

    def asked(self, event: Request) -> None:
        raise KeyError(event.what)


def spec_of(toy: type[Toy], *laws: str) -> ProtocolSpec:
    return ProtocolSpec(
        name=toy.__name__.lower(),
        make=toy,
        title="a toy",
        services=(Service.FIFO, Service.CAUSAL),
        laws=laws,
        options={},
        wire_number=204,
        requests=(GoOn,),
        arrows=("IDLE --beat/work--> BUSY",),
    )
