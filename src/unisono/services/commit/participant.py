"""The participant: the application's side of actions."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unisono.services.commit.table import Action, Last


class Participant:
    """Votes on the operations of its own member, and learns every action's outcome.

    `prepare` is called at the members that the action names; `commit` and `abort` at every member,
    at the same position of the total order. So the state may be replicated, each member applying
    every action, or partitioned, each applying only its own operation.

    Joiners get the state that `snapshot` returns, with the open actions and the retained outcomes.
    """

    def begin(self, origin: str) -> None:
        """The first request of a new group: no state was transferred, and no action executed.
        `origin` is the same at all members, and unique to the group: a state on disk may be of an
        earlier group, whose members are all gone."""

    def prepare(self, action: Action) -> str | Awaitable[str]:
        """This member's vote: its objection; empty for yes. From a yes to the outcome, the
        operation must stay possible, whatever happens to this process. May be called twice."""
        return ""

    def commit(self, action: Action) -> None:
        """The action is executed, at all members."""

    def abort(self, action: Action, reason: str) -> None:
        """The action is executed at no member. There may have been no `prepare` before."""

    def snapshot(self) -> bytes:
        """The current state."""
        return b""

    def restore(self, state: bytes, last: Last | None) -> None:
        """Replace the state by the group's.

        `last` is the last action that this name voted yes on, with its outcome, which the
        incarnation that voted may have missed. A state on this member's own disk lacks at most that
        action: look for its key there.
        """
