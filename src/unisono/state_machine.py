"""What a replicated application keeps: a state that equal updates in equal order make equal."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


class StateMachine(Protocol):
    """A deterministic state: the same updates in the same order give the same state and the same
    results everywhere. No clock, randomness or outside world decides anything in it."""

    def apply(self, update: bytes, position: int) -> bytes:
        """The update at this position of the green order; called once for each, in order. The
        result is handed to the submitter."""

    def snapshot(self) -> bytes:
        """The state as of the last position applied."""

    def restore(self, state: bytes) -> None:
        """Replace the state by what `snapshot` returned, here or at another member."""


@runtime_checkable
class NamesUpdates(Protocol):
    """A state machine that can tell what an update does, for error messages."""

    def named(self, update: bytes) -> str:
        """Such as the method that it calls."""
