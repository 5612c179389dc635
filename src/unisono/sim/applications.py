"""The stage: how a plan brings an application of its own, one object for each life.

The world tells it what is delivered and installed, at its place, and multicasts what it says as
soon as there is room. When all has healed and the probes are through, the run goes on until every
application is idle; then the plan's own judge looks at all the lives there were.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final, Protocol

from unisono.model import Member, Message, ServiceLevel, View

if TYPE_CHECKING:
    from unisono.sim.incarnations import SimIncarnation
    from unisono.sim.world import World, WorldViolation

APPLICATION: Final = "application"
"""The law that the plan's own judge keeps."""

AGAIN_US: Final = 10_000
"""How soon words that found no room are tried again."""


class SimApplication(Protocol):
    """What one life does with its group. Pure: it is told, and it answers with payloads to say."""

    def hear(self, message: Message) -> Sequence[bytes]: ...

    def see(self, view: View) -> Sequence[bytes]: ...

    def prompt(self) -> Sequence[bytes]:
        """One of the plan's messages is due: begin something."""

    def state(self) -> bytes:
        """For one who joins, as it is at this place."""

    def adopt(self, state: bytes) -> Sequence[bytes]:
        """Take over the state of another."""

    def is_idle(self) -> bool:
        """Nothing is under way that more messages would bring to its end."""


@dataclass(frozen=True, slots=True)
class ApplicationContext:
    """All that an application is born with."""

    me: Member
    names: tuple[str, ...]
    """Of all nodes of the run."""
    dice: Random
    records: list[bytes]
    """What earlier lives of the node appended, and this one may: safe over a crash, not over
    amnesia."""
    now_us: Callable[[], int]
    """The world's time, to measure with."""


@dataclass(frozen=True, slots=True)
class ApplicationEnd:
    """A life and its application, when the run is over."""

    me: Member
    application: Any
    alive: bool
    """At the end: what such lives hold must be the same."""


@dataclass(frozen=True, slots=True)
class ApplicationSpec:
    """An application for a plan. Both are importable functions, so that workers find them."""

    make: Callable[[ApplicationContext], SimApplication]
    judge: Callable[[Sequence[ApplicationEnd], Sequence[ServiceLevel]], Iterable[str]]
    """What is wrong at the end, in words. The levels are those that messages had."""


class RunningApplication:
    """A life's application, and the words that it has still to say."""

    def __init__(
        self, life: SimIncarnation, play: ApplicationSpec, roll: Random, levels: Random
    ) -> None:
        world, records = life.world, life.node.records
        names = tuple(each.name for each in world.nodes)
        self._life = life
        self.application = play.make(
            ApplicationContext(life.me, names, roll, records, lambda: world.now_us)
        )
        self._words: deque[bytes] = deque()
        self._levels = levels
        """Dice for what they ask for."""
        self._posted = False

    def hear(self, messages: Sequence[Message]) -> None:
        """The world's own probes are not for it."""
        probes = self._life.world.recovery.probes
        for message in messages:
            if (message.sender, message.number) not in probes:
                self._say(self.application.hear, message)

    def see(self, view: View) -> None:
        self._say(self.application.see, view)

    def prompt(self, count: int) -> None:
        for _ in range(count):
            self._say(self.application.prompt)

    def state(self, memory: bytes) -> bytes:
        """The world's own memory of the life comes first, in one line."""
        return memory + b"\n" + self.application.state()

    def adopt(self, state: bytes) -> bytes:
        """Take over; what is left is the world's."""
        memory, _, own = state.partition(b"\n")
        self._say(self.application.adopt, own)
        return memory

    def is_idle(self) -> bool:
        return not self._words and self.application.is_idle()

    def _say(self, call: Callable[..., Sequence[bytes]], *told: object) -> None:
        """What it answers is said next, not now: the core may be amid a step."""
        world = self._life.world
        try:
            self._words.extend(call(*told))
        except Exception as error:
            world.broken(APPLICATION, where_raised(error), self._life)
        if self._words and not self._posted:
            self._posted = True
            world.post(world.now_us, self._speak, None, None)

    def _service(self) -> ServiceLevel:
        services = self._life.world.services
        return services[0] if len(services) == 1 else self._levels.choice(services)

    def _speak(self, _: None, __: None) -> None:
        self._posted = False
        life, world = self._life, self._life.world
        if life.over or life.leaving:
            self._words.clear()
            return
        fit: list[bytes] = []
        if life.view is not None and not life.node.paused:
            room = life.tap.send_credit()
            while self._words and room >= len(self._words[0]) + 32:
                room -= len(self._words[0]) + 32
                fit.append(self._words.popleft())
        if fit:
            life.say(fit, self._service())
        if self._words and not self._posted:
            self._posted = True
            world.post(world.now_us + AGAIN_US, self._speak, None, None)


def judged(world: World) -> list[WorldViolation]:
    """What the plan's judge finds, once the group has come together again."""
    from unisono.sim.world import WorldViolation

    play = world.plan.application
    if play is None or not world.recovery.progressed:
        return []
    lived = [
        ApplicationEnd(life.me, life.acting.application, not life.over)
        for life in world.life_of.values()
        if life.acting is not None
    ]
    wrong = play.judge(lived, world.services)
    return [WorldViolation(APPLICATION, text, "", world.now_us) for text in wrong]


def where_raised(error: Exception) -> str:
    """The exception, and the way to it, in one line."""
    steps = [
        f"{frame.filename.replace(chr(92), '/').rpartition('/')[2]}:{frame.lineno} {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)[1:]
    ]
    return f"{type(error).__name__}: {error} [{' > '.join(steps)}]"
