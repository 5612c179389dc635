"""Dynamic actions: transactions whose participants are the members of a group.

An atomic commit without a coordinator or an outcome message: requests, votes and failures are in
one total order, and each member derives the same outcome from it (`services/commit`).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import unisono
from unisono.errors import Misuse, Stopped, UnisonoError
from unisono.group import Group
from unisono.model import Message, Service, View
from unisono.services.commit.messages import CommitRequest, checked, encoded
from unisono.services.commit.participant import Participant
from unisono.services.commit.replica import Duty, Prepare, Replica, SendMessage
from unisono.services.commit.table import (
    Aborted,
    Action,
    ActionLimits,
    Begun,
    Committed,
    Decided,
    Last,
    Outcome,
)

__all__ = [
    "Aborted",
    "Action",
    "ActionLimits",
    "Actions",
    "Committed",
    "Last",
    "Outcome",
    "Participant",
    "Uncertain",
]

log = logging.getLogger("unisono.actions")


class Uncertain(UnisonoError):
    """This member rejoined, and the group does not know the action: it never began, or its outcome
    is forgotten."""


@dataclass(slots=True, eq=False)
class _Awaited:
    request: CommitRequest
    outcome: asyncio.Future[Outcome]
    decided_count: int
    """Of the table, when it was requested."""


class Actions:
    """Runs actions as a member of a group.

    `async with Actions(participant).join("bank", name="ann", protocol="ring") as actions` joins
    the group, whose stream and state transfer then belong to the actions.
    """

    def __init__(
        self,
        participant: Participant,
        *,
        prepare_s: float = 10.0,
        limits: ActionLimits | None = None,
    ) -> None:
        self._replica = Replica(participant, limits)
        self._prepare_s = prepare_s
        self._group: Group | None = None
        self._level: Service = Service.SAFE
        self._awaited: dict[str, _Awaited] = {}
        self._outgoing: asyncio.Queue[bytes] = asyncio.Queue()
        self._preparing: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._renewed = False
        self._ended: str | None = None
        self._begun_s: dict[str, float] = {}
        self.longest_s = 0.0
        """The longest that an action was under way, from its begin to its outcome, as seen here."""

    @property
    def group(self) -> Group:
        if self._group is None:
            raise Misuse("not joined yet: enter join() first")
        return self._group

    @property
    def stopped(self) -> str | None:
        """Why no action can be run here any more; None while one can."""
        return self._ended

    def outcome(self, key: str) -> Outcome | None:
        """The outcome of an action; None while it is open, unknown or forgotten."""
        return self._replica.table.outcomes.get(key)

    def open(self) -> tuple[Action, ...]:
        """Actions that run or wait, in the order of the requests."""
        return tuple(each.action for each in self._replica.table.open.values())

    def counters(self) -> dict[str, int]:
        """Outcomes, and messages ignored, by reason."""
        return dict(sorted(self._replica.table.counts.items()))

    # -- joining and leaving --------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def join(
        self,
        group: str | None = None,
        /,
        *,
        config: str | Path | None = None,
        **options: Unpack[unisono.JoinOptions],
    ) -> AsyncIterator[Actions]:
        """Join as `unisono.join` does, with `rejoin=True` by default, and participate."""
        if self._group is not None:
            raise Misuse("already joined: create another Actions")
        options.setdefault("rejoin", True)
        joining = unisono.join(
            group,
            config=config,
            snapshot=self._replica.state,
            restore=self._restore,
            **options,
        )
        async with joining as joined:
            self._group = joined
            self._level = await strongest(joined)
            self._replica.start(joined.me)
            tasks = [asyncio.create_task(each()) for each in (self._read, self._send_outgoing)]
            try:
                yield self
            finally:
                await joined.leave()
                await asyncio.wait(tasks[:1])
                for task in (*tasks, *self._preparing.values(), *self._tasks):
                    task.cancel()

    async def _read(self) -> None:
        reason = "left the group"
        try:
            async for item in self.group:
                if isinstance(item, Message):
                    self._do(self._replica.deliver(item))
                elif isinstance(item, View):
                    self._do(self._replica.install(item))
                    if self._renewed:
                        self._renewed = False
                        self._request_again()
                elif isinstance(item, unisono.Rejoined):
                    self._renew(item)
        except Stopped as stop:
            reason = stop.reason
        except Exception as error:
            # Its replica may now differ from all others, so it stops.
            log.exception("the participant failed, so this member leaves")
            reason = f"the participant failed: {error!r}"
        self._end(reason)
        if reason.startswith("the participant failed"):
            await self.group.leave()

    def _end(self, reason: str) -> None:
        self._ended = reason
        for awaited in self._awaited.values():
            if not awaited.outcome.done():
                awaited.outcome.set_exception(Stopped(reason))

    def _renew(self, item: unisono.Rejoined) -> None:
        """A new incarnation: unsent messages of the last one are dropped."""
        self._renewed = True
        self._replica.start(item.me)
        while not self._outgoing.empty():
            self._outgoing.get_nowait()

    def _restore(self, state: bytes) -> None:
        self._renewed = True
        self._begun_s.clear()
        self._do(self._replica.adopt(state))

    # -- the order ------------------------------------------------------------------------------

    def _do(self, duties: list[Duty]) -> None:
        for duty in duties:
            if isinstance(duty, SendMessage):
                self._outgoing.put_nowait(duty.payload)
            elif isinstance(duty, Prepare):
                self._prepare(duty.action)
            elif isinstance(duty, Begun):
                self._begun_s[duty.action.key] = time.monotonic()
            elif isinstance(duty, Decided):
                self._decided(duty.action.key, duty.outcome)

    def _decided(self, key: str, outcome: Outcome) -> None:
        if (began := self._begun_s.pop(key, None)) is not None:
            self.longest_s = max(self.longest_s, time.monotonic() - began)
        if preparing := self._preparing.pop(key, None):
            preparing.cancel()
        if (awaited := self._awaited.get(key)) and not awaited.outcome.done():
            awaited.outcome.set_result(outcome)

    def _prepare(self, action: Action) -> None:
        """Call the participant's `prepare`; the stream goes on meanwhile if it is a coroutine."""
        try:
            found = self._replica.participant.prepare(action)
        except Exception as error:
            log.exception("the participant could not prepare %s", action.key)
            found = f"could not prepare: {error!r}"
        if inspect.isawaitable(found):
            task = asyncio.get_running_loop().create_task(self._prepared(action.key, found))
            self._preparing[action.key] = task
        else:
            self._vote(action.key, found)

    async def _prepared(self, key: str, found: Awaitable[str]) -> None:
        try:
            async with asyncio.timeout(self._prepare_s):
                objection = await found
        except TimeoutError:
            objection = f"not prepared within {self._prepare_s:g} s"
        except Exception as error:
            log.exception("the participant could not prepare %s", key)
            objection = f"could not prepare: {error!r}"
        self._preparing.pop(key, None)
        self._vote(key, objection)

    def _vote(self, key: str, objection: object) -> None:
        if not isinstance(objection, str):
            objection = f"prepare() returned {type(objection).__name__}, not a text"
        self._outgoing.put_nowait(self._replica.vote(key, objection))

    async def _send_outgoing(self) -> None:
        """Waits for the group's window in place of the reader."""
        with contextlib.suppress(Stopped):
            while True:
                await self.group.multicast(await self._outgoing.get(), self._level)

    # -- requesting -----------------------------------------------------------------------------

    async def run(self, operations: Mapping[str, bytes], key: str | None = None) -> Outcome:
        """Have these members execute these operations, all or none; returns the outcome.

        An action goes on if its caller is cancelled. `key` identifies it: a request that is
        repeated while its outcome is retained is not executed again.
        """
        group = self.group
        if key is None:
            key = f"{group.config.name or 'action'}-{secrets.token_hex(8)}"
        request = checked(CommitRequest(key, dict(operations)))
        if self._ended is not None:
            raise Stopped(self._ended)
        if key in self._awaited:
            raise Misuse(f"the action {key} is awaited here already")
        table = self._replica.table
        if known := table.outcomes.get(key):
            return known
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._awaited[key] = _Awaited(request, future, table.decided_count)
        try:
            await group.multicast(encoded(request), self._level)
            return await future
        finally:
            del self._awaited[key]
            future.cancel()

    def _request_again(self) -> None:
        """After a rejoin, an awaited action may be decided, open, lost or forgotten. A lost request
        is repeated; one that is delivered twice counts once."""
        table = self._replica.table
        for key, awaited in self._awaited.items():
            if awaited.outcome.done() or key in table.open:
                continue
            since = table.decided_count - awaited.decided_count
            if outcome := table.outcomes.get(key):
                awaited.outcome.set_result(outcome)
            elif 0 <= since < table.limits.outcomes_count_max:
                task = asyncio.get_running_loop().create_task(
                    self._multicast(encoded(awaited.request))
                )
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                text = f"this member rejoined, and the group does not know the action {key}"
                awaited.outcome.set_exception(Uncertain(text))

    async def _multicast(self, payload: bytes) -> None:
        with contextlib.suppress(UnisonoError):
            await self.group.multicast(payload, self._level)


async def strongest(group: Group) -> Service:
    """The strongest service that the protocol offers, which must be a total order."""
    try:
        await group.multicast_many((), Service.SAFE)
    except Misuse:
        try:
            await group.multicast_many((), Service.AGREED)
        except Misuse as error:
            raise Misuse(f"actions need a total order: {error}") from None
        return Service.AGREED
    return Service.SAFE
