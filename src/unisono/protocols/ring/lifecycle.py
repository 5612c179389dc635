"""How the membership of this process ends: by a clean leave, or by a failure."""

from __future__ import annotations

from unisono.core import Cause, Fail


class Lifecycle:
    """Set by any part that sees the end; read by the core once a step."""

    __slots__ = ("has_quit", "leaving", "released", "successor", "verdict")

    def __init__(self) -> None:
        self.leaving = False
        """The application wants to leave."""
        self.has_quit = False
        """Everything this member sent is with everyone, and it has announced its leave."""
        self.released = False
        """The group goes on without this member: nothing is left to do."""
        self.successor = ""
        """The view with which it goes on, where this member accepted that ring."""
        self.verdict: Fail | None = None

    def leave(self) -> None:
        self.leaving = True

    def quit(self) -> None:
        self.has_quit = True

    def release(self, successor: str = "") -> None:
        self.released = True
        self.successor = self.successor or successor

    def fail(
        self,
        reason: str,
        cause: Cause = Cause.STOPPED,
        known: int = 0,
        view: str = "",
        founding: str = "",
    ) -> None:
        """The first failure counts."""
        self.verdict = self.verdict or Fail(reason, cause, known, view, founding)
