"""The bank of the example as an application of simulated nodes, and its judge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from examples.bank import Accounts
from unisono.model import Message, Service, ServiceLevel, View
from unisono.services.commit.messages import CommitRequest, encoded
from unisono.services.commit.replica import Duty, Prepare, Replica, SendMessage
from unisono.services.commit.table import Begun, Committed, Decided, Outcome
from unisono.sim.applications import ApplicationContext, ApplicationEnd, ApplicationSpec

COINS = 100


class Teller:
    """One life at the bank: moves coins when it is prompted, votes, and notes every outcome."""

    replica_of: type[Replica] = Replica

    def __init__(self, scene: ApplicationContext) -> None:
        self.scene = scene
        self.forgot = not scene.records and scene.me.incarnation > 1
        """An earlier life wrote something, and it is gone."""
        kept = scene.records[-1] if scene.records else b""
        scene.records[:] = [kept]
        opening = dict.fromkeys(scene.names, COINS)
        self.accounts = Accounts(scene.me.name, opening, kept, self._keep)
        self.replica = self.replica_of(self.accounts)
        self.replica.start(scene.me)
        self.outcomes: dict[str, Outcome] = {}
        self.adopted = False
        self.asked: list[str] = []
        self.longest_us = 0
        """From the begin of an action to its outcome, at most."""
        self.views: list[tuple[int, View]] = []
        self._begun_us: dict[str, int] = {}

    def _keep(self, kept: bytes) -> None:
        self.scene.records[:] = [kept]

    def deliver(self, message: Message) -> Sequence[bytes]:
        return self._do(self.replica.deliver(message))

    def install(self, view: View) -> Sequence[bytes]:
        self.views.append((self.scene.now_us(), view))
        return self._do(self.replica.install(view))

    def prompt(self) -> Sequence[bytes]:
        """Mostly between two, now and then among more, or what no holder agrees to."""
        scene, roll = self.scene, self.scene.dice
        giver, *takers = roll.sample(scene.names, min(len(scene.names), roll.choice((2, 2, 2, 3))))
        moved = {name: roll.randint(1, COINS // 2) for name in takers}
        operations = {giver: -sum(moved.values()), **moved}
        if roll.random() < 0.05:
            operations[giver] += 1
        self.asked.append(f"{scene.me}/{len(self.asked)}")
        moves = {name: b"%d" % each for name, each in operations.items()}
        return [encoded(CommitRequest(self.asked[-1], moves))]

    def state(self) -> bytes:
        return self.replica.state()

    def adopt(self, state: bytes) -> Sequence[bytes]:
        self.adopted = True
        return self._do(self.replica.adopt(state))

    def is_idle(self) -> bool:
        """All that it has asked for is decided, and whatever else it knows of."""
        return not self.replica.table.open and self.outcomes.keys() >= set(self.asked)

    def _do(self, duties: Sequence[Duty]) -> list[bytes]:
        said = []
        for duty in duties:
            if isinstance(duty, Prepare):
                objection = self.accounts.prepare(duty.action)
                said.append(self.replica.vote(duty.action.key, objection))
            elif isinstance(duty, SendMessage):
                said.append(duty.payload)
            elif isinstance(duty, Begun):
                self._begun_us[duty.action.key] = self.scene.now_us()
            elif isinstance(duty, Decided):
                now_us = self.scene.now_us()
                took_us = now_us - self._begun_us.pop(duty.action.key, now_us)
                self.longest_us = max(self.longest_us, took_us)
                assert duty.action.key not in self.outcomes, "decided once"
                self.outcomes[duty.action.key] = duty.outcome
        return said


def judge(lives: Sequence[ApplicationEnd], services: Sequence[ServiceLevel]) -> Iterable[str]:
    """The total is what it was, all hold the same, nothing hangs, nothing ended both ways.

    With safe delivery that binds the dead too. With a weaker order they may have seen more; and
    where a member came back without its memory, a majority may have forgotten what they saw."""
    forgot = any(each.application.forgot for each in lives)
    strict = set(services) == {Service.SAFE} and not forgot
    alive = [each for each in lives if each.alive]
    total = COINS * len(alive[0].application.scene.names)
    outcomes: dict[str, tuple[bool, str]] = {}
    for each in lives:
        teller: Teller = each.application
        if min(teller.accounts.coins.values()) < 0:
            yield f"{each.me} holds an account below nothing"
        if each.alive or strict:
            if teller.accounts.total != total:
                yield f"{each.me} counts {teller.accounts.total} coins, not {total}"
            if teller.accounts.differed and strict:
                yield teller.accounts.differed
            for key, outcome in teller.outcomes.items():
                done = isinstance(outcome, Committed)
                before, who = outcomes.setdefault(key, (done, str(each.me)))
                if before != done:
                    yield f"{key} ended one way at {who}, the other at {each.me}"
        if each.alive and teller.replica.table.open:
            yield f"{each.me} still has open: {' '.join(teller.replica.table.open)}"
    states = {each.application.replica.state() for each in alive}
    if len(states) > 1:
        yield f"{len(states)} different tables are held by {len(alive)} members"


def teller(scene: ApplicationContext) -> Teller:
    return Teller(scene)


BANK = ApplicationSpec(teller, judge)
