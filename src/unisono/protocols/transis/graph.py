"""The causal graph of one configuration: acknowledgments ride on vertices, and the order in which
vertices enter respects them [TRA-1, TRA-6].

A vertex stands for a burst: a run of messages, or none. A member acknowledges what entered its own
graph, so the acknowledgments of a vertex are the vector of what lies before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import le, lt
from typing import Any, Final

from unisono.core import frequent
from unisono.errors import BadPacket
from unisono.parts.ack_matrix import AckMatrix
from unisono.parts.window import Window

AHEAD_MAX: Final = 1024
"""Vertices of one sender beyond those that entered. Honest members are stopped by the network
window long before [TRA-11]."""
PENDING_MAX: Final = 4096
"""Vertices that wait for others. One that can enter at once is taken even then, so that a lost one
always ends the waiting."""


@frequent
class Vertex:
    """What a member sends as one: all before it is acknowledged, and has a place before it."""

    sender: int
    """Its rank in the configuration."""
    index: int
    """1, 2, … in this configuration."""
    acks: tuple[int, ...]
    """By rank, the last vertex that was in the sender's graph; its own entry is `index` - 1."""
    payload: Any = None
    """A run of messages, of which the graph and the orders see only whether it is empty: I am alive
    [TRA-4]."""


class CausalGate:
    """Lets a vertex pass once all that it acknowledges has passed. A vertex costs O(members)."""

    __slots__ = ("_size", "_waiting", "passed")

    def __init__(self, size: int) -> None:
        self._size = size
        self.passed = [0] * size
        """By rank, how many vertices passed."""
        self._waiting: dict[tuple[int, int], list[Vertex]] = {}
        """By rank and index of one that has to pass first."""

    def is_open(self, vertex: Vertex) -> bool:
        return all(map(le, vertex.acks, self.passed))

    def wait(self, vertex: Vertex, start: int = 0) -> bool:
        """Let it wait for the next vertex that it lacks; False if it lacks none."""
        acks, passed = vertex.acks, self.passed
        for rank in range(start, self._size):
            if acks[rank] > passed[rank]:
                self._waiting.setdefault((rank, acks[rank]), []).append(vertex)
                return True
        return False

    def discard(self, vertex: Vertex) -> None:
        """It waits no more."""
        for key in enumerate(vertex.acks):
            if vertex in (waiting := self._waiting.get(key, ())):
                self._waiting[key] = [each for each in waiting if each is not vertex]

    def let_pass(self, vertex: Vertex) -> list[Vertex]:
        """It passes; those that waited for it last, and may pass now."""
        rank, index = vertex.sender, vertex.index
        self.passed[rank] = index
        waiting = self._waiting.pop((rank, index), None)
        if waiting is None:
            return []
        return [each for each in waiting if not self.wait(each, rank + 1)]


