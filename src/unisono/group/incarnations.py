"""The incarnations of one process in its group: joining, joining again, leaving."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from unisono.core import Cause
from unisono.delivered_counts import DeliveredCounts
from unisono.errors import Misuse, Refused, Stopped, UnisonoError, WrongKey
from unisono.group.locks import Locks
from unisono.group.pending_requests import PendingRequests
from unisono.group.receiving import DeliveryPath
from unisono.group.rejoining import RejoinPolicy
from unisono.group.replay import Replay
from unisono.group.session import Session, SessionFactory
from unisono.group.stats import quantile
from unisono.model import Member, View
from unisono.net.handle import Handles
from unisono.net.send_buffer import SendBuffer
from unisono.net.stream import Stream

REOPEN_COUNT_MAX: Final = 8

log = logging.getLogger("unisono.group")


@dataclass(eq=False)
class Incarnations:
    """Opens a session; when it ends, opens another or ends the stream."""

    _sessions: SessionFactory
    _join_s: float
    _leave_s: float
    _rejoin_policy: RejoinPolicy
    _send_buffer: SendBuffer
    _handles: Handles
    _requests: PendingRequests
    _locks: Locks
    _stream: Stream
    _replay: Replay | None
    _counts_delivered: bool
    """The group's state has the number of each sender's last message."""
    _on_opened: Callable[[], None]
    """Called when a session has its identity; a `UnisonoError` from it is final."""

    def __post_init__(self) -> None:
        self.session: Session | None = None
        """The current or the last one."""
        self.me: Member | None = None
        self.view: View | None = None
        self.ended: str | None = None
        """Why the process is no longer in the group."""
        self.closed: str | None = None
        """Why nothing can be sent any more."""
        self._first_view: asyncio.Future[None] | None = None
        self._departed: asyncio.Future[None] | None = None
        self._rejoining: asyncio.Task[None] | None = None
        self._past: Counter[str] = Counter()
        """The counts of former sessions."""
        self._views_count = self._opened_count = 0
        self._unsaid_of: Member | None = None
        """The incarnation whose unsaid messages were counted."""
        self._receive_path = DeliveryPath(
            self._stream,
            DeliveredCounts() if self._counts_delivered else None,
            self._replay,
            self._rejoin_policy,
            self._handles,
            self._requests,
            self._locks,
            self._opened,
            self._installed,
            self._send_buffer.stepped,
            self._session_ended,
            self.fail,
        )

    @property
    def inside(self) -> bool:
        """The current incarnation has had a view and goes on."""
        return self._rejoin_policy.inside

    def counts(self) -> Counter[str]:
        found = self._past.copy()
        if self.session is not None:
            found.update(self.session.counts())
        return found

    def totals(self) -> dict[str, Any]:
        """Over all incarnations, for `Stats`."""
        outstanding = self._rejoin_policy.outstanding
        return {
            "sent": outstanding.sent_count,
            "delivered": self._receive_path.delivered_count,
            "views": self._views_count,
            "rejoined": max(0, self._opened_count - 1),
            "delay_p50_s": quantile(outstanding.delays_s, 0.5),
            "delay_p99_s": quantile(outstanding.delays_s, 0.99),
        }

    def congested(self, on: bool) -> None:
        text = "%s: the reader is slow, senders are held back" if on else "%s: the reader is back"
        log.info(text, self._sessions.name)
        if self.session is not None and self._departed is None:
            self.session.congested(on)

    def fail(self, reason: str) -> None:
        """Stop for a reason of the application, which rejoining would not change."""
        self._rejoin_policy.give_up()
        if self.session is not None:
            self.session.fail(reason)

    # -- joining ----------------------------------------------------------------------------------

    async def join(self) -> None:
        if self._first_view is not None:
            raise Misuse("already joined: call join() again for another member")
        self._first_view = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._join_s):
                await self._open()
                await self._first_view
        except TimeoutError:
            reason = self._why_no_view()
            await self._give_up(reason)
            raise Stopped(reason) from None
        except BaseException as error:
            await self._give_up(str(error) or type(error).__name__)
            raise

    async def _open(self) -> None:
        """Open the first session, or the next after one that ended."""
        session = await self._sessions.open(self._receive_path)
        if self.session is not None:
            self._past.update(self.session.counts())
        self.session = session
        session.start()
        if not session.finished:
            self._stream.renew()
            self._send_buffer.begin(session)

    def _opened(self, me: Member) -> None:
        self.me = me
        self._opened_count += 1
        log.debug("%s: incarnation %s begins", self._sessions.name, me)
        try:
            self._on_opened()
        except UnisonoError as error:
            if self._first_view is not None and not self._first_view.done():
                self._first_view.set_exception(error)
            self.abandon(str(error))

    def _installed(self, view: View) -> None:
        before = self.view.members if self.view is not None else ()
        self._views_count += 1
        changes = [f"+{member}" for member in view.members if member not in before]
        changes += [f"-{member}" for member in before if member not in view.members]
        log.info(
            "%s: view %s of %d members: %s",
            self._sessions.name,
            view.id,
            len(view.members),
            " ".join(changes) or "the same",
        )
        self.view = view
        if self._first_view is not None and not self._first_view.done():
            self._first_view.set_result(None)

    def _why_no_view(self) -> str:
        text = f"no view within join_s={self._join_s:g} s"
        if self.session is not None:
            text += f": {self.session.describe()}"
        advice = self._sessions.advice()
        return f"{advice} ({text})" if advice else text

    async def _rejoin(self, reason: str) -> None:
        name, why = self._sessions.name, reason
        for _ in range(REOPEN_COUNT_MAX):
            level = logging.WARNING if self._rejoin_policy.asked_for else logging.INFO
            log.log(level, "%s stopped: %s; joining again", name, reason)
            await asyncio.sleep(self._rejoin_policy.next_pause_s() * random.uniform(0.5, 1.5))
            try:
                await self._open()
            except (UnisonoError, OSError) as error:
                log.warning("%s cannot join again: %s", name, error)
                why = f"{reason}; and could not join again: {error}"
            else:
                await asyncio.sleep(self._join_s)
                if not self._rejoin_policy.inside:
                    log.warning("%s has not rejoined, still trying: %s", name, self._why_no_view())
                return
        self._finish(why, Stopped(why))

    # -- leaving, and other ends ------------------------------------------------------------------

    async def leave(self) -> None:
        self._send_buffer.flush()
        if self._rejoining is not None:
            self._rejoining.cancel()
        try:
            if self.ended is None:
                await self._depart()
        finally:  # Also when the caller is cancelled.
            self.abandon("left the group", clean=True)

    async def _give_up(self, reason: str) -> None:
        """Leave, so that members that were about to admit us need not wait."""
        self.ended = self.closed = self.ended or reason
        try:
            await self._depart()
        finally:  # Also when the caller is cancelled.
            self.abandon(reason)

    async def _depart(self) -> None:
        """Leave, and wait until the others know, at most `leave_s`."""
        session = self.session
        if session is not None and not session.finished:
            if self._departed is None:
                self._departed = asyncio.get_running_loop().create_future()
                self.closed = self.closed or "leaving the group"
                self._send_buffer.end(Stopped("leaving the group"))
                session.congested(False)
                session.leave()
            await asyncio.wait([self._departed], timeout=self._leave_s)

    def abandon(self, reason: str, clean: bool = False) -> None:
        """Stop now. The stream ends with the reason, unless it is a clean end."""
        if self._rejoining is not None:
            self._rejoining.cancel()
        if self.session is not None:
            self.session.close()
        self._finish(reason, None if clean else Stopped(reason))

    def _session_ended(self, reason: str | None) -> None:
        leaving = self._departed is not None
        if reason and self.view is None and f"name {self._sessions.name} is taken" in reason:
            reason += ": give another name="
        cause = (self.session and self.session.cause) or Cause.STOPPED
        ended = (reason or "", cause, self.view, self._send_buffer.silent)
        if reason is not None and not leaving and self._rejoin_policy.comes_back(*ended):
            self._send_buffer.end(None)
            self._note_unsaid()
            self._fail_waiting(reason)
            self._rejoin_policy.ended(reason, cause, time.monotonic())
            if self._rejoining is not None:
                self._rejoining.cancel()
            self._rejoining = asyncio.get_running_loop().create_task(self._rejoin(reason))
            return
        kinds = {Cause.REFUSED: Refused, Cause.UNREADABLE: WrongKey}
        kind = kinds.get(cause, Stopped) if self.view is None else Stopped
        text = reason or "left the group"
        self._finish(text, None if reason is None or leaving else kind(reason))

    def _note_unsaid(self) -> None:
        """What was accepted and not delivered here before the incarnation ended is counted and
        logged, whether or not there is a next one to report it in `Rejoined.lost`."""
        count = len(self._rejoin_policy.outstanding.undelivered())
        if count and self.me is not self._unsaid_of:
            self._unsaid_of = self.me
            self._past["drop.unsaid"] += count
            text = "%s: %d messages were accepted, and not delivered here before it stopped"
            log.warning(text, self.me, count)

    def _fail_waiting(self, reason: str) -> None:
        """What was under way in the incarnation that ended."""
        self._handles.fail(reason)
        self._requests.fail(reason)
        self._locks.fail(reason)

    def _finish(self, text: str, error: Stopped | None) -> None:
        self.ended = self.closed = self.ended or text
        self._send_buffer.end(Stopped(self.ended))
        if error is not None:
            self._note_unsaid()
        self._fail_waiting(self.ended)
        self._stream.end(error.reason if error else None)
        if self._replay is not None:
            self._replay.close()
        if self._first_view is not None and not self._first_view.done():
            self._first_view.set_exception(error or Stopped(self.ended))
            self._first_view.exception()  # Retrieved, even if nothing waits any more.
        if self._departed is not None and not self._departed.done():
            self._departed.set_result(None)
