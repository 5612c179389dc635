"""The nodes of a simulated world: places that crash, pause and return, and the lives lived there.

A node is a name, an address, a disk and a clock; a life is one incarnation of its process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from unisono.core import (
    Adopt,
    Arm,
    Capture,
    Captured,
    Checkpoint,
    Congested,
    Core,
    Deliver,
    Depart,
    Disarm,
    Effect,
    Event,
    Everyone,
    Expired,
    Fail,
    Install,
    Join,
    Leave,
    Multicast,
    Persist,
    Persisted,
    Received,
    Restart,
    Send,
    Setting,
    Timer,
)
from unisono.model import Address, Member, View, coalesced
from unisono.sim.acting import Acting
from unisono.sim.application import Memory
from unisono.sim.plan import Clock, dice, node_name

if TYPE_CHECKING:
    from unisono.sim.world import World
    from unisono.trace.tap import Tap

INBOX_MAX: Final = 256
"""Bursts that wait for a paused process; the operating system drops what comes beyond."""


class Skewed:
    """A core that lives by its node's clock, inside the tap: the rows keep the world's time."""

    def __init__(self, core: Core, clock: Clock) -> None:
        self.inner = core
        self.me = core.me
        self.counts = core.counts
        self._clock = clock

    def step(self, now_us: int, event: Event) -> list[Effect]:
        return self.inner.step(self._clock.local(now_us), event)

    def room(self) -> int:
        return self.inner.room()

    def held(self) -> Mapping[Member, int]:
        return self.inner.held()

    def walked(self) -> Mapping[str, int]:
        return self.inner.walked()


class Life:
    """One incarnation: feeds its core, performs what the core asks, and keeps its timers."""

    def __init__(self, world: World, node: Node, member: Member, tap: Tap) -> None:
        self.world = world
        self.node = node
        self.me = member
        self.tap = tap
        self.over = False
        self.view: View | None = None
        self.said = 0
        """Messages multicast so far: the number of the last one."""
        self.memory = Memory() if world.with_state else None
        self.acting: Acting | None = None
        if play := world.plan.application:
            roll = dice(world.plan.seed, "application", member)
            self.acting = Acting(self, play, roll)
        self.congested = False
        self.leaving = False
        self._deadlines: dict[Timer, int] = {}
        self._queued: dict[Timer, int] = {}
        """When the earliest entry in the world's queue looks at the timer again."""
        self._late_timers: list[Timer] = []
        self._late_events: list[Event] = []

    def feed(self, event: Event) -> None:
        """Give the core an event and perform the effects; a paused process gets it later."""
        if self.over:
            return
        if self.node.paused:
            self._late_events.append(event)
            return
        world = self.world
        world.steps += 1
        try:
            effects = self.tap.take(world.now_us, event)
        except Exception as error:
            world.crashed(self, event, error)
            return
        for effect in effects:
            kind = type(effect)
            # The two kinds that are most of all come first, and end no life.
            if kind is Send:
                self._send(effect)  # type: ignore[arg-type]
            elif kind is Arm:
                self._arm(effect.timer, effect.after_us)  # type: ignore[union-attr]
            else:
                self.tap.tell(world.now_us, effect)
                self._perform(effect)
                if self.over:
                    return

    def say(self, payloads: Sequence[bytes]) -> None:
        self.said += len(payloads)
        self.world.sent += len(payloads)
        self.feed(Multicast(payloads, self.world.service))

    def end(self) -> None:
        self.over = True
        self._deadlines.clear()

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

    def _perform(self, effect: Effect) -> None:
        world = self.world
        if isinstance(effect, Disarm):
            self._deadlines.pop(effect.timer, None)
        elif isinstance(effect, Deliver):
            if self.memory is not None:
                self.memory.hear(effect.messages)
            if self.acting is not None:
                self.acting.hear(effect.messages)
            world.delivered_here(self, effect.messages)
        elif isinstance(effect, Install):
            if effect.view.transitional:
                return  # It ends the view before it, which remains the last that has a majority.
            self.view = effect.view
            if self.memory is not None:
                world.judge_state(self, self.memory.see(effect.view, self.me))
            if self.acting is not None:
                self.acting.see(effect.view)
            world.installed(self)
        elif isinstance(effect, Persist | Checkpoint):
            if isinstance(effect, Checkpoint):
                self.node.disk.clear()
            self.node.disk.append(effect.record)
            world.counts["persisted"] += 1
            if effect.key is not None:
                world.post(world.now_us, self._persisted, effect.key, None)
        elif isinstance(effect, Capture):
            self._capture(effect)
        elif isinstance(effect, Adopt):
            world.counts["adopted"] += 1
            state = self.acting.adopt(effect.state) if self.acting is not None else effect.state
            if self.memory is not None:
                world.judge_state(self, self.memory.adopt(state, self.me))
        elif isinstance(effect, Depart | Fail):
            self.node.finished(self, clean=isinstance(effect, Depart))

    def _capture(self, effect: Capture) -> None:
        """The state is taken here and now; the core hears of it as the next event."""
        self.world.counts["captured"] += 1
        state = self.memory.state() if self.memory is not None else b""
        if self.acting is not None:
            state = self.acting.state(state)
        self.world.judge_state(self, "")
        self.world.post(self.world.now_us, self._captured, effect.key, state)

    def _persisted(self, key: Timer, _: None) -> None:
        self.feed(Persisted(key))

    def _captured(self, key: Timer, state: bytes) -> None:
        self.feed(Captured(key, state))

    def _send(self, effect: Send) -> None:
        world, here = self.world, self.node.index
        if world.plan.detail:
            self.tap.tell(world.now_us, effect)
        packets = [bytes(packet) for packet in effect.packets]
        longest = max(map(len, packets), default=0)
        if longest > world.weather.packet_octets_max:
            world.broken("packet_size", f"a packet of {longest} octets", self)
        if isinstance(effect.to, Everyone):
            targets: Sequence[int] = world.reach[here]
        else:
            known = [world.places[each] for each in effect.to if each in world.places]
            world.counts["sent_nowhere"] += len(packets) * (len(effect.to) - len(known))
            targets = known
        world.network.cast(world.now_us, here, targets, packets)

    def _arm(self, timer: Timer, after_us: int) -> None:
        now_us, clock = self.world.now_us, self.node.clock
        if clock.ppm:
            deadline_us = max(clock.world(clock.local(now_us) + after_us), now_us)
        else:
            deadline_us = now_us + max(after_us, 0)
        self._deadlines[timer] = deadline_us
        queued_us = self._queued.get(timer)
        # A timer that is only put off keeps its old entry, which looks again when it comes up.
        if queued_us is None or queued_us > deadline_us:
            self._queued[timer] = deadline_us
            self.world.post(deadline_us, self._look, timer, deadline_us)

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


