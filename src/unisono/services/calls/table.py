"""The calls made here and under way: which members are asked, what each answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from unisono.errors import BadPacket
from unisono.layout import decode
from unisono.model import Buffer, ChangeKind, Member, View
from unisono.services.calls.limits import RpcLimits
from unisono.services.calls.messages import (
    DATAGRAM_BYTES_MAX,
    AnswerPacket,
    AnswerRecord,
    Departure,
    ReplyKind,
    ViewMembers,
    read_failure,
)
from unisono.services.calls.result import Answers, CallFailure, CallResult, Reason

PROBE_US: Final = 1_000_000


@dataclass(slots=True)
class Pieces:
    """An answer that has arrived in part."""

    count: int
    bodies: dict[int, bytes] = field(default_factory=dict)

    def in_order(self) -> Iterable[bytes]:
        return (self.bodies[at] for at in range(self.count))


class OpenCall:
    """One call. Complete when enough members have answered, or when the fate of all is known."""

    def __init__(
        self,
        number: int,
        wanted: Answers,
        known: Iterable[Member],
        completed: Callable[[], None] = lambda: None,
    ) -> None:
        """`known` are the members when the call is made; those that are no longer in the view in
        which it is delivered are reported."""
        self.number = number
        self.wanted = wanted
        self.members: tuple[Member, ...] | None = None
        self.complete = False
        self._known = tuple(known)
        self._completed = completed
        self._answers: dict[Member, bytes] = {}
        self._failures: dict[Member, CallFailure] = {}
        self._needed = 0
        self._open_count = 0
        """Members asked that have neither answered nor failed."""
        self.probe_us = 0
        """When to probe it next; 0 before it is sent."""
        self._probe_after_us = PROBE_US
        self.pieces: dict[tuple[Member, ReplyKind], Pieces] = {}
        """Answers that have arrived in part."""

    def is_due(self, now_us: int) -> bool:
        """Whether to probe it now: ever more rarely."""
        if self.complete or not self.probe_us or now_us < self.probe_us:
            return False
        self.sent(now_us)
        return True

    def sent(self, now_us: int) -> None:
        self.probe_us = now_us + self._probe_after_us
        self._probe_after_us *= 2

    def deliver(self, members: tuple[Member, ...]) -> None:
        """The call has its place in the order, in the view with these members."""
        if self.members is not None or self.complete:
            return
        self.members = members
        self._needed = self.wanted.needed(len(members))
        if self._answers or self._failures:
            self._answers = {m: a for m, a in self._answers.items() if m in members}
            self._failures = {m: f for m, f in self._failures.items() if m in members}
        self._open_count = len(members) - len(self._answers) - len(self._failures)
        self._judge()

    def answer(self, member: Member, body: bytes) -> bool:
        """Whether it counts. An answer outweighs a failure that was assumed before."""
        if self.complete or member in self._answers or not self._is_asked(member):
            return False
        if self._failures.pop(member, None) is None:
            self._open_count -= 1
        self._answers[member] = body
        self._judge()
        return True

    def fail(self, member: Member, failure: CallFailure) -> bool:
        known = member in self._answers or member in self._failures
        if self.complete or known or not self._is_asked(member):
            return False
        self._failures[member] = failure
        self._open_count -= 1
        self._judge()
        return True

    def _is_asked(self, member: Member) -> bool:
        return self.members is None or member in self.members

    def install(self, view: View) -> None:
        """Members that are gone will not answer."""
        for member in self.members or ():
            if member not in view.members:
                self.fail(member, CallFailure(departure_of(member, view), f"view {view.id}"))

    def time_out(self, text: str) -> CallResult:
        for member in self.members if self.members is not None else self._known:
            if member not in self._answers and member not in self._failures:
                self._failures[member] = CallFailure(Reason.TIMED_OUT, text)
        self.complete = True
        return self.result()

    def _judge(self) -> None:
        if self.members is None:
            # Whatever the view, one answer is one answer.
            done = self.wanted is Answers.ONE and bool(self._answers)
        else:
            done = len(self._answers) >= self._needed or self._open_count == 0
        if done and not self.complete:
            self.complete = True
            self._completed()

    def result(self) -> CallResult:
        failures = dict(self._failures)
        if self.members is not None:
            for member in self._known:
                if member not in self.members:
                    failures[member] = CallFailure(Reason.ABSENT, "not in the view at the call")
        return CallResult(self.wanted, self.members or (), dict(self._answers), failures)


class CallTable:
    """The calls under way, by number. Bounded by `RpcLimits`."""

    def __init__(self, token: int, limits: RpcLimits, counts: Counter[str]) -> None:
        self.token = token
        self.open: dict[int, OpenCall] = {}
        self._limits = limits
        self._counts = counts
        self._number = 0
        self._reserved_bytes = 0
        """For answers that have arrived in part."""

    @property
    def full(self) -> bool:
        return len(self.open) >= self._limits.calls_count_max

    def begin(
        self, wanted: Answers, known: Iterable[Member], completed: Callable[[], None] = lambda: None
    ) -> OpenCall:
        self._number += 1
        call = self.open[self._number] = OpenCall(self._number, wanted, known, completed)
        return call

    def end(self, call: OpenCall) -> None:
        """Nobody waits for it any longer."""
        if self.open.pop(call.number, None) is not None:
            self._forget_pieces(call)

    def deliver(self, number: int, members: tuple[Member, ...]) -> None:
        if call := self.open.get(number):
            call.deliver(members)

    def due(self, now_us: int) -> tuple[int, ...]:
        """Calls under way for so long that members may have missed them."""
        found = [call.number for call in self.open.values() if call.is_due(now_us)]
        return tuple(sorted(found))

    def install(self, view: View) -> None:
        for call in list(self.open.values()):
            call.install(view)

    def receive(self, packet: AnswerPacket) -> bool:
        """Whether to acknowledge it: no if a piece found no capacity and must be sent again."""
        if packet.token != self.token:
            self._counts["drop.token"] += 1
            return False
        return self.take(packet.sender, packet.records)

    def take(self, sender: Member, records: Iterable[AnswerRecord]) -> bool:
        taken = [self._take(sender, record) for record in records]
        return all(taken)

    def _take(self, sender: Member, record: AnswerRecord) -> bool:
        call = self.open.get(record.call)
        if call is None or call.complete:
            self._counts["answers.late"] += 1
            return True
        if record.pieces > 1:
            return self._take_piece(call, sender, record)
        self._record(call, sender, record.kind, record.body)
        return True

    def _take_piece(self, call: OpenCall, sender: Member, record: AnswerRecord) -> bool:
        """Capacity is reserved with an answer's first piece, so that what is begun can end."""
        key = sender, record.kind
        kept = call.pieces.get(key)
        if kept is None:
            nbytes = record.pieces * DATAGRAM_BYTES_MAX
            if self._reserved_bytes and (
                self._reserved_bytes + nbytes > self._limits.partial_bytes_max
            ):
                self._counts["answers.refused"] += 1
                return False
            self._reserved_bytes += nbytes
            kept = call.pieces[key] = Pieces(record.pieces)
        if kept.count == record.pieces:
            kept.bodies.setdefault(record.piece, bytes(record.body[:DATAGRAM_BYTES_MAX]))
        if len(kept.bodies) == kept.count:
            del call.pieces[key]
            self._reserved_bytes -= kept.count * DATAGRAM_BYTES_MAX
            self._record(call, sender, record.kind, b"".join(kept.in_order()))
        return True

    def _forget_pieces(self, call: OpenCall) -> None:
        for kept in call.pieces.values():
            self._reserved_bytes -= kept.count * DATAGRAM_BYTES_MAX
        call.pieces.clear()

    def _record(self, call: OpenCall, sender: Member, kind: ReplyKind, body: Buffer) -> None:
        try:
            counted = self._apply(call, sender, kind, body)
        except BadPacket:
            self._counts["drop.malformed"] += 1
            return
        if not counted:
            self._counts["answers.repeated"] += 1

    def _apply(self, call: OpenCall, sender: Member, kind: ReplyKind, body: Buffer) -> bool:
        if kind is ReplyKind.ANSWER:
            if len(body) > self._limits.answer_bytes_max:
                raise BadPacket("too_large")
            return call.answer(sender, bytes(body))
        if kind is ReplyKind.FAILURE:
            return call.fail(sender, read_failure(body))
        if kind is ReplyKind.MEMBERS:
            call.deliver(decode(ViewMembers, body).members)
            return True
        gone = decode(Departure, body)
        return call.fail(gone.member, CallFailure(gone.reason, f"reported by {sender.name}"))


def departure_of(member: Member, view: View) -> Reason:
    """Why the member is not in the view."""
    for change in view.changes:
        if change.what is ChangeKind.LEFT and member in change.who:
            return Reason.LEFT
    return Reason.FAILED
