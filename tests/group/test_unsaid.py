"""What a member sent before it was stopped is handed back if the group will never deliver it: sent
again, each message is delivered once. In the simulated world, by every protocol."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from dataclasses import replace
from functools import reduce
from operator import or_
from random import Random

import pytest

import unisono
from unisono import protocols
from unisono.delivered_counts import GONE_COUNT_MAX, DeliveredCounts
from unisono.errors import BadPacket
from unisono.model import Address, Member, Message, Service, View
from unisono.parts.message_runs import MessageRun, MessageRuns
from unisono.programs import Program, SimulatedMember
from unisono.sim import FaultEvent, Outcome, Plan, Weather, run
from unisono.sim.plan import SECOND_US

SENT_COUNT = 60


class Heard:
    """The application's state: all messages, in order."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []

    def snapshot(self) -> bytes:
        return b" ".join(self.texts)

    def restore(self, state: bytes) -> None:
        self.texts = state.split()


class ExactlyOnce:
    """Members that send what is unsaid again, and what must hold of them at the end."""

    def __init__(self, merges: bool) -> None:
        self._merges = merges
        """Parts go on by themselves, and what each delivered stays its own."""
        self.accepted: set[bytes] = set()
        self.unknown: set[bytes] = set()
        """It is not known whether anybody delivered them."""
        self.undone: set[bytes] = set()
        """Delivered to their sender, and not by the group."""
        self.counts = Counter[str]()

    async def main(self, group: unisono.Group, state: Heard, name: str) -> None:
        own: dict[tuple[Member, int], bytes] = {}
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send(group, name))
            async for item in group:
                if isinstance(item, unisono.Message):
                    state.texts.append(item.payload)
                    if item.sender.name == name:
                        own[item.sender, item.number] = item.payload
                elif isinstance(item, unisono.Rejoined):
                    self.counts["rejoined"] += 1
                    self.counts["lost"] += len(item.lost)
                    if item.unsaid is None:
                        self.unknown.update(item.lost)
                    else:
                        self.counts["unsaid"] += len(item.unsaid)
                        self.undone |= {
                            own[sender, number]
                            for sender, numbers in item.undone
                            for number in numbers
                        }
                    if item.unsaid:
                        tasks.create_task(self._repeat(group, item.unsaid))

    async def _send(self, group: unisono.Group, name: str) -> None:
        for number in range(SENT_COUNT):
            text = b"%s%d" % (name.encode(), number)
            await group.multicast(text)
            self.accepted.add(text)
            await asyncio.sleep(0.05)

    async def _repeat(self, group: unisono.Group, texts: tuple[bytes, ...]) -> None:
        for text in texts:
            await group.multicast(text)

    def converged(self, members: list[SimulatedMember]) -> str | None:
        states = [Counter(member.state.texts) for member in members if member.alive]
        if not self._merges and any(each != states[0] for each in states):
            return "states differ"
        heard = reduce(or_, states)
        twice = sorted(text for text, count in heard.items() if count > 1)
        if twice:
            return f"delivered twice: {twice}"
        missing = self.accepted - heard.keys() - self.unknown
        self.counts["undone"] += len(self.undone)
        if self.undone & heard.keys():
            return f"undone and delivered: {sorted(self.undone & heard.keys())}"
        if missing - self.undone:
            return f"accepted and missing without a word: {sorted(missing - self.undone)}"
        return None


def story(protocol: str, seed: int) -> tuple[ExactlyOnce, Outcome]:
    """One member after the other is paused, or cut off, for longer than it is waited for."""
    dice, nodes = Random(seed), 3 + seed % 3
    schedule = tuple(
        FaultEvent(
            dice.choice(("pause", "isolate")),
            (500 + 900 * n + dice.randrange(300)) * 1000,
            dice.randrange(700, 1800) * 1000,
            (dice.randrange(nodes),),
        )
        for n in range(3)
    )
    judge = ExactlyOnce(merges=protocol == "transis")
    program = Program(judge.main, converged=judge.converged)
    weather = Weather(fault_us=5 * SECOND_US, schedule=schedule)
    plan = Plan(protocol=protocol, seed=seed, nodes=nodes, messages=0, weather=weather)
    return judge, run(replace(plan, program=program))


