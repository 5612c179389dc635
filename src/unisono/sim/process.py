"""A process of a simulated node: one incarnation, its core and its timers.

Effects are performed one by one: an aimed fault strikes between two of them, and the rest are
never performed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from unisono.core import (
    EVERYONE,
    Adopt,
    Arm,
    Capture,
    Captured,
    Cause,
    Checkpoint,
    Deliver,
    Depart,
    Disarm,
    Effect,
    Event,
    Everyone,
    Expired,
    Fail,
    Install,
    Multicast,
    Persist,
    Persisted,
    Probe,
    Received,
    Send,
    Target,
    Timer,
)
from unisono.model import Burst, Bursts, Member, Packets, ServiceLevel, View
from unisono.sealing.seal import Seal
from unisono.sim.applications import RunningApplication
from unisono.sim.plan import dice
from unisono.sim.programs import ProcessSession
from unisono.sim.workload import Memory

if TYPE_CHECKING:
    from unisono.sim.nodes import Node
    from unisono.sim.world import World
    from unisono.trace.tap import Tap


class SimProcess:
    """One incarnation: feeds its core, performs the effects, and keeps the timers."""

    def __init__(self, world: World, node: Node, member: Member, tap: Tap) -> None:
        self.world = world
        self.node = node
        self.me = member
        self.tap = tap
        self._take = tap.take
        self.seal = world.seal_of(member)
        self.over = False
        self.stopped = False
        """Ended by its core, and not by a crash."""
        self.view: View | None = None
        self.view_us = world.now_us
        """When the view was installed, or the process began."""
        self.safe_members: tuple[Member, ...] = ()
        """Must hold what it delivers as safe: the members of its view, or its transitional one."""
        self.excluded = False
        """The group went on without it."""
        self.sent_count = 0
        """Messages multicast so far: the number of the last one."""
        self.memory = Memory(world.spec.ordered_from) if world.with_state else None
        self.application: RunningApplication | None = None
        if spec := world.plan.application:
            seed = world.plan.seed
            roll, levels = dice(seed, "application", member), dice(seed, "levels", member)
            self.application = RunningApplication(self, spec, roll, levels)
        self.session: ProcessSession | None = None
        """What a program joined through."""
        self.congested = False
        self.leaving = False
        self._deadlines: dict[Timer, int] = {}
        self._queued: dict[Timer, int] = {}
        """By timer, when its earliest entry in the world's queue is due."""
        self._late_effects: list[Effect] = []
        self._late_timers: list[Timer] = []
        self._late_events: list[Event] = []

    def feed(self, event: Event) -> None:
        """Give the core an event and perform the effects; a paused process gets it later."""
        if self.over:
            return
        world, node = self.world, self.node
        if node.paused:
            self._late_events.append(event)
            return
        world.steps += 1
        aims = node.aims
        if aims.waiting:
            aims.look(self)
        try:
            effects = self._take(world.now_us, event)
        except Exception as error:
            world.crashed(self, event, error)
            return
        if aims.waiting:
            self._perform_aimed_at(effects)
        else:
            for effect in effects:
                kind = type(effect)
                # The most frequent kinds come first; they never end the process.
                if kind is Send:
                    self._send(effect)  # type: ignore[arg-type]
                elif kind is Arm:
                    self._arm(effect)  # type: ignore[arg-type]
                elif kind is Disarm:
                    self._deadlines.pop(effect.timer, None)  # type: ignore[union-attr]
                else:
                    self._perform(effect)
                    if self.over:
                        return
        if self.session is not None and not self.over:
            self.session.stepped()

    def receive(self, received: Received) -> None:
        """Packets came: what is believed of them is fed to the core."""
        if self.seal is None:
            self.feed(received)
            return
        now_us = self.world.now_us
        opened, replies = self.seal.open([(received.source, received.packets)], now_us)
        for to, packet in replies:
            self._cast((to,), [packet])
        for source, packets in opened:
            self.feed(Received(source, packets))

    def multicast(self, payloads: Sequence[bytes], service: ServiceLevel) -> None:
        self.sent_count += len(payloads)
        self.world.sent += len(payloads)
        self.feed(Multicast(payloads, service))

    def stop(self, reason: str) -> None:
        """The world ends this process, and the application gets the reason."""
        self.tap.record(self.world.now_us, Fail(reason))
        self._finished(clean=False, reason=reason)

    def _finished(self, clean: bool, reason: str | None, cause: Cause | None = None) -> None:
        self.node.finished(self, clean)
        if self.session is not None:
            self.session.ended(reason, cause)

    def end(self) -> None:
        self.over = True
        self._deadlines.clear()

    def finish_step(self) -> None:
        """After a pause amid a step: perform the rest of its effects."""
        effects, self._late_effects = self._late_effects, []
        self._perform_aimed_at(effects)

    def wake(self, timers_first: bool) -> None:
        """After a pause: what is overdue happens now, in one of the orders a real loop may take."""
        timers, self._late_timers = self._late_timers, []
        events, self._late_events = self._late_events, []
        if timers_first:
            self._fire_late(timers)
        for event in events:
            self.feed(event)
        if not timers_first:
            self._fire_late(timers)

    def _fire_late(self, timers: list[Timer]) -> None:
        for timer in timers:
            deadline_us = self._deadlines.get(timer)
            if deadline_us is not None and deadline_us <= self.world.now_us:
                del self._deadlines[timer]
                self.feed(Expired(timer))

    # -- effects --------------------------------------------------------------------------------

    def _perform_aimed_at(self, effects: Sequence[Effect]) -> None:
        """Perform the effects one by one, and strike where a fault is aimed; a pause there keeps
        the rest for later."""
        aims = self.node.aims
        aims.walked(self)
        for at, effect in enumerate(effects):
            if self._is_struck(aims.before(effect, at), effects[at:]):
                return
            if type(effect) is Send:
                self._send(effect)
            else:
                self._perform(effect)
            if self._is_struck(not self.over and aims.after(effect), effects[at + 1 :]):
                return
        aims.before(None, len(effects))

    def _is_struck(self, struck: bool, rest: Sequence[Effect]) -> bool:
        if struck and self.node.paused and not self.over:
            self._late_effects.extend(rest)
            return True
        return self.over

    def _perform(self, effect: Effect) -> None:
        world = self.world
        if isinstance(effect, Arm):
            self._arm(effect)
            return
        if isinstance(effect, Disarm):
            self._deadlines.pop(effect.timer, None)
            return
        if isinstance(effect, Persist | Checkpoint):
            self._write(effect)
            return
        if isinstance(effect, Probe):
            world.probes.send(self, effect.to)
            return
        self.tap.record(world.now_us, effect)
        if self.session is not None:
            self.session.perform(effect)
        if isinstance(effect, Deliver):
            if self.memory is not None:
                self.memory.deliver(effect.messages)
            if self.application is not None:
                self.application.deliver(effect.messages)
            world.on_delivered(self, effect.messages)
        elif isinstance(effect, Install):
            self.safe_members = effect.view.members
            if effect.view.transitional:
                return  # It ends the view before it, which remains the last that has a majority.
            before, self.view, self.view_us = self.view, effect.view, world.now_us
            if self.memory is not None:
                world.check_state(self, self.memory.install(effect.view, self.me))
            if self.application is not None:
                self.application.install(effect.view)
            world.installed(self, before)
        elif isinstance(effect, Capture):
            if self.session is None:
                self._capture(effect)
        elif isinstance(effect, Adopt):
            world.counts["adopted"] += 1
            state = (
                self.application.adopt(effect.state)
                if self.application is not None
                else effect.state
            )
            if self.memory is not None:
                world.check_state(self, self.memory.adopt(state, self.me))
        elif isinstance(effect, Depart | Fail):
            self.stopped = True
            if isinstance(effect, Fail):
                world.failed(self, effect)
                self._finished(clean=False, reason=effect.reason, cause=effect.cause)
            else:
                self._finished(clean=True, reason=None)

    def _write(self, effect: Persist | Checkpoint) -> None:
        """A process that cannot write stops before anything that relies on the write is sent."""
        node, world = self.node, self.world
        if not node.disk.write(effect.record, isinstance(effect, Checkpoint)):
            world.counts["disk_full"] += 1
            self.stop("cannot write to stable storage: no space left")
            return
        world.counts["persisted"] += 1
        if effect.key is not None:
            world.post(world.now_us, self._persisted, effect.key, None)

    def _persisted(self, key: Hashable, _: None) -> None:
        self.feed(Persisted(key))

    def _capture(self, effect: Capture) -> None:
        """The state is taken now; the core gets it as its next event."""
        self.world.counts["captured"] += 1
        state = self.memory.state() if self.memory is not None else b""
        if self.application is not None:
            state = self.application.state(state)
        self.world.check_state(self, "")
        self.world.post(self.world.now_us, self._captured, effect.key, state)

    def _captured(self, key: Hashable, state: bytes) -> None:
        self.feed(Captured(key, state))

    def _send(self, effect: Send) -> None:
        world = self.world
        if world.plan.detail:
            self.tap.record(world.now_us, effect)
        packets = effect.packets if self.seal is None else sealed(effect.packets, self.seal)
        self._cast(effect.to, world.datagrams_of(packets, self))

    def _cast(self, to: Target, packets: list[bytes]) -> None:
        world, here = self.world, self.node.index
        if to is EVERYONE or isinstance(to, Everyone):
            targets: Sequence[int] = world.reach[here]
        else:
            index_of = world.index_of
            targets = [index_of[each] for each in to if each in index_of]
            if len(targets) < len(to):
                world.counts["sent_nowhere"] += len(packets) * (len(to) - len(targets))
        world.network.cast(world.now_us, here, targets, packets)

    # -- timers ---------------------------------------------------------------------------------

    def _arm(self, effect: Arm) -> None:
        now_us, after_us, node = self.world.now_us, effect.after_us, self.node
        if node.skewed:
            clock = node.clock
            deadline_us = max(clock.world(clock.local(now_us) + after_us), now_us)
        else:
            deadline_us = now_us + after_us if after_us > 0 else now_us
        self._await(effect.timer, deadline_us)

    def _await(self, timer: Timer, deadline_us: int) -> None:
        self._deadlines[timer] = deadline_us
        queued_us = self._queued.get(timer)
        # A timer that is only put off keeps its old entry, which looks again when it comes up.
        if queued_us is None or queued_us > deadline_us:
            self._queued[timer] = deadline_us
            self.world.post(deadline_us, self._look, timer, deadline_us)

    def local_deadlines(self) -> dict[Timer, int]:
        """What the node's clock will show when each timer runs out."""
        return {timer: self.node.clock.local(at_us) for timer, at_us in self._deadlines.items()}

    def keep_deadlines(self, local_us: dict[Timer, int]) -> None:
        """The clock has changed: timers run out when it shows what they wait for."""
        for timer, at_us in local_us.items():
            self._await(timer, max(self.node.clock.world(at_us), self.world.now_us))

    def _look(self, timer: Timer, entry_us: int) -> None:
        if self.over or self._queued.get(timer) != entry_us:
            return
        del self._queued[timer]
        deadline_us = self._deadlines.get(timer)
        if deadline_us is None:
            return
        if deadline_us > entry_us:
            self._queued[timer] = deadline_us
            self.world.post(deadline_us, self._look, timer, deadline_us)
        elif self.node.paused:
            self.world.counts["late_timers"] += 1
            self._late_timers.append(timer)
        else:
            del self._deadlines[timer]
            self.feed(Expired(timer))


def sealed(packets: Packets, seal: Seal) -> list[bytes]:
    """The packets as they travel: those of a burst as one record."""
    bursts = packets.each() if isinstance(packets, Bursts) else [packets]
    found: list[bytes] = []
    for burst in bursts:
        if isinstance(burst, Burst):
            runs = [(burst.buffer, burst.size, len(burst))]
        else:
            runs = [(packet, len(packet), 1) for packet in burst]  # type: ignore[misc]
        for run in runs:
            buffer, size, _ = seal.seal(run)
            found += (bytes(buffer[at : at + size]) for at in range(0, len(buffer), size))
    return found
