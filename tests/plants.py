"""Bugs that are planted, so that tests are seen to fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from unisono.fsa import Machine

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


@dataclass(frozen=True)
class Mutant:
    """A bug, and how it is found in simulated runs."""

    plant: Plant
    law: str
    faults: str
    first: int = 0
    """The seed to begin with, so that few are needed."""

    @property
    def name(self) -> str:
        return self.plant.__name__


def nothing(*arguments: Any, **named: Any) -> None:
    """What is taken away is done no more."""


def without(owner: Any, name: str, instead: Any = nothing) -> Plant:
    def plant(patch: Patch) -> None:
        patch.setattr(owner, name, instead)

    return plant


def after(owner: Any, name: str, then: Callable[..., None]) -> Plant:
    """The method as it is, and something wrong behind it."""

    def plant(patch: Patch) -> None:
        method = getattr(owner, name)

        def both(self: Any, *arguments: Any, **named: Any) -> Any:
            found = method(self, *arguments, **named)
            then(self, *arguments, **named)
            return found

        patch.setattr(owner, name, both)

    return plant


def once_together(tests: Any, plant: Plant) -> Plant:
    """The group comes together as it should; then the bug is there."""

    def later(patch: Patch) -> None:
        together = tests.together

        def gathering(*names: str, **options: int) -> Any:
            room = together(*names, **options)
            plant(patch)
            rebind(room)
            return room

        patch.setattr(tests, "together", gathering)

    return later


def rebind(room: Any) -> None:
    """Let the machines look up their methods again."""
    for actor in room.actors.values():
        for machine in vars(actor.inner).values():
            if isinstance(machine, Machine):
                machine._bound.clear()
                machine._look_up()


def rules_of(shown: Callable[..., None], module: Any = None) -> set[str]:
    """The rules that a test is marked with, itself or by its module."""
    marks = [*getattr(shown, "pytestmark", []), *_listed(getattr(module, "pytestmark", []))]
    return {name for mark in marks if mark.name == "rule" for name in mark.args}


def _listed(marks: Any) -> list[Any]:
    return marks if isinstance(marks, list) else [marks]
