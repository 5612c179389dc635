"""What the world asks of programs that run on its nodes: the same as run in the real world.

A program joins, rejoins and leaves the group by itself. The room `programs` runs them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from unisono.core import Cause, Effect

if TYPE_CHECKING:
    from unisono.sim.nodes import Node
    from unisono.sim.plan import Weather
    from unisono.sim.world import World

PROGRAM_LAWS: Final = {
    "exception": "the program raises nothing but that its member was stopped",
    "invariant": "the program's invariant holds at every moment",
    "converged": "once all has healed and is quiet, the members have converged",
    "linearizable": "its shared objects are as if there were one copy",
    "held_by_one": "its locks and leaderships are held by one at a time",
}
"""What a program brings; each broken one ends the run."""

PROGRAM_PROGRESS_US: Final = 120_000_000
"""A `Group` pauses before it joins again, up to 15 s at a time."""

NOT_FOR_PROGRAMS: Final = ("request", "namesake")
"""Faults in which the world would act in the name of a program."""


class ProcessSession(Protocol):
    """The end of a process at its program."""

    def perform(self, effect: Effect) -> None:
        """An effect that is for the program, among others."""

    def stepped(self) -> None: ...

    def ended(self, reason: str | None, cause: Cause | None) -> None: ...


class RunningProgram(Protocol):
    """An operating-system process of a node."""

    held: bool
    """It does not get to run for a while; the member does."""

    def wake(self) -> None:
        """Its node is no longer paused, or it no longer held."""

    def interrupt(self) -> None:
        """As Ctrl-C does: the program ends in its own way."""

    def kill(self) -> None: ...


class Programs(Protocol):
    """All programs of a world."""

    def start(self, node: Node) -> RunningProgram: ...

    def finish(self) -> None:
        """All have come together again: stop the world when the programs are quiet."""

    def close(self) -> None:
        """The run is over."""


class ProgramSpec(Protocol):
    """A program for a plan."""

    @property
    def name(self) -> str:
        """As `--app` takes it."""

    def begin(self, world: World) -> Programs: ...

    def surroundings(self) -> AbstractContextManager[None]:
        """In which its runs take place."""


def weather_of_programs(weather: Weather) -> Weather:
    """A program asks for itself, and its members all come together in the end."""
    schedule = tuple(each for each in weather.schedule if each.kind not in NOT_FOR_PROGRAMS)
    return replace(weather, schedule=schedule, parts=())
