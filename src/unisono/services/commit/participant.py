"""The participant: what a user of actions plugs in."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unisono.services.commit.table import Action, Last


class Participant:
    """Votes on the operations of its own member, and hears of every action's outcome.

    `prepare` is called at the members that the action names; `commit` and `abort` at every member,
    at the same place of the group's order. So the state may be kept by all together, each applying
    every action (as a replicated table), or by each alone, applying only its own operation.

    The state that `snapshot` gives is handed to whoever joins, together with the actions that are
    open and the outcomes that are remembered.
    """

    def begin(self, origin: str) -> None:
        """The first request of a new group is here: nothing was handed over or done before it.
        `origin` is the same for all, and another for every group: what is kept on a disk may be of
        a former one, whose members are all gone."""

    def prepare(self, action: Action) -> str | Awaitable[str]:
        """Our vote: what stands against it, or nothing for yes. From a yes to the outcome, the
        operation must stay possible, whatever happens to this process. May be asked twice."""
        return ""

    def commit(self, action: Action) -> None:
        """The action happens, here and everywhere."""

    def abort(self, action: Action, reason: str) -> None:
        """The action does not happen, anywhere. It may come without a `prepare` before it."""

    def snapshot(self) -> bytes:
        """The state as it is now."""
        return b""

    def restore(self, state: bytes, last: Last | None) -> None:
        """Put the group's state in the place of ours.

        `last` is what our name said yes to last, with its outcome, which the life that said it may
        not have lived to hear. What one keeps on a disk of one's own is behind by that action at
        most: who sees its key there knows it already.
        """
