"""The plan of a run, and the run: every system in turns, round after round, so that what else the
machine has to do weighs on all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from unisono.bench.crew import Crew
from unisono.bench.ours import LIBRARY, Ours
from unisono.bench.processes import Trouble
from unisono.bench.results import Key, Row, delays, poured
from unisono.bench.stage import LOOPBACK, stage
from unisono.bench.standing import Standing, joining_ms, recovery_ms
from unisono.bench.system import Load, Stage, System

ALL: Final = 0
"""As a number of senders: every member."""
LONE_RATE, LONE_SHARE = 100.0, 0.05
"""At low load each sender says so many a second, and all of them at most this share of the peak,
so that each message is alone under way."""
ATTEMPTS_MAX: Final = 2

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What is measured; every combination of the first five."""

    members: tuple[int, ...] = (3,)
    sizes: tuple[int, ...] = (64, 1000)
    senders: tuple[int, ...] = (1, ALL)
    services: tuple[str, ...] = ()
    """None means the one that each system has for who asks for none."""
    vias: tuple[str, ...] = (LIBRARY,)
    net: str = LOOPBACK
    seconds: float = 0.3
    """Of each measurement."""
    warm_s: float = 0.2
    """Before the first of each round."""
    rounds: int = 3
    recovery: bool = False
    """Measure also, for ours, what a killed member and a new one with state cost."""
    state_octets: int = 1_000_000


class Part(NamedTuple):
    """A system with what it is asked for."""

    system: System
    service: str
    via: str

    def __str__(self) -> str:
        return Key(self.system.name, self.service, self.via, 0, 0, 0).label


@dataclass
class Found:
    """What came of it."""

    rows: dict[Key, Row] = field(default_factory=dict)
    standing: list[Standing] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    """By system or load, why it was not measured."""
    troubles: list[str] = field(default_factory=list)


def parts(plan: Plan, systems: Sequence[System]) -> list[Part]:
    found = []
    for system in systems:
        only = getattr(system, "only", "")
        services = (only,) if only else plan.services or (getattr(system, "usual", "agreed"),)
        vias = plan.vias if isinstance(system, Ours) else (LIBRARY,)
        found += [Part(system, service, via) for service in services for via in vias]
    return found


def loads(plan: Plan, part: Part, members: int) -> Iterator[Load]:
    for size in plan.sizes:
        for senders in dict.fromkeys(each or members for each in plan.senders):
            if senders <= members:
                yield Load(members, size, senders, part.service, part.via)