SEEDS = {"mtp": 0, "ring": 5, "rmcast": 12, "rmp": 9, "transis": 0}
"""Runs in which something is unsaid, or undone; a member of transis goes on by itself."""


def check(protocol: str, seed: int) -> Counter[str]:
    judge, outcome = story(protocol, seed)
    assert not outcome.broken, (seed, outcome.violations)
    return judge.counts


@pytest.mark.parametrize("protocol", sorted(protocols.specs()))
def test_each_accepted_message_is_delivered_once(protocol: str) -> None:
    counts = check(protocol, SEEDS[protocol])
    assert counts["unsaid"] + counts["undone"] > 0 or protocol == "transis"
    assert counts["lost"] >= counts["unsaid"]


@pytest.mark.soak
@pytest.mark.parametrize("protocol", sorted(protocols.specs()))
def test_many_are(protocol: str) -> None:
    counts = Counter[str]()
    for seed in range(1000, 1000 + int(os.environ.get("UNISONO_SEEDS") or 100)):
        counts += check(protocol, seed)
    print(protocol, dict(counts))


# -- the counts ------------------------------------------------------------------------------------

A, B, C = (Member(name, Address("10.0.0.1", 1), 1) for name in "abc")


def message(sender: Member, number: int) -> Message:
    return Message(sender, b"x", number, "v", None, Service.AGREED)


@pytest.mark.parametrize("as_runs", [True, False])
def test_the_last_message_of_each_sender_counts(as_runs: bool) -> None:
    told = [message(A, 1), message(B, 1), message(A, 2), message(B, 2), message(A, 3)]
    counts = DeliveredCounts()
    counts.deliver(MessageRuns([MessageRun.of(each) for each in told]) if as_runs else told)
    later = DeliveredCounts()
    assert later.adopt(counts.with_state(b"state")) == b"state"
    alone = View((C,))
    assert [later.of(sender, alone) for sender in (A, B, C)] == [3, 2, 0]


def test_a_state_of_several_founders_is_nobodys() -> None:
    counts = DeliveredCounts()
    assert counts.of(A, View((B, C))) is None
    assert counts.of(A, View((B,))) == 0


def test_those_that_are_long_gone_are_forgotten_and_not_taken_for_new() -> None:
    counts = DeliveredCounts()
    gone = [A._replace(incarnation=n) for n in range(GONE_COUNT_MAX + 2)]
    counts.deliver([message(member, 7) for member in gone])
    counts.install(View((B,)))
    later = DeliveredCounts()
    later.adopt(counts.with_state(b""))
    assert [later.of(gone[n], View((B,))) for n in (0, 1, 2)] == [None, None, 7]
    assert later.of(C, View((B,))) is None, "it may have been forgotten"


def test_what_a_replaced_state_had_is_undone() -> None:
    ours, theirs = DeliveredCounts(), DeliveredCounts()
    second = A._replace(incarnation=2)
    ours.deliver([message(A, 5), message(B, 9), message(second, 3)])
    theirs.deliver([message(A, 2), message(second, 3)])
    ours.adopt(theirs.with_state(b""))
    assert ours.undone("a") == ((A, range(3, 6)),)
    ours.begin()
    assert ours.undone("a") == ()


@pytest.mark.parametrize("damaged", [b"", b"\0\0\0\1", bytes(4) + b"\2", b"\xff" * 40])
def test_a_state_that_is_none_is_refused(damaged: bytes) -> None:
    with pytest.raises(BadPacket):
        DeliveredCounts().adopt(damaged)
