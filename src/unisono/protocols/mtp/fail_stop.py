"""Why a member has to stop, and the end of it."""

from __future__ import annotations

from unisono.core import Cause, Disarm, Effect, Fail
from unisono.protocols.mtp.states import Timer


class FailStop:
    """Any part may find that the member cannot go on; the figure ends it after the event."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._cause = Cause.STOPPED
        self._known = 0

    def request(self, reason: str, cause: Cause = Cause.STOPPED, known: int = 0) -> None:
        """Stop after this event. The first reason counts."""
        if self.reason is None:
            self.reason, self._cause, self._known = reason, cause, known

    def must_stop(self, event: object) -> bool:
        return self.reason is not None

    def stop(self, event: object, out: list[Effect]) -> None:
        assert self.reason is not None
        disarm_all(out)
        out.append(Fail(self.reason, self._cause, self._known))


def disarm_all(out: list[Effect]) -> None:
    out.extend(Disarm(timer) for timer in Timer)