class CausalGraph:
    """The vertices of one configuration at one member.

    Only those that entered count as acknowledgments: members with equal graphs draw equal
    conclusions from them.
    """

    def __init__(
        self, size: int, me: int, ahead_max: int = AHEAD_MAX, pending_max: int = PENDING_MAX
    ) -> None:
        self._me = me
        self._ahead_max = ahead_max
        self._pending_max = pending_max
        self._windows: list[Window[Vertex]] = [Window() for _ in range(size)]
        self._gate = CausalGate(size)
        self._matrix = AckMatrix(size)
        self._heard = [0] * size
        """By rank, the last vertex that somebody acknowledged or asks us to hold."""
        self._limit: tuple[int, ...] | None = None
        """By rank, the last vertex that counts, once the configuration ends."""
        self.entered_count = 0
        self._pending = 0
        self._forgotten = 0
        """Vertices that all were known to hold when they were last forgotten."""

    # -- my own -----------------------------------------------------------------------------------

    def acks(self) -> tuple[int, ...]:
        """By rank, the last vertex that entered."""
        return tuple(self._gate.passed)

    def append(self, payload: object = None) -> Vertex:
        """[TRA-1] My next vertex: it acknowledges all that entered, and enters."""
        assert self._limit is None
        acks = self.acks()
        vertex = Vertex(self._me, acks[self._me] + 1, acks, payload)
        self._windows[self._me].put(vertex.index, vertex)
        self._enter(vertex)
        return vertex

    # -- others' ----------------------------------------------------------------------------------

    def add(self, vertex: Vertex) -> list[Vertex]:
        """What enters with this vertex, in causal order; nothing if it is known, or waits for
        others. BadPacket if it cannot be what its sender sent, or is beyond a bound.

        Of two that contradict each other the one that can enter at once counts: the other one names
        what may never come. If neither can, both are missing, and requested again."""
        self._check(vertex)
        window = self._windows[vertex.sender]
        if vertex.index <= window.received or window.get(vertex.index) is not None:
            return []
        if self._gate.is_open(vertex):
            window.put(vertex.index, vertex)
            return self._enter_all(vertex)
        if self._pending >= self._pending_max:
            raise BadPacket("full")
        window.put(vertex.index, vertex)
        self._pending += 1
        self._gate.wait(vertex)
        # [TRA-2] What it acknowledges exists, whether or not a packet of its sender shows it.
        self._heard = list(map(max, self._heard, vertex.acks))
        return []

    def _check(self, vertex: Vertex) -> None:
        """Acknowledgments that leave out what lies before an acknowledged vertex are let pass: that
        vertex waits for it in any case, and both count as held only when they are."""
        sender, index, acks = vertex.sender, vertex.index, vertex.acks
        passed = self._gate.passed
        if not (0 <= sender < len(passed) == len(acks) and index > 0 <= min(acks)):
            raise BadPacket("malformed")
        if acks[sender] != index - 1:
            raise BadPacket("malformed")
        window = self._windows[sender]
        known = window.get(index)
        if known == vertex or (known is None and index <= window.received):
            return
        if index <= passed[sender]:
            raise BadPacket("contradicted")
        if sender == self._me or acks[self._me] > passed[self._me]:
            raise BadPacket("exceeded")
        if self._limit is not None and index > self._limit[sender]:
            raise BadPacket("closed")
        ahead_max = self._ahead_max
        if index == passed[sender] + 1:
            before: Sequence[int] | None = self._matrix.row(sender)
        elif index > passed[sender] + ahead_max:
            raise self._ahead(sender)
        else:
            previous = window.get(index - 1)
            before = previous.acks if previous is not None else None
        if before is not None and not all(map(le, before, acks)):
            raise BadPacket("regressed")
        is_open = self._gate.is_open(vertex)
        if known is not None:
            self._refute(known, is_open, "contradicted")
        following = window.get(index + 1)
        if following is not None and not all(map(le, acks, following.acks)):
            self._refute(following, is_open, "regressed")
        if is_open:
            return
        for rank, ack in enumerate(acks):
            if ack > passed[rank]:
                if ack > passed[rank] + ahead_max:
                    raise self._ahead(rank)
                named = self._windows[rank].get(ack)
                if named is not None and named.acks[sender] >= index:
                    raise BadPacket("contradicted")

    def _refute(self, waiting: Vertex, enters: bool, reason: str) -> None:
        """This one, which waits, and one at hand exclude each other. What the survivors told each
        other that they hold stays."""
        if self._limit is not None:
            raise BadPacket(reason)
        self._gate.discard(waiting)
        self._windows[waiting.sender].discard(waiting.index)
        self._pending -= 1
        self._heard = [0] * len(self._heard)
        for window, passed in zip(self._windows, self._gate.passed, strict=True):
            for each in window.row(passed + 1, window.highest):
                self._heard = list(map(max, self._heard, each.acks))
        if not enters:
            raise BadPacket(reason)

    def _ahead(self, sender: int) -> BadPacket:
        """It is too far ahead to be taken, and tells that much of its sender is lost."""
        known = self._gate.passed[sender] + self._ahead_max
        self._heard[sender] = max(self._heard[sender], known)
        return BadPacket("ahead")

    def _enter_all(self, vertex: Vertex) -> list[Vertex]:
        entered = [vertex]
        for each in entered:
            ready = self._enter(each)
            if ready and self._limit is not None:
                # Some were cut off while they waited, and may have come again since.
                ready = [one for one in ready if self.get(one.sender, one.index) is one]
            self._pending -= len(ready)
            entered += ready
        return entered

    def _enter(self, vertex: Vertex) -> list[Vertex]:
        sender, index, acks = vertex.sender, vertex.index, vertex.acks
        self.entered_count += 1
        self._matrix.raise_row(sender, acks)
        self._matrix.raise_one(sender, sender, index)
        self._matrix.raise_one(self._me, sender, index)
        return self._gate.let_pass(vertex)

    # -- loss -------------------------------------------------------------------------------------

    def has_missing(self) -> bool:
        """Asked at every step, and so written out."""
        if self._limit is not None:
            return any(map(lt, [window.received for window in self._windows], self._limit))
        for window, heard in zip(self._windows, self._heard, strict=True):
            if window.received < heard or window.received < window.highest:
                return True
        return False

    def missing(self, count_max: int) -> list[tuple[int, int, int]]:
        """[TRA-2] Sender, first and last of the ranges that are known to be lost here."""
        found: list[tuple[int, int, int]] = []
        for rank, window in enumerate(self._windows):
            upto = self._last_known(rank)
            if window.received < upto:
                ranges = window.missing(upto, count_max - len(found))
                found += [(rank, first, last) for first, last in ranges]
        return found

    def _last_known(self, rank: int) -> int:
        if self._limit is not None:
            return self._limit[rank]
        return max(self._heard[rank], self._windows[rank].highest)

    def get(self, sender: int, index: int) -> Vertex | None:
        """[TRA-3] To send it again: anyone who has it may answer."""
        return self._windows[sender].get(index)

    # -- what others hold -------------------------------------------------------------------------

    def received_by_all(self) -> tuple[int, ...]:
        """[TRA-8] By sender, the vertices that every member is known to hold."""
        return tuple(self._matrix.floor)

    def received_by(self, members: Iterable[int]) -> tuple[int, ...]:
        """The same for these members."""
        return self._matrix.floor_of(members)

    def window(self) -> int:
        """[TRA-11] Vertices that entered, and that some member is not known to hold."""
        return self.entered_count - self.received_count

    @property
    def received_count(self) -> int:
        """Vertices that every member is known to hold."""
        return self._matrix.total

    def forget(self) -> list[Vertex]:
        """Drop what every member is known to hold: nobody asks for it any more."""
        gone: list[Vertex] = []
        if self._forgotten == self._matrix.total:
            return gone
        self._forgotten = self._matrix.total
        for window, upto in zip(self._windows, self._matrix.floor, strict=True):
            if upto > window.floor:
                gone += window.forget(upto)
        return gone

    # -- the end of the configuration -------------------------------------------------------------

    def close(self) -> tuple[int, ...]:
        """[TRA-13] The configuration ends: what comes from now on does not count. By rank, the last
        vertex up to which all are here, in the graph or waiting: what I tell the survivors."""
        upto = tuple([window.received for window in self._windows])
        self._limit = upto
        return upto

    def limit(self, upto: Sequence[int]) -> None:
        """[TRA-13] What some survivor received is wanted by all: the greatest that they told. Again
        when there are fewer survivors."""
        assert self._limit is not None
        for window, last in zip(self._windows, upto, strict=True):
            assert window.received <= last
            self._pending -= len(window.cut(last))
        self._limit = tuple(upto)

    def is_complete(self) -> bool:
        """All up to the limit is here. What still waits lacks something that no survivor has: all
        discard it."""
        return self._limit is not None and not self.has_missing()
