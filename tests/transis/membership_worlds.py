"""Three members, every cut and merge, and a second change at every step of the first.

The network is in parts. A *change* puts it into other parts, or lets a member crash or leave. Each
world begins at rest in some parts; a first change is made, and after each of the steps that follow
(a packet that arrives, a timer that expires) the world is copied, and a second change made. At
both changes every member sends. Packets that are under way between two parts arrive or are lost.

Then the world must come to rest in its parts, merge once the network is whole, deliver, and keep
every law, within bounds of time and of views.
"""

from __future__ import annotations

import copy
import copyreg
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from typing import Final, NamedTuple, TypeAlias

from tests.scenarios.stage import Actor
from tests.transis.test_rules import Room
from unisono.core import Received
from unisono.protocols.transis.states import REGULAR

copyreg.pickle(memoryview, lambda view: (memoryview, (bytes(view),)))  # So that worlds are copied.

Parts: TypeAlias = tuple[str, ...]

PARTS: Final[tuple[Parts, ...]] = (
    ("abc",), ("ab", "c"), ("ac", "b"), ("a", "bc"), ("a", "b", "c"),
)  # fmt: skip
DETECT_US: Final = 100_000
REST_US: Final = 20 * DETECT_US
"""Within this time any change is over."""
STEPS_MAX: Final = 4_000
CALM_STEPS: Final = 16
"""After so many steps, while nobody has noticed the first change and all say that they are alive,
the second is made at every so many."""
VIEWS_MAX: Final = 8
"""Views of a member after two changes and a merge; transitional ones are not counted."""


class Arrival:
    """Packets under way."""

    def __init__(self, world: World, source: Actor, to: Actor, packets: list[bytes]) -> None:
        self.world, self.source, self.to, self.packets = world, source, to, packets

    def __call__(self) -> None:
        self.world._step(self.to, Received(self.source.address, self.packets))


class World(Room):
    """Three members in parts."""

    parts: Parts = PARTS[0]

    def __init__(self) -> None:
        super().__init__()
        self.sent = dict.fromkeys("abc", 0)
        self.shown_before: dict[str, int] = {}

    def _arrival(self, source: Actor, to: Actor, packets: list[bytes]) -> Arrival:
        return Arrival(self, source, to, packets)

    def part(self, parts: Parts, is_lossy: bool) -> None:
        self.parts = parts
        side = {name: at for at, part in enumerate(parts) for name in part}
        self._cut = {(a, b) for a, b in product("abc", repeat=2) if side[a] != side[b]}
        if is_lossy:
            kept = [
                entry
                for entry in self._queue
                if (entry[2].source.name, entry[2].to.name) not in self._cut
            ]
            self._queue[:] = kept

    def shown(self, name: str) -> int:
        return sum(not view.transitional for view in self.actors[name].views)

    def is_calm(self) -> bool:
        """Nobody is in a change."""
        return all(self.core(name).machine.state is REGULAR for name in self.alive())

    def alive(self) -> str:
        return "".join(
            name
            for name, actor in self.actors.items()
            if actor.core is not None and not actor.inner.local.leaving
        )

    def is_at_rest(self) -> bool:
        """Each has the view of its part, and nobody is in a change."""
        alive = self.alive()
        here = [actor.inner for actor in self.actors.values() if actor.core is not None]
        if any(core.local.leaving and not core._over for core in here):
            return False
        for part in self.parts:
            present = "".join(name for name in part if name in alive)
            for name in present:
                core = self.core(name)
                if core.machine.state is not REGULAR or self.members(name) != present:
                    return False
        return True

    def speak(self) -> None:
        """Every member says something; the first a safe message."""
        alive = self.alive()
        for name in alive:
            self.sent[name] += 1
            level = "safe" if name == alive[0] else "agreed"
            self.obey(f"service {level}\nsay {name} {self.sent[name]}")

    def come_to_rest(self) -> None:
        end, steps = self.now_us + REST_US, 0
        while not self.is_at_rest():
            steps += 1
            in_time = steps < STEPS_MAX and self.advance_one(end)
            assert in_time, f"no rest in {self.parts}: {self.states()}"

    def states(self) -> dict[str, tuple[str, str]]:
        return {
            name: (self.core(name).machine.state.name, self.members(name)) for name in self.alive()
        }


