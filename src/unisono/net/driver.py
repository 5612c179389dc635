"""The asyncio driver: feeds events to a core, and performs its effects in order."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from unisono.core import (
    SLEPT_US,
    Adopt,
    Answer,
    Arm,
    Capture,
    Captured,
    Cause,
    Checkpoint,
    Core,
    Deliver,
    Depart,
    Disarm,
    Effect,
    Event,
    Expired,
    Fail,
    FailStability,
    Install,
    Persist,
    Persisted,
    Probe,
    Reach,
    Received,
    Send,
    Stabilize,
    Unreachable,
    Warn,
)
from unisono.errors import StorageFailed
from unisono.model import Address, Message, Packets, View
from unisono.net.lateness import Lateness
from unisono.net.stream import CaptureMark, Entry, Stable, Unstable, progress_notice
from unisono.net.timers import Timers
from unisono.net.udp import Endpoint

WARNED_MAX = 4
EXPIRIES_MAX = 256
"""One wake-up lets at most this many timers expire, so that the sockets have their turn."""

log = logging.getLogger("unisono.net")


class Application(Protocol):
    """The driver's callbacks. None may block; any may feed the driver."""

    def deliver(self, messages: Sequence[Message]) -> None: ...

    def put(self, entry: Entry) -> None:
        """A notice or a mark, in its order in the stream."""

    def install(self, view: View) -> None: ...

    def adopt(self, state: bytes) -> None: ...

    def has_woken(self) -> bool:
        """A reader was woken by a few messages: it comes before further packets are read."""

    def stepped(self) -> None:
        """A step is done: `core.send_credit()` may have changed."""

    def ended(self, reason: str | None) -> None:
        """The core is finished: departed cleanly, or stopped for this reason."""