class Run:
    """One run of a plan. `tell` says how far it is, `warn` what goes wrong, once each."""

    def __init__(self, plan: Plan, systems: Sequence[System], tell: Tell, warn: Tell) -> None:
        self._plan = plan
        self._systems = systems
        self._tell = tell
        self._warn = warn
        self._given_up: set[Part] = set()
        self.found = Found()

    def run(self) -> Found:
        present = []
        for system in self._systems:
            if why := system.missing():
                self._skip(system.name, why)
            else:
                present.append(system)
        chosen = parts(self._plan, present)
        for members in self._plan.members:
            self._given_up.clear()
            with stage(self._plan.net, members) as here:
                self._on(here, chosen)
        return self.found

    def _on(self, here: Stage, chosen: Sequence[Part]) -> None:
        members = len(here.seats)
        asked = {part: self._accepted(part, members) for part in chosen}
        for turn in range(self._plan.rounds):
            # There and back again: none is always the first, or always after the same one.
            for part in chosen if turn % 2 == 0 else reversed(chosen):
                if asked[part] and part not in self._given_up:
                    self._round(here, part, asked[part], turn)
        if self._plan.recovery:
            for part in chosen:
                if asked[part] and part not in self._given_up and isinstance(part.system, Ours):
                    self._stand(here, part.system, asked[part][0])

    def _accepted(self, part: Part, members: int) -> list[Load]:
        found = []
        for load in loads(self._plan, part, members):
            why = part.system.refuses(load)
            if why:
                self._skip(f"{part}, {load.senders} of {members} sending {load.size} B", why)
            else:
                found.append(load)
        return found

    def _skip(self, what: str, why: str) -> None:
        if why not in self.found.skipped.values():
            self._warn(f"skipped: {why}")
        self.found.skipped[what] = why

    # -- a round --------------------------------------------------------------------------------

    def _round(self, here: Stage, part: Part, asked: Sequence[Load], turn: int) -> None:
        """All its loads, with the same members as long as these hold."""
        left = list(asked)
        attempts = 0
        while left:
            before = len(left)
            try:
                self._attempt(here, part, left, turn)
            except (Trouble, OSError) as trouble:
                attempts = attempts + 1 if len(left) == before else 1
                if attempts < ATTEMPTS_MAX:
                    continue
                load = left.pop(0)
                self._trouble(f"{part}, {_words(load)}, round {turn + 1}: {trouble}")
                if len(left) == len(asked) - 1:  # not even the first: why wait for the others
                    self._given_up.add(part)
                    return
                attempts = 0

    def _attempt(self, here: Stage, part: Part, left: list[Load], turn: int) -> None:
        """Take from what is left what is measured."""
        round_of = f"round {turn + 1}/{self._plan.rounds}: {part}"
        self._tell(f"{round_of} starts, {len(here.seats)} members")
        whole = Load(
            len(here.seats),
            max(load.size for load in left),
            max(load.senders for load in left),
            part.service,
            part.via,
        )
        with part.system.started(here, whole) as troupe:
            crew = Crew(troupe, here)
            crew.wait_ready()
            if self._plan.warm_s:
                crew.pour(self._plan.warm_s, left[0].size, left[0].senders)
            while left:
                load = left[0]
                self._tell(f"{round_of}, {_words(load)}")
                self._measure(crew, self._row(part, load), load, turn)
                left.pop(0)

    def _row(self, part: Part, load: Load) -> Row:
        key = Key.of(part.system.name, load)
        return self.found.rows.setdefault(key, Row(key))

    def _measure(self, crew: Crew, row: Row, load: Load, turn: int) -> None:
        seconds = self._plan.seconds
        begin_ns, answers = crew.pour(seconds, load.size, load.senders)
        found = poured(begin_ns, answers, crew.servers_cpu_ns, crew.rss_peak_kb())
        peak = found.messages_per_s / load.senders
        low = min(LONE_RATE, LONE_SHARE * peak)
        lone = delays(crew.probe(seconds, load.size, load.senders, low))
        loaded = delays(crew.probe(seconds, load.size, load.senders, peak / 2))
        # All of a round or nothing of it.
        row.poured[turn] = found
        row.lone.append(lone)
        row.loaded.append(loaded)

    def _trouble(self, words: str) -> None:
        self._warn(f"not measured: {words}")
        self.found.troubles.append(words)

    # -- a member killed, a member come -----------------------------------------------------------

    def _stand(self, here: Stage, ours: Ours, load: Load) -> None:
        if load.members < 3:
            self._skip(
                f"{ours.name}, recovery", "recovery needs three members: of two, none is most"
            )
            return
        found = Standing(ours.name, load.service, load.via, load.members, self._plan.state_octets)
        for turn in range(self._plan.rounds):
            self._tell(
                f"round {turn + 1}/{self._plan.rounds}: {ours.name}, one is killed, one joins"
            )
            try:
                found.recovery_ms.append(recovery_ms(ours, here, load))
                found.join_ms.append(joining_ms(ours, here, load, self._plan.state_octets))
            except (Trouble, OSError) as trouble:
                self._trouble(f"{ours.name}, recovery, round {turn + 1}: {trouble}")
        self.found.standing.append(found)


def _words(load: Load) -> str:
    return f"{load.senders} of {load.members} sending {load.size} B"


def as_json(found: Found, about: dict[str, Any]) -> dict[str, Any]:
    from unisono.bench.results import as_json as rows_as_json

    rows = sorted(found.rows.values(), key=lambda row: row.key.load)
    return {
        "results": rows_as_json(rows),
        "recovery": [each.as_json() for each in found.standing if each.recovery_ms],
        "skipped": found.skipped,
        "troubles": found.troubles,
        "about": about,
    }