class Node:
    """A place in the world where one life follows another."""

    def __init__(self, world: World, index: int, clock: Clock) -> None:
        self.world = world
        self.index = index
        self.name = node_name(index)
        self.address = Address(f"10.0.{index >> 8}.{(index & 255) + 1}", 7000)
        self.clock = clock
        self.dice = dice(world.plan.seed, "node", index)
        self.incarnation = 0
        self.disk: list[bytes] = []
        self.records: list[bytes] = []
        """What a plan's application has made safe, beside what its core has."""
        self.life: Life | None = None
        self.paused = False
        self._pause_end_us = 0
        self._slow_end_us = 0
        self._down = False
        """Died by a crash, so its next life begins with `Restart`."""
        self._return = 0
        """Which of the planned returns is the one that counts: the last."""
        self._away_us = 0
        self._inbox: list[Received] = []

    # -- lives ----------------------------------------------------------------------------------

    def start(self, which: int, _: object = None) -> None:
        """Begin a life, unless one is under way or this return was overtaken by another."""
        if self.life is not None or which != self._return:
            return
        world = self.world
        self.incarnation += 1
        member = Member(self.name, self.address, self.incarnation)
        setting = Setting(
            me=member,
            group=world.group,
            seed=dice(world.plan.seed, "core", self.name, self.incarnation).getrandbits(63),
            packet_octets_max=world.weather.packet_octets_max,
            window_octets_max=world.weather.window_octets_max,
            with_state=world.with_state,
            options=world.options_of(self.index),
        )
        life = Life(world, self, member, world.tapped(setting, self.clock))
        self.life = life
        if self.incarnation > 1:
            world.counts["incarnations"] += 1
            if self._down or self.disk:
                life.feed(Restart(tuple(self.disk)))
        self._down = False
        life.feed(Join())

    def plan_return(self, after_us: int) -> None:
        self._return += 1
        self.world.post(self.world.now_us + after_us, self.start, self._return, None)

    def crash(self, keep_disk: bool, down_us: int) -> None:
        life = self.life
        if life is None:
            return
        self.world.counts["crashed" if keep_disk else "amnesia"] += 1
        life.tap.note(self.world.now_us, "crash", "crash" if keep_disk else "amnesia")
        if not keep_disk:
            self.disk.clear()
            self.records.clear()
        self._down = True
        self._bury(life)
        self.plan_return(down_us)

    def finished(self, life: Life, clean: bool) -> None:
        """The core is done, by leaving or by failing; the node always joins again."""
        self.world.counts["departed" if clean else "stopped"] += 1
        self._bury(life)
        away_us = self.dice.randint(50_000, 200_000)
        if not self.world.healing:
            away_us = self._away_us if clean else self.dice.randint(100_000, 2_000_000)
        self.plan_return(away_us)

    def _bury(self, life: Life) -> None:
        life.end()
        self.life = None
        # What ailed this life does not ail the next.
        self.paused = False
        self._pause_end_us = self._slow_end_us = 0
        self._inbox.clear()
        self.world.lost()

    # -- faults ---------------------------------------------------------------------------------

    def pause(self, for_us: int) -> None:
        if self.life is None:
            return
        self.world.counts["paused"] += 1
        self.paused = True
        self._pause_end_us = max(self._pause_end_us, self.world.now_us + for_us)
        self.world.post(self._pause_end_us, self.resume, self.life, None)

    def resume(self, life: Life | None, _: object = None) -> None:
        """Wake: packets and timers that are overdue come first, in either order."""
        if not self.paused or life is not self.life or life is None:
            return
        if self.world.now_us < self._pause_end_us and not self.world.healing:
            return
        self.paused = False
        self._pause_end_us = 0
        inbox, self._inbox = self._inbox, []
        timers_first = self.dice.random() < 0.5
        if timers_first:
            life.wake(timers_first)
        for received in inbox:
            life.feed(received)
        if not timers_first:
            life.wake(timers_first)

    def leave(self, away_us: int) -> None:
        life = self.life
        if life is None or life.view is None or life.leaving:
            return
        self.world.counts["left"] += 1
        self._away_us = away_us
        life.leaving = True
        life.feed(Leave())

    def slow(self, for_us: int) -> None:
        """The application stops reading."""
        life = self.life
        if life is None:
            return
        self._slow_end_us = max(self._slow_end_us, self.world.now_us + for_us)
        self.world.post(self._slow_end_us, self.read_on, life, None)
        if not life.congested:
            self.world.counts["congested"] += 1
            life.congested = True
            life.feed(Congested(True))

    def read_on(self, life: Life | None, _: object = None) -> None:
        if life is None or life is not self.life or not life.congested:
            return
        if self.world.now_us < self._slow_end_us and not self.world.healing:
            return
        self._slow_end_us = 0
        life.congested = False
        life.feed(Congested(False))

    def heal(self) -> None:
        """End whatever ails this node; who is away comes back soon."""
        if self.life is None:
            self.plan_return(self.dice.randint(0, 300_000))
        self.resume(self.life)
        self.read_on(self.life)

    # -- packets --------------------------------------------------------------------------------

    def arrive(self, source: Address, packets: list[bytes]) -> None:
        life = self.life
        if life is None:
            self.world.counts["arrived_nowhere"] += len(packets)
        elif not self.paused:
            life.feed(Received(source, coalesced(packets)))
        elif len(self._inbox) < INBOX_MAX:
            self.world.counts["inboxed"] += len(packets)
            self._inbox.append(Received(source, coalesced(packets)))
        else:
            self.world.counts["inbox_overflowed"] += len(packets)
