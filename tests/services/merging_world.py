"""A log that components go on with while they are apart, as an application of simulated nodes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from unisono.model import Member, Message, Service, ServiceLevel, View
from unisono.services.merge.messages import APPLICATION
from unisono.services.merge.reconciler import (
    ComponentState,
    Compute,
    Duty,
    MergeLimits,
    Reconciled,
    Reconciler,
    SendMergeMessage,
    Unreconciled,
)
from unisono.sim import Plan
from unisono.sim.applications import ApplicationContext, ApplicationEnd, ApplicationSpec


class Log:
    """What has happened, in the order in which it did; merged by the identity of each entry."""

    def __init__(self) -> None:
        self.entries: list[str] = []

    def snapshot(self) -> bytes:
        return json.dumps(self.entries).encode()

    def restore(self, state: bytes) -> None:
        self.entries = json.loads(state)

    def reconcile(self, states: tuple[ComponentState, ...]) -> bytes:
        return json.dumps(sorted({e for each in states for e in json.loads(each.state)})).encode()


class Writer:
    """One life: writes an entry when it is prompted, and now and then finds that it takes long."""

    reconciler_of: type[Reconciler] = Reconciler
    impatience = 0.1

    def __init__(self, scene: ApplicationContext) -> None:
        self.scene, self.log = scene, Log()
        self.reconciler = self.reconciler_of(self.log, MergeLimits(attempts_count_max=1000))
        self.reconciler.start(scene.me)
        self.written = 0
        self.confirmed: set[str] = set()
        """Entries that the application has processed here."""
        self.told: dict[tuple[str, tuple[Member, ...]], list[Reconciled | Unreconciled]] = {}
        """By view, and those that came along to the next."""
        self.view = ""
        self.telling: list[Reconciled | Unreconciled] = []
        """Of this view."""

    def deliver(self, message: Message) -> Sequence[bytes]:
        return self._do(self.reconciler.deliver(message))

    def install(self, view: View) -> Sequence[bytes]:
        self.told[self.view, view.stayed] = self.telling
        self.view, self.telling = view.id, []
        return self._do(self.reconciler.install(view))

    def prompt(self) -> Sequence[bytes]:
        self.written += 1
        entry = APPLICATION + f"{self.scene.me} {self.written}".encode()
        key = self.reconciler.under_way
        if key and self.scene.dice.random() < self.impatience:
            return [entry, *self._do(self.reconciler.expire(key))]
        return [entry]

    def _do(self, duties: Sequence[Duty]) -> list[bytes]:
        sent: list[bytes] = []
        for duty in duties:
            match duty:
                case Message():
                    entry = duty.payload.decode()
                    if entry in self.log.entries:
                        continue  # it came with a state
                    self.log.entries.append(entry)
                    self.confirmed.add(entry)
                case SendMergeMessage(payload):
                    sent.append(payload)
                case Compute(key, states):
                    result = self.log.reconcile(states)
                    sent += self._do(self.reconciler.computed(key, result))
                case Reconciled() | Unreconciled():
                    self.telling.append(duty)
        return sent

    def state(self) -> bytes:
        return self.reconciler.state()

    def adopt(self, state: bytes) -> Sequence[bytes]:
        self.reconciler.adopt(state)
        return ()

    def is_idle(self) -> bool:
        return self.reconciler.under_way is None and not self.reconciler.apart


def judge(lives: Sequence[ApplicationEnd], services: Sequence[ServiceLevel]) -> Iterable[str]:
    """Members of one view hold the same in one order; nothing that one of them has processed is
    lost; and those that went from a view to the next together were told the same of it."""
    alive = [each for each in lives if each.alive]
    logs: dict[str, set[tuple[str, ...]]] = {}
    for each in alive:
        logs.setdefault(each.application.view, set()).add(tuple(each.application.log.entries))
    for view, found in logs.items():
        if len(found) > 1:
            yield f"{len(found)} different logs are held in view {view}"
    for each in alive:
        writer: Writer = each.application
        if lost := writer.confirmed.difference(writer.log.entries):
            yield f"{each.me} has lost {len(lost)} entries"
        if len(set(writer.log.entries)) < len(writer.log.entries):
            yield f"{each.me} has an entry twice"
    told: dict[tuple[str, tuple[Member, ...]], list[Reconciled | Unreconciled]] = {}
    for each in lives:
        writer = each.application
        if each.alive:
            writer.told[writer.view, ()] = writer.telling
        for together, heard in writer.told.items():
            if together[0] and told.setdefault(together, heard) != heard:
                yield f"{each.me} was told something else of view {together[0]}"
    for heard in told.values():
        for reconciled in heard:
            if isinstance(reconciled, Reconciled):
                members = [m for each in reconciled.states for m in each.members]
                if len(members) > len(set(members)):
                    yield f"a member is represented twice in view {reconciled.view}"


def writer(scene: ApplicationContext) -> Writer:
    return Writer(scene)


WRITERS = ApplicationSpec(writer, judge)


def plan(seed: int, nodes: int, application: ApplicationSpec = WRITERS) -> Plan:
    return Plan(
        protocol="transis",
        service=Service.SAFE if seed % 2 else Service.AGREED,
        seed=seed,
        nodes=nodes,
        messages=120,
        faults="chaos",
        application=application,
    )
