"""Every way in which three processes may part, meet, crash and come back while primary components
form, up to so many configurations: never two at a time.

A member may be cut off, or crash, behind any report and between any two steps; a crash leaves what
was made durable. A process that can do nothing more where it is counts as nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import NamedTuple

from unisono.protocols.transis.primary import (
    PrimaryMemory,
    PrimaryReport,
    PrimarySession,
    PrimaryVoting,
    Remember,
    Step,
    Tell,
    write_memory,
)

NOWHERE = -1


class Process(NamedTuple):
    durable: PrimaryMemory = PrimaryMemory()
    memory: PrimaryMemory = PrimaryMemory()
    place: int = NOWHERE
    has_voted: bool = False
    steps: tuple[Step, ...] = ()
    """That it is about to take."""


class Place(NamedTuple):
    """A configuration."""

    names: tuple[str, ...]
    told: tuple[PrimaryMemory, ...]
    """By its members, what they remembered when it began."""
    attempts: tuple[PrimaryMemory | None, ...]
    """By its members, what they told when they had recorded the attempt."""


class World(NamedTuple):
    processes: tuple[Process, ...]
    places: tuple[Place | None, ...] = ()
    formed: frozenset[PrimarySession] = frozenset()


class TwoPrimaries(AssertionError):
    pass


class Explorer:
    def __init__(
        self,
        places_max: int,
        voting: type[PrimaryVoting] = PrimaryVoting,
        names: str = "abc",
        is_begun: bool = False,
    ) -> None:
        self._voting = voting
        self._names = tuple(names)
        formed = PrimarySession(1, self._names)
        begun = PrimaryMemory(1, formed)
        self._first = World(
            (Process(begun, begun) if is_begun else Process(),) * len(names),
            formed=frozenset((formed,) if is_begun else ()),
        )
        """Before anything happened, or when all were together."""
        self._places_max = places_max
        self.seen: set[World] = set()
        self.most_formed = 0

    def explore(self) -> None:
        self.seen = {self._first}
        waiting = [self._first]
        while waiting:
            for world in map(self._settled, self._after(waiting.pop())):
                if world not in self.seen:
                    check(world.formed)
                    self.most_formed = max(self.most_formed, len(world.formed))
                    self.seen.add(world)
                    waiting.append(world)

    def _after(self, world: World) -> Iterator[World]:
        for at, process in enumerate(world.processes):
            if process.steps:
                yield self._do(world, at, process)
            elif process.place != NOWHERE:
                yield from self._hear(world, at, process)
            if process.memory != process.durable:  # Else it is as if it were cut off.
                yield replaced(world, at, Process(process.durable, process.durable))
        if len(world.places) < self._places_max:
            yield from self._begin(world)

    def _begin(self, world: World) -> Iterator[World]:
        """A configuration of some of them, wherever each is. What is to be remembered is, before
        the next event."""
        free = [
            at
            for at, process in enumerate(world.processes)
            if not any(isinstance(step, Remember) for step in process.steps)
        ]
        for count in range(1, len(free) + 1):
            for chosen in combinations(free, count):
                processes = list(world.processes)
                for at in chosen:
                    old = processes[at]
                    processes[at] = Process(old.durable, old.memory, len(world.places))
                names = tuple(self._names[at] for at in chosen)
                told = tuple(world.processes[at].memory for at in chosen)
                place = Place(names, told, (None,) * count)
                yield World(tuple(processes), (*world.places, place), world.formed)

    def _hear(self, world: World, at: int, process: Process) -> Iterator[World]:
        """All reports of one kind, and the first step that follows."""
        place = world.places[process.place]
        assert place is not None
        name = self._names[at]
        voting = self._voting(name, len(self._names))
        voting.restore([write_memory(place.told[place.names.index(name)])])
        voting.begin(place.names)
        steps: list[Step] = []
        for each, memory in zip(place.names, place.told, strict=True):
            steps += voting.take(each, PrimaryReport(False, memory))
        if process.has_voted:
            if None in place.attempts:
                return
            steps = []
            for each, attempt in zip(place.names, place.attempts, strict=True):
                assert attempt is not None
                steps += voting.take(each, PrimaryReport(True, attempt))
        if steps:
            heard = process._replace(memory=voting.memory, has_voted=True, steps=tuple(steps))
            yield self._do(world, at, heard)

    def _do(self, world: World, at: int, process: Process) -> World:
        step, *rest = process.steps
        process = process._replace(steps=tuple(rest))
        places, formed = list(world.places), world.formed
        if isinstance(step, Remember):
            process = process._replace(durable=step.memory)
        elif isinstance(step, Tell):
            place = places[process.place]
            assert place is not None
            mine = place.names.index(self._names[at])
            attempts = list(place.attempts)
            attempts[mine] = step.report.memory
            places[process.place] = place._replace(attempts=tuple(attempts))
        else:
            formed = formed | {step.session}
        return replaced(World(world.processes, tuple(places), formed), at, process)

    def _settled(self, world: World) -> World:
        """Without what makes no difference any more."""
        processes = list(world.processes)
        places = list(world.places)
        for number, place in enumerate(world.places):
            if place is None:
                continue
            here = {at for at, process in enumerate(processes) if process.place == number}
            may_form = all(
                attempt is not None or self._names.index(name) in here
                for name, attempt in zip(place.names, place.attempts, strict=True)
            )
            for at in here:
                process = processes[at]
                is_over = process.has_voted and (
                    not may_form or process.memory.attempts == () != process.memory.formed
                )
                if is_over and process.memory == process.durable:
                    processes[at] = Process(process.durable, process.memory)
            if all(process.place != number for process in processes):
                places[number] = None
        return World(tuple(processes), tuple(places), world.formed)


def replaced(world: World, at: int, process: Process) -> World:
    processes = list(world.processes)
    processes[at] = process
    return world._replace(processes=tuple(processes))


def check(formed: frozenset[PrimarySession]) -> None:
    """One after the other, each with a process of the one before it."""
    for before, after in pairwise(sorted(formed)):
        if before.number == after.number or not set(before.names) & set(after.names):
            raise TwoPrimaries(f"{before} beside {after}")
