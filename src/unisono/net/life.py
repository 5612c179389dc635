"""One incarnation of a member: its core, its sockets, its storage, its trace."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import chain
from typing import Protocol

from unisono.core import Answer, Captured, Core, Event, Join, Restart
from unisono.model import Member, Message, View
from unisono.net.driver import Driver
from unisono.net.speaker import Speaker
from unisono.net.stable import StableFile
from unisono.net.stream import AdoptMark, CaptureMark, Stable, Stream
from unisono.net.udp import Endpoint
from unisono.net.unheard import Unheard

TRACE_FLUSH_S = 0.25
RECORDS_COUNT_MAX = 64
"""Records that a process remembers for its next life when there is no file for them."""


class Ledger(Protocol):
    """Where the trace of this life goes."""

    def stopped(self, reason: str) -> None:
        """The world ended this life, so the core could not say it."""

    def flush(self) -> None: ...

    def close(self) -> None: ...


class Life:
    """What the driver tells goes into the group's stream; what the group says, to the core."""

    def __init__(
        self,
        endpoint: Endpoint,
        core: Core,
        stream: Stream,
        speaker: Speaker,
        unheard: Unheard,
        arriving: Callable[[View], None],
        installed: Callable[[View], None],
        ended: Callable[[str | None], None],
        remembered: deque[bytes],
        stable: StableFile | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.core = core
        self.unsaved_count = 0
        """Records that the core wanted on stable storage, and there was none."""
        self.counted = False
        """Whether its counts have been added to the group's past."""
        self._stream = stream
        self._speaker = speaker
        self._unheard = unheard
        self._arriving = arriving
        self._inside = False
        self._adopted: AdoptMark | None = None
        self._installed = installed
        self._ended = ended
        self._remembered = remembered
        self._stable = stable
        self._ledger = ledger
        self._flushing: asyncio.TimerHandle | None = None
        self.driver = Driver(core, endpoint, self, self._persist, self._checkpoint)

    def start(self) -> None:
        self._flush()
        self.driver.start(chain(self._former(), (Join(),)))

    def _former(self) -> Iterator[Event]:
        """What the former lives made safe, piece by piece."""
        if self._stable is None:
            records = tuple(self._remembered)
            if records:
                yield Restart(records)
            return
        before: tuple[bytes, ...] | None = None
        for piece in self._stable.pieces():
            if before is not None:
                yield Restart(before, more=True)
            before = piece
        if before is not None:
            yield Restart(before)

    def _persist(self, record: bytes) -> None:
        """Without a file a record lasts as long as the process, which is enough for a rejoin."""
        if self._stable is not None:
            self._stable.append(record)
        else:
            self._remembered.append(record)
            self.unsaved_count += 1

    def _checkpoint(self, record: bytes) -> None:
        if self._stable is not None:
            self._stable.replace(record)
        else:
            self._remembered.clear()
            self._persist(record)

    def _flush(self) -> None:
        """A process that is killed leaves all but the last quarter of a second of its
        trace. Without rows this costs nothing."""
        if self._ledger is not None:
            self._ledger.flush()
            self._flushing = asyncio.get_running_loop().call_later(TRACE_FLUSH_S, self._flush)

    def counts(self) -> Counter[str]:
        found = Counter(self.core.counts)
        found.update(self.endpoint.counts)
        found["persist.unsaved"] += self.unsaved_count
        return found

    def tried(self) -> str:
        """What this life has done to reach anybody."""
        counts = self.counts()
        drops = [
            f"{n} {count}" for n, count in sorted(counts.items()) if n[:5] == "drop." and count
        ]
        warned = "".join(f"; {text}" for text in dict.fromkeys(self.driver.warned))
        return (
            f"over {self.endpoint.where} as {self.core.me} at {self.endpoint.address};"
            f" {counts['net.out.packets']} packets went out, {counts['net.in.packets']} came in,"
            f" drops: {', '.join(drops) or 'none'}{warned}"
        )

    def close(self) -> None:
        """End at once. Twice is no harm."""
        self.driver.close()
        if self._flushing is not None:
            self._flushing.cancel()
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None
        if self._stable is not None:
            self._stable.close()

    # -- what the driver tells ------------------------------------------------------------------

    def deliver(self, messages: Sequence[Message]) -> None:
        self._unheard.heard(messages)
        self._stream.extend(messages)

    def stabilize(self, messages: Sequence[Message], holders: tuple[Member, ...]) -> None:
        self._stream.put(Stable(tuple(messages), holders))

    def answer(self, answer: Answer) -> None:
        self._stream.put(answer)

    def install(self, view: View) -> None:
        if not self._inside:
            self._inside = True
            self._arriving(view)
            if self._adopted is not None:
                self._stream.put(self._adopted)
        self._stream.put(view)
        if not view.transitional:
            self._installed(view)

    def capture(self, key: Hashable) -> None:
        self._stream.put(CaptureMark(key, self._captured))

    def _captured(self, key: Hashable, state: bytes) -> None:
        self.driver.feed(Captured(key, state))

    def adopt(self, state: bytes) -> None:
        """Before the first view it waits for that view, which says where we are."""
        if self._inside:
            self._stream.put(AdoptMark(state))
        else:
            self._adopted = AdoptMark(state)

    def stepped(self) -> None:
        self._speaker.stepped()

    def ended(self, reason: str | None) -> None:
        if reason is not None and self._ledger is not None and not self.driver.ended_by_core:
            self._ledger.stopped(reason)
        self.close()
        self._ended(reason)
