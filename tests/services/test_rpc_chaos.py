"""Calls over simulated protocols under faults: members agree on those called and execute a call
once, and every call that a living caller saw delivered is completed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest

from unisono.model import Member, Message, Service, ServiceLevel, View
from unisono.services.calls.answering import Answering
from unisono.services.calls.limits import RpcLimits
from unisono.services.calls.messages import (
    AnswerRecord,
    CallHead,
    CallMessage,
    ProbeMessage,
    call_payload,
    probe_payload,
    unescaped,
)
from unisono.services.calls.result import Answers
from unisono.services.calls.table import CallTable, OpenCall
from unisono.sim import Plan, run
from unisono.sim.applications import ApplicationContext, ApplicationEnd, ApplicationSpec

pytestmark = pytest.mark.rule("RMP-20")


class Replies:
    """The way back: answers are delayed and repeated, and lost only with their caller."""

    def __init__(self) -> None:
        self.callers: dict[int, Caller] = {}
        self.under_way: list[tuple[int, Member, AnswerRecord]] = []

    def carry(self, share: float, scene: ApplicationContext) -> None:
        kept = []
        for token, sender, record in self.under_way:
            arrives = scene.dice.random() < share
            if arrives:
                self.callers[token].table.take(sender, [record])
            if not arrives or scene.dice.random() < 0.2:
                kept.append((token, sender, record))
        self.under_way = kept

    def finish(self) -> None:
        for token, sender, record in self.under_way:
            self.callers[token].table.take(sender, [record])


class Caller:
    """One incarnation: calls when it is prompted, and answers with the position of the call."""

    def __init__(self, scene: ApplicationContext, replies: Replies) -> None:
        self.scene, self.replies = scene, replies
        counts: Counter[str] = Counter()
        token = scene.dice.getrandbits(64)
        self.table = CallTable(token, RpcLimits(), counts)
        self.answering = Answering(RpcLimits(), counts)
        self.head = CallHead(token, 60_000_000, 100, False, None, "x")
        self.calls: list[OpenCall] = []
        self.executed: dict[tuple[int, int], tuple[Member, ...]] = {}
        """Each call, with the view in which it was delivered here."""
        self.twice = 0
        replies.callers[token] = self

    def deliver(self, message: Message) -> Sequence[bytes]:
        self.replies.carry(0.3, self.scene)
        call = unescaped(message.payload)
        if isinstance(call, ProbeMessage):
            for record in self.answering.missing(call):
                self.replies.under_way.append((call.head.token, self.scene.me, record))
            return self._probe()
        assert isinstance(call, CallMessage)
        key = call.head.token, call.number
        self.twice += key in self.executed
        if not self.answering.deliver(call, self.scene.now_us()):
            return ()
        members = self.answering.members
        self.executed[key] = members
        if call.head.token == self.table.token:
            self.table.deliver(call.number, members)
        for record in self.answering.records(call, b"%d" % (message.seq or 0), members):
            self.replies.under_way.append((call.head.token, self.scene.me, record))
        return self._probe()

    def _probe(self) -> Sequence[bytes]:
        if numbers := self.table.due(self.scene.now_us()):
            return [probe_payload(self.head, numbers)]
        return ()

    def install(self, view: View) -> Sequence[bytes]:
        if not view.transitional:
            self.answering.install(view, self.scene.me, self.scene.now_us())
            self.table.install(view)
        return self._probe()

    def prompt(self) -> Sequence[bytes]:
        call = self.table.begin(self.scene.dice.choice(list(Answers)), self.answering.members)
        self.calls.append(call)
        call.sent(self.scene.now_us())
        return [call_payload(self.head, call.number, b"call")]

    def state(self) -> bytes:
        return b""

    def adopt(self, state: bytes) -> Sequence[bytes]:
        return ()

    def is_idle(self) -> bool:
        return True


def judge(lives: Sequence[ApplicationEnd], services: Sequence[ServiceLevel]) -> Iterable[str]:
    callers: list[Caller] = [each.application for each in lives]
    callers[0].replies.finish()
    by_member = {each.me: each.application for each in lives}
    for each in lives:
        caller: Caller = each.application
        if caller.twice:
            yield f"{each.me} was delivered a call twice"
        for call in caller.calls:
            yield from judged(call, each, by_member)


def judged(call: OpenCall, end: ApplicationEnd, by_member: dict[Member, Caller]) -> Iterable[str]:
    key = end.application.table.token, call.number
    if call.members is None:
        return
    result = call.result()
    if end.alive and not call.complete:
        yield f"{end.me}: call {call.number} hangs: {result}, pending {result.pending}"
    if result.wanted is Answers.ALL and call.complete and not result.failures and result.pending:
        yield f"{end.me}: call {call.number} ended too early"
    for member in result.answers:
        other = by_member[member]
        if key not in other.executed:
            yield f"{member} answered call {key}, and did not execute it"
        elif set(other.executed[key]) != set(call.members):
            yield f"{member} executed call {key} in another view than its caller"
    if len(set(result.answers.values())) > 1:
        yield f"members executed call {key} at different positions: {result.answers}"


class Unobservant(Caller):
    """Planted: departures are overlooked."""

    def install(self, view: View) -> Sequence[bytes]:
        self.answering.install(view, self.scene.me, self.scene.now_us())
        return ()


class Unprobed(Caller):
    """Planted: no check whether members have missed a call."""

    def _probe(self) -> Sequence[bytes]:
        return ()


class Shortsighted(Caller):
    """Planted: a caller takes its view of the group when it calls, not when it is delivered."""

    def prompt(self) -> Sequence[bytes]:
        found = super().prompt()
        self.calls[-1].deliver(self.answering.members)
        return found


def plan(protocol: str, service: str, seed: int, nodes: int, caller: type[Caller] = Caller) -> Plan:
    replies = Replies()

    def make(scene: ApplicationContext) -> Caller:
        return caller(scene, replies)

    return Plan(
        protocol=protocol,
        service=Service[service.upper()],
        seed=seed,
        nodes=nodes,
        messages=60,
        faults="chaos",
        application=ApplicationSpec(make, judge),
    )


def broken(
    protocol: str, service: str, seeds: Iterable[int], caller: type[Caller] = Caller
) -> list[str]:
    return [
        f"seed {seed}: {each.detail}"
        for seed in seeds
        for each in run(plan(protocol, service, seed, 3 + seed % 5, caller)).violations
    ]


SEEDS = int(os.environ.get("UNISONO_RPC_SEEDS") or 1000)
ORDERED = [("ring", "safe"), ("ring", "agreed"), ("mtp", "agreed")]


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "service"), ORDERED)
def test_calls_survive_some_seeds_of_chaos(protocol: str, service: str) -> None:
    found = broken(protocol, service, range(12))
    assert not found, found


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("protocol", "service"), ORDERED)
def test_calls_survive_a_thousand_seeds_of_chaos(protocol: str, service: str) -> None:
    found = broken(protocol, service, range(SEEDS))
    assert not found, found


# What went wrong once: a member of the view got its state after the call, and none waited less
# than the timeout for it.
@pytest.mark.parametrize(("service", "seed"), [("safe", 5), ("agreed", 5)])
def test_a_member_that_has_the_call_in_its_state_is_reported(service: str, seed: int) -> None:
    assert not broken("ring", service, [seed])
    found = broken("ring", service, [seed], Unprobed)
    assert found and all("hangs" in each for each in found)


@pytest.mark.parametrize(
    ("caller", "text"), [(Unobservant, "hangs"), (Shortsighted, "in another view")]
)
def test_the_judge_can_fail(caller: type[Caller], text: str) -> None:
    assert any(text in each for each in broken("ring", "agreed", (2, 5), caller))
