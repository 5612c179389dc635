"""One replica: routes events to its parts, and gathers what follows. Runs in any world."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from unisono.core import Persist
from unisono.errors import BadPacket
from unisono.fsa import Machine
from unisono.services.replication.component import Component
from unisono.services.replication.effects import (
    CompareDigest,
    Interrupted,
    Post,
    RegularView,
    StableUpTo,
    Submitted,
    TellSoon,
    TransitionalView,
)
from unisono.services.replication.figure import FIGURE, REG_PRIM
from unisono.services.replication.order import Submissions, UpdateOrder
from unisono.services.replication.pieces import CheckpointAssembly
from unisono.services.replication.records import (
    CheckpointPiece,
    DigestMessage,
    ForgetMessage,
    LineMessage,
    LogCheckpoint,
    RedRecord,
    StateMessage,
    Update,
    UpdateKind,
    message_bytes,
    read_message,
    record_bytes,
)
from unisono.services.replication.recovery import LogReplay
from unisono.services.replication.stability import Lines
from unisono.services.replication.voting import PrimaryChoice


class ReplicaEngine:
    """A member of a replication group. Pure: what it was told is all that it knows."""

    def __init__(
        self,
        name: str,
        instance: int,
        founders: Sequence[str],
        explicit: bool = False,
    ) -> None:
        self.name = name
        self.order = UpdateOrder(founders)
        self.submissions = Submissions(name)
        self.choice = PrimaryChoice(name, instance, founders)
        self.lines = Lines(name, explicit)
        self.component = Component(
            name, instance, self.order, self.submissions, self.choice, self.lines
        )
        self.machine = Machine(FIGURE, self.component)
        self._assembly = CheckpointAssembly()
        self.dropped: dict[str, int] = {}
        """Messages that were ignored, by reason."""

    @property
    def is_primary(self) -> bool:
        return self.machine.state is REG_PRIM

    @property
    def has_failed(self) -> bool:
        """It takes no further part: what it would log now need not follow from its log."""
        return bool(self.component.failure)

    def restore(self, records: Iterable[bytes]) -> None:
        """The records of its log, oldest first."""
        LogReplay(self.name, self.order, self.submissions, self.choice).run(records)
        self.lines.write(self.order.green)

    # -- events -----------------------------------------------------------------------------------

    def submit(
        self, contents: Sequence[bytes], kind: UpdateKind = UpdateKind.APPLICATION
    ) -> tuple[list[Update], list[Any]]:
        """New updates of this replica: logged first, sent when a component takes them."""
        out: list[Any] = []
        made = self.submissions.make(kind, contents)
        out.append(Persist(record_bytes(RedRecord(tuple(made)))))
        return made, self._fire(Submitted(), out)

    def install(self, view: RegularView | TransitionalView | Interrupted) -> list[Any]:
        self._assembly.clear()
        return [] if self.has_failed else self._fire(view, [])

    def deliver(self, sender: str, payload: bytes) -> list[Any]:
        """A safe message of the view."""
        out: list[Any] = []
        if self.has_failed:
            return out
        try:
            message = read_message(payload)
        except BadPacket as bad:
            self._drop(bad.reason)
            return out
        component = self.component
        component.sender = sender
        if isinstance(message, LineMessage):
            self.lines.note(sender, message.line)
            return self._concluded(out)
        if isinstance(message, DigestMessage):
            return [CompareDigest(sender, message)]
        if not component.is_here(message):
            if not (isinstance(message, StateMessage) and component.is_later(message)):
                self._drop("late")
                return out
        if isinstance(message, CheckpointPiece):
            whole = self._assembly.take(message)
            if whole is None:
                return out
            message = whole
        return self._fire(message, out)

    def forget(self, name: str) -> list[Any]:
        """An operator says that this member never returns, where no component is primary."""
        message = ForgetMessage(self.component.here, name)
        return [Post(message_bytes(message))]

    def wrote(self, position: int) -> list[Any]:
        """The green order up to here is durable."""
        self.lines.write(position)
        return self._concluded([])

    def acknowledge(self, position: int) -> list[Any]:
        """The application has acted upon the updates up to here."""
        self.lines.acknowledge(position)
        return self._concluded([])

    def tell(self) -> list[Any]:
        if not self.lines.is_untold():
            return []
        return [Post(message_bytes(LineMessage(self.lines.tell())))]

    def checkpoint(self, state: bytes) -> LogCheckpoint:
        """With the application's state at the last green position."""
        return self.order.checkpoint(state)

    def _fire(self, event: Any, out: list[Any]) -> list[Any]:
        self.machine.fire(event, out)
        return self._concluded(out)

    def _concluded(self, out: list[Any]) -> list[Any]:
        if self.lines.settle(self.order.members):
            out.append(StableUpTo(self.lines.stable, self.order.members))
        if self.lines.is_untold():
            out.append(TellSoon())
        return out

    def _drop(self, reason: str) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