@dataclass(eq=False)
class Driver:
    """Runs one core on one endpoint. Finished when the core departs or fails, or when closed."""

    core: Core
    endpoint: Endpoint
    _application: Application
    _persist: Callable[[bytes], None] | None = None
    _checkpoint: Callable[[bytes], None] | None = None

    def __post_init__(self) -> None:
        self.finished = False
        self._loop = asyncio.get_running_loop()
        self._timers = Timers()
        self._lateness = Lateness(self.endpoint.counts)
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_us = 0
        self._events: deque[Event] = deque()
        self._stepping = False
        self._end: tuple[str | None] | None = None
        self._farewell: Event | None = None
        self.ended_by_core = False
        self.cause: Cause | None = None
        """Why the core stopped, if it did."""
        self.known = 0
        """The incarnation that superseded it."""
        self.warning = ""
        """Why the member makes no progress; empty while it does."""
        self.warned: deque[str] = deque(maxlen=WARNED_MAX)
        """The last warnings, also those withdrawn."""

    def start(self, events: Iterable[Event]) -> None:
        self.endpoint.attach(self._loop, self._received, self._refused)
        for event in events:
            self.feed(event)

    def feed(self, event: Event) -> None:
        """Step the core with the event; queued if called during another step."""
        if self.finished:
            return
        if self._stepping:
            self._events.append(event)
            return
        self._stepping = True
        try:
            self._step(event)
            while self._events and not self._end:
                self._step(self._events.popleft())
        except StorageFailed as error:
            # The effects after it relied on the record, and are not performed.
            self._end = (str(error),)
        except Exception as error:
            log.exception("member %s: internal error", self.core.me)
            self._end = (f"internal error: {type(error).__name__}: {error}",)
        finally:
            self._stepping = False
        self._after()

    def fail(self, reason: str, cause: Cause | None = None, farewell: Event | None = None) -> None:
        """Stop, for a reason that is not the core's. What the core sends on the farewell event goes
        out once; no answer is awaited."""
        if self.finished or self._end is not None:
            return
        self.cause = cause
        self._end = (reason,)
        self._farewell = farewell
        if not self._stepping:
            self._after()

    def _send_farewell(self, farewell: Event) -> None:
        """Send what the core sends on this event; its other effects are dropped."""
        try:
            for effect in self.core.step(_now_us(), farewell):
                if isinstance(effect, Send):
                    self.endpoint.send(effect.to, effect.packets)
        except Exception:
            log.exception("member %s: internal error in its farewell", self.core.me)

    def close(self) -> None:
        """Stop at once, without a callback."""
        if self.finished:
            return
        self.finished = True
        if self._alarm is not None:
            self._alarm.cancel()
        self._timers.clear()
        self._lateness.close()
        self._events.clear()
        self.endpoint.close()

    def _after(self) -> None:
        if self._end is not None:
            (reason,) = self._end
            if self._farewell is not None:
                self._send_farewell(self._farewell)
            self.close()
            self._application.ended(reason)
            return
        self._application.stepped()
        self._set_alarm()

    # -- events ---------------------------------------------------------------------------------

    def _received(self, found: list[tuple[Address, Packets]]) -> bool:
        for source, packets in found:
            self.feed(Received(source, packets))
        return self._application.has_woken()

    def _refused(self, address: Address) -> None:
        self.feed(Unreachable(address))

    def _expire(self) -> None:
        self._alarm = None
        now_us = _now_us()
        late_us = now_us - self._alarm_us
        self._lateness.fired(now_us, late_us)
        if late_us > SLEPT_US:  # First read the packets that came meanwhile.
            self.endpoint.drain()
        for _ in range(EXPIRIES_MAX):
            if self.finished:
                return
            timer = self._timers.pop(now_us)
            if timer is None:
                break
            self.feed(Expired(timer))
        if not self.finished:
            self._set_alarm()

    def _set_alarm(self) -> None:
        """One timer of the event loop, for the earliest of ours; only ever moved to sooner."""
        next_us = self._timers.next_us()
        if next_us is None or (self._alarm is not None and self._alarm_us <= next_us):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_us = next_us
        after_s = max(0, next_us - _now_us()) / 1e6
        self._alarm = self._loop.call_later(after_s, self._expire)

    # -- effects --------------------------------------------------------------------------------

    def _step(self, event: Event) -> None:
        now_us = _now_us()
        for effect in self.core.step(now_us, event):
            self._perform(effect, now_us)

    def _perform(self, effect: Effect, now_us: int) -> None:
        match effect:
            case Send(to, packets):
                self.endpoint.send(to, packets)
            case Deliver(messages):
                self._application.deliver(messages)
            case Arm(timer, after_us):
                self._timers.arm(timer, now_us + after_us)
            case Disarm(timer):
                self._timers.disarm(timer)
            case Install(view):
                if not view.transitional:
                    self.endpoint.installed([member.address for member in view.members])
                self._application.install(view)
            case Stabilize(messages, holders):
                self._application.put(Stable(messages, holders))
            case FailStability(messages, cause):
                self._application.put(Unstable(messages, cause))
            case Answer():
                self._application.put(effect)
            case Capture(key):
                self._application.put(CaptureMark(key, self._captured))
            case Adopt(state):
                self._application.adopt(state)
            case Persist(record, key):
                if self._persist is not None:
                    self._persist(record)
                    self._feed_persisted(key)
            case Checkpoint(record, key):
                if self._checkpoint is not None:
                    self._checkpoint(record)
                    self._feed_persisted(key)
            case Probe(to):
                self.endpoint.probe(to)
            case Reach(hops):
                self.endpoint.reach(hops)
            case Warn(text):
                self._warn(text)
            case Depart():
                self._finish(None)
            case Fail(reason, cause, known):
                self.cause, self.known = cause, known
                self._finish(reason)

    def _captured(self, key: Hashable, state: bytes) -> None:
        self.feed(Captured(key, state))

    def _feed_persisted(self, key: Hashable) -> None:
        if key is not None:
            self.feed(Persisted(key))

    def _warn(self, text: str) -> None:
        if text and text != self.warning:
            log.warning("member %s: %s", self.core.me.name, text)
            self.warned.append(text)
        elif self.warning and not text:
            log.warning("member %s makes progress again", self.core.me.name)
        if text != self.warning:
            self.warning = text
            self._application.put(progress_notice(text))

    def _finish(self, reason: str | None) -> None:
        if self._end is None:
            self._end = (reason,)
            self.ended_by_core = True


def _now_us() -> int:
    return time.monotonic_ns() // 1000