class Change(NamedTuple):
    """What happens next."""

    parts: Parts
    crash: str = ""
    leave: str = ""
    is_lossy: bool = False

    def happen(self, world: World) -> None:
        world.part(self.parts, self.is_lossy)
        if self.crash:
            world.obey(f"crash {self.crash}")
        if self.leave:
            world.obey(f"leave {self.leave}")

    def __str__(self) -> str:
        how = f" crash {self.crash}" * bool(self.crash) + f" leave {self.leave}" * bool(self.leave)
        return "|".join(self.parts) + how + " lossy" * self.is_lossy


def changes(now: Parts) -> Iterator[Change]:
    """Each that can follow."""
    for is_lossy in (False, True):
        yield from (Change(parts, is_lossy=is_lossy) for parts in PARTS if parts != now)
    for name in "abc":
        yield Change(now, crash=name)
        yield Change(now, leave=name)


FIRST: Final = [(parts, change) for parts in PARTS for change in changes(parts)]


@cache
def at_rest(parts: Parts, token: int) -> World:
    """All have been together, and are in these parts."""
    world = World()
    world.obey(f"start transis a b c detect_us={DETECT_US} token={token}\njoin a b c")
    world.come_to_rest()
    world.obey(f"advance {DETECT_US // 1000}ms")
    world.part(parts, False)
    world.come_to_rest()
    return world


def steps(before: Parts, first: Change, token: int) -> Iterator[tuple[int, World]]:
    """The world after each step of the first change, until it is at rest. What is yielded is not to
    be changed."""
    world = copy.deepcopy(at_rest(before, token))
    world.speak()
    first.happen(world)
    step, end = 0, world.now_us + REST_US
    while True:
        yield step, world
        if world.is_at_rest() and step:
            return
        assert step < STEPS_MAX and world.advance_one(end), f"no rest: {world.states()}"
        step += 1


def finish(world: World) -> None:
    """It comes to rest, merges, delivers, and has kept the laws."""
    world.come_to_rest()
    world.part(PARTS[0], False)
    world.come_to_rest()
    world.speak()
    world.obey("advance 100ms")
    alive = world.alive()
    last = {f"{name}#1:{world.sent[name]}" for name in alive}
    heard = {tuple(each for each in world.delivered(name) if each in last) for name in alive}
    assert len(heard) == 1 and set(*heard) == last, f"delivered at last: {heard}"
    for name, before in world.shown_before.items():
        count = world.shown(name) - before
        assert count <= VIEWS_MAX, f"{name} was shown {count} views"
    world.keeps_the_laws()


def explored(
    before: Parts, first: Change, token: int, wanted: Callable[[int], bool] = lambda _: True
) -> tuple[int, list[str]]:
    """How many worlds were visited, and which of them failed. `wanted` selects by a count."""
    count, failed = 0, []
    shown = {name: at_rest(before, token).shown(name) for name in "abc"}
    for step, world in steps(before, first, token):
        if world.is_at_rest() and step:
            continue  # The second change would be the first one of a world at rest.
        if world.is_calm() and step > CALM_STEPS and step % CALM_STEPS:
            continue
        for second in changes(first.parts):
            if not {second.crash, second.leave}.isdisjoint({first.crash, first.leave} - {""}):
                continue
            count += 1
            if not wanted(count):
                continue
            branch = copy.deepcopy(world)
            branch.shown_before = shown
            branch.speak()
            second.happen(branch)
            try:
                finish(branch)
            except AssertionError as error:
                failed.append(f"{'|'.join(before)} > {first} > step {step} {second}: {error}")
    return count, failed
