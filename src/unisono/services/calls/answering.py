"""The member's side: the calls executed here, and the callers that learn which members are gone."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass

from unisono.model import Buffer, Member, View
from unisono.services.calls.limits import RpcLimits
from unisono.services.calls.messages import (
    AnswerRecord,
    CallMessage,
    ProbeMessage,
    answer_record,
    departure_record,
    failure_record,
    members_record,
)
from unisono.services.calls.result import CallFailure, Reason
from unisono.services.calls.table import departure_of


@dataclass(slots=True)
class _OutsideCall:
    call: CallMessage
    members: tuple[Member, ...]
    expires_us: int


class Answering:
    """Decides which calls to execute: each at most once."""

    def __init__(self, limits: RpcLimits, counts: Counter[str]) -> None:
        self._limits = limits
        self._counts = counts
        self._executed: OrderedDict[int, tuple[int, int]] = OrderedDict()
        """By caller, the numbers of its first and last call. A caller's calls come in their order.
        """
        self._forgotten = False
        self._outside: dict[tuple[int, int], _OutsideCall] = {}
        self.members: tuple[Member, ...] = ()

    def deliver(self, call: CallMessage, now_us: int) -> bool:
        """Whether to execute it; a call that was delivered before is not executed again."""
        first, last = self._executed.get(call.head.token, (call.number, 0))
        if call.number <= last:
            self._counts["calls.repeated"] += 1
            return False
        self._executed[call.head.token] = first, call.number
        self._executed.move_to_end(call.head.token)
        if len(self._executed) > self._limits.callers_count_max:
            self._executed.popitem(last=False)
            self._counts["callers.forgotten"] += 1
            self._forgotten = True
        if call.head.outside:
            self._remember_outside(call, now_us)
        self._counts["calls.executed"] += 1
        return True

    def _remember_outside(self, call: CallMessage, now_us: int) -> None:
        expired = [key for key, each in self._outside.items() if each.expires_us <= now_us]
        for key in expired:
            del self._outside[key]
        if len(self._outside) >= self._limits.outside_count_max:
            del self._outside[next(iter(self._outside))]
        expires_us = now_us + call.head.timeout_ms * 1000
        kept = call._replace(payload=b"")
        self._outside[call.head.token, call.number] = _OutsideCall(kept, self.members, expires_us)

    def missing(self, probe: ProbeMessage) -> list[AnswerRecord]:
        """Reports of calls that are not executed here: the state that this member was handed when
        it joined is of a later position, though the caller's view had it already."""
        known = self._executed.get(probe.head.token)
        if known is None and self._forgotten:
            return []
        first = known[0] if known is not None else max(probe.numbers, default=0) + 1
        failure = CallFailure(Reason.ABSENT, "it joined with a state that has the call")
        return [failure_record(number, failure) for number in probe.numbers if number < first]

    def install(
        self, view: View, me: Member, now_us: int
    ) -> list[tuple[CallMessage, AnswerRecord, int]]:
        """Departures to report to callers outside the group, and until when: they see no views. The
        first member of the view reports them."""
        self.members = view.members
        reports = []
        for key, each in list(self._outside.items()):
            if each.expires_us <= now_us:
                del self._outside[key]
                continue
            gone = [member for member in each.members if member not in view.members]
            each.members = tuple(m for m in each.members if m in view.members)
            if view.members[0] == me:
                reports += [
                    (
                        each.call,
                        departure_record(each.call.number, departure_of(member, view), member),
                        each.expires_us,
                    )
                    for member in gone
                ]
        return reports

    def records(
        self, call: CallMessage, outcome: Buffer | CallFailure, members: tuple[Member, ...]
    ) -> list[AnswerRecord]:
        """What to send to the caller. `members` is the view in which the call was delivered."""
        most = call.head.answer_bytes_max
        if not isinstance(outcome, CallFailure) and len(outcome) > most:
            text = f"the answer has {len(outcome)} bytes, over the caller's {most}"
            outcome = CallFailure(Reason.TOO_LARGE, text)
        if isinstance(outcome, CallFailure):
            self._counts[f"failures.{outcome.reason.name.lower()}"] += 1
            record = failure_record(call.number, outcome)
        else:
            record = answer_record(call.number, outcome)
        return [members_record(call.number, members), record] if call.head.outside else [record]
