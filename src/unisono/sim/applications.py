"""Applications that a plan brings: one object for each process.

The world passes it deliveries and views in order, and multicasts the payloads that it returns as
soon as there is send credit. When all has healed and the probes are delivered, the run goes on
until every application is idle; then the plan's own judge examines all processes that there were.
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
    from unisono.sim.process import SimProcess
    from unisono.sim.world import World, WorldViolation

APPLICATION: Final = "application"
"""The law that the plan's own judge keeps."""

AGAIN_US: Final = 10_000
"""How soon payloads for which there was no credit are tried again."""


class SimApplication(Protocol):
    """What one process does with its group. Pure: each call returns payloads to multicast."""

    def deliver(self, message: Message) -> Sequence[bytes]: ...

    def install(self, view: View) -> Sequence[bytes]: ...

    def prompt(self) -> Sequence[bytes]:
        """One of the plan's messages is due: begin something."""

    def state(self) -> bytes:
        """For a member that joins, as of the messages delivered so far."""

    def adopt(self, state: bytes) -> Sequence[bytes]:
        """Take over the state of another."""

    def is_idle(self) -> bool:
        """Nothing is under way that more messages would complete."""


@dataclass(frozen=True, slots=True)
class ApplicationContext:
    """All that an application starts with."""

    me: Member
    names: tuple[str, ...]
    """Of all nodes of the run."""
    dice: Random
    records: list[bytes]
    """Appended to by all incarnations of the node; survives a crash, but not amnesia."""
    now_us: Callable[[], int]
    """The world's time, to measure with."""


@dataclass(frozen=True, slots=True)
class ApplicationEnd:
    """A process and its application, when the run is over."""

    me: Member
    application: Any
    alive: bool
    """At the end; such processes must have equal states."""


@dataclass(frozen=True, slots=True)
class ApplicationSpec:
    """An application for a plan. Both are importable functions, so that workers find them."""

    make: Callable[[ApplicationContext], SimApplication]
    judge: Callable[[Sequence[ApplicationEnd], Sequence[ServiceLevel]], Iterable[str]]
    """What is wrong at the end, as text. The levels are those that messages had."""


class RunningApplication:
    """A process's application, and the payloads that it has still to multicast."""

    def __init__(
        self, process: SimProcess, spec: ApplicationSpec, roll: Random, levels: Random
    ) -> None:
        world, records = process.world, process.node.records
        names = tuple(each.name for each in world.nodes)
        self._life = process
        self.inner = spec.make(
            ApplicationContext(process.me, names, roll, records, lambda: world.now_us)
        )
        self._outgoing: deque[bytes] = deque()
        self._levels = levels
        self._posted = False

    def deliver(self, messages: Sequence[Message]) -> None:
        """Pass on all but the world's own probes."""
        probes = self._life.world.recovery.probes
        for message in messages:
            if (message.sender, message.number) not in probes:
                self._call(self.inner.deliver, message)

    def install(self, view: View) -> None:
        self._call(self.inner.install, view)

    def prompt(self, count: int) -> None:
        for _ in range(count):
            self._call(self.inner.prompt)

    def state(self, memory: bytes) -> bytes:
        """The world's own record of the process comes first, in one line."""
        return memory + b"\n" + self.inner.state()

    def adopt(self, state: bytes) -> bytes:
        """Take over; what is left is the world's."""
        memory, _, own = state.partition(b"\n")
        self._call(self.inner.adopt, own)
        return memory

    def is_idle(self) -> bool:
        return not self._outgoing and self.inner.is_idle()

    def _call(self, call: Callable[..., Sequence[bytes]], *arguments: object) -> None:
        """Payloads are multicast next, not now: the core may be amid a step."""
        world = self._life.world
        try:
            self._outgoing.extend(call(*arguments))
        except Exception as error:
            world.broken(APPLICATION, where_raised(error), self._life)
        if self._outgoing and not self._posted:
            self._posted = True
            world.post(world.now_us, self._flush, None, None)

    def _service(self) -> ServiceLevel:
        services = self._life.world.services
        return services[0] if len(services) == 1 else self._levels.choice(services)

    def _flush(self, _: None, __: None) -> None:
        self._posted = False
        process, world = self._life, self._life.world
        if process.over or process.leaving:
            self._outgoing.clear()
            return
        fit: list[bytes] = []
        if process.view is not None and not process.node.paused:
            credit = process.tap.send_credit()
            while self._outgoing and credit >= len(self._outgoing[0]) + 32:
                credit -= len(self._outgoing[0]) + 32
                fit.append(self._outgoing.popleft())
        if fit:
            process.multicast(fit, self._service())
        if self._outgoing and not self._posted:
            self._posted = True
            world.post(world.now_us + AGAIN_US, self._flush, None, None)


def judged(world: World) -> list[WorldViolation]:
    """What the plan's judge finds, once the group has come together again."""
    from unisono.sim.world import WorldViolation

    spec = world.plan.application
    if spec is None or not world.recovery.progressed:
        return []
    ends = [
        ApplicationEnd(process.me, process.application.inner, not process.over)
        for process in world.processes.values()
        if process.application is not None
    ]
    wrong = spec.judge(ends, world.services)
    return [WorldViolation(APPLICATION, text, "", world.now_us) for text in wrong]


def where_raised(error: Exception) -> str:
    """The exception, and the way to it, in one line."""
    steps = [
        f"{frame.filename.replace(chr(92), '/').rpartition('/')[2]}:{frame.lineno} {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)[1:]
    ]
    return f"{type(error).__name__}: {error} [{' > '.join(steps)}]"
