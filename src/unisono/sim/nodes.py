"""The nodes of a simulated world: places that crash, pause and return, where one life follows
another.

A node is a name, an address, a disk and a clock; a life is one incarnation of its process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from unisono.core import Congested, CoreConfig, Join, Leave, Received, Request, Restart
from unisono.model import Address, Member, coalesced
from unisono.sim.aims import AimedFaults
from unisono.sim.clocks import NodeClock
from unisono.sim.incarnations import SimIncarnation
from unisono.sim.plan import TRUE, dice, node_name
from unisono.trace.record import LEAVING

if TYPE_CHECKING:
    from unisono.sim.world import World

INBOX_MAX: Final = 256
"""Bursts that wait for a paused process; the operating system drops what comes beyond."""

CLOCK_KINDS: Final = ("drift", "jump", "stand")
"""Faults of a node's clock."""

TAKING_NAMES: Final = ("setback", "namesake")
"""Faults that need an incarnation below one that was."""


class SimDisk:
    """Stable storage: records, oldest first."""

    def __init__(self, durable: bool) -> None:
        self.durable = durable
        """Whether records survive a crash."""
        self.records: list[bytes] = []
        self.full = False
        self._before: list[bytes] = []

    def write(self, record: bytes, alone: bool) -> bool:
        """Add a record, or put it in place of all others; false when there is no space."""
        if self.full:
            return False
        self._before = self.records
        self.records = [record] if alone else [*self.records, record]
        return True

    def tear(self) -> None:
        """The last write did not come to its end."""
        self.records = self._before

    def lose(self) -> None:
        self.records = self._before = []


class Node:
    """A place in the world where one life follows another."""

    def __init__(self, world: World, index: int, host: Node | None = None) -> None:
        weather, plan = world.weather, world.plan
        self.world = world
        self.index = index
        self.host = host
        """Whose name it wants to take, where it is a namesake."""
        self.name: str = host.name if host is not None else node_name(index)
        self.address = Address(f"10.0.{index >> 8}.{(index & 255) + 1}", 7000)
        clock = weather.clocks[index] if index < len(weather.clocks) else TRUE
        mine = [event.kind for event in weather.schedule if index in event.nodes]
        self.watch = NodeClock(clock)
        self.skewed = clock != TRUE or any(kind in CLOCK_KINDS for kind in mine)
        self.dice = dice(plan.seed, "node", index)
        durable = weather.durable[index] if index < len(weather.durable) else True
        self.disk = SimDisk(durable)
        self.aims = AimedFaults(index, world.strike)
        self.records: list[bytes] = []
        """What a plan's application has made safe, beside what its core has."""
        self.life: SimIncarnation | None = None
        self.paused = False
        self._unused = list(range(1, 1 + sum(kind in TAKING_NAMES for kind in mine)))
        """Incarnations below the first, for those who come back with one."""
        self._highest = len(self._unused)
        self._set_back = False
        self._pause_end_us = 0
        self._slow_end_us = 0
        self._down = False
        """Died by a crash, so its next life begins with `Restart`."""
        self._lives = 0
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
        member = Member(self.name, self.address, self._next_incarnation())
        setting = CoreConfig(
            me=member,
            group=world.group,
            seed=dice(world.plan.seed, "core", self.name, member.incarnation).getrandbits(63),
            packet_bytes_max=world.weather.packet_bytes_max,
            window_bytes_max=world.weather.window_bytes_max,
            with_state=world.with_state,
            durable=self.disk.durable,
            options=world.options_of(self.index),
        )
        life = SimIncarnation(world, self, member, world.tapped(setting, self))
        self.life = world.born(life)
        self._lives += 1
        if self._lives > 1:
            world.counts["incarnations"] += 1
            if self._down or self.disk.records:
                life.feed(Restart(tuple(self.disk.records)))
        self._down = False
        life.feed(Join())

    def _next_incarnation(self) -> int:
        if self.host is not None:
            return self.host.lend_incarnation(self.dice.random() < 0.5)
        if self._set_back and self._unused:
            self._set_back = False
            return self._unused.pop()
        self._highest += 1
        return self._highest

    def lend_incarnation(self, lower: bool) -> int:
        """One that no life of this name has or will have."""
        if lower and self._unused:
            return self._unused.pop(0)
        self._highest += 1
        return self._highest

    def plan_return(self, after_us: int) -> None:
        self._return += 1
        self.world.post(self.world.now_us + after_us, self.start, self._return, None)

    def crash(self, kind: str, down_us: int) -> None:
        """Die; `amnesia`, `torn` and `setback` are crashes with something more."""
        life = self.life
        if life is None:
            return
        world = self.world
        world.counts["crashed" if kind == "crash" else kind] += 1
        life.tap.note(world.now_us, "crash", kind)
        if kind == "torn":
            self.disk.tear()
        if kind == "amnesia":
            self.disk.durable = False
        if kind == "setback":
            self._set_back = True
        if not self.disk.durable:
            world.forgot = True
            self.disk.lose()
            self.records.clear()
        self._down = True
        self._bury(life)
        self.plan_return(down_us)

    def finished(self, life: SimIncarnation, clean: bool) -> None:
        """The core is done, by leaving or by failing; the node always joins again. Who was stopped
        does so in the same process, which has its records without a disk too."""
        self.world.counts["departed" if clean else "stopped"] += 1
        self._bury(life)
        if clean and not self.disk.durable:
            self.disk.lose()
        away_us = self.dice.randint(50_000, 200_000)
        if not self.world.healing:
            away_us = self._away_us if clean else self.dice.randint(100_000, 2_000_000)
        if self.host is None:
            self.plan_return(away_us)

    def vanish(self) -> None:
        """The process is killed and does not come back."""
        self._return += 1
        if self.life is not None:
            self.life.tap.note(self.world.now_us, "crash", "crash")
            self._bury(self.life)

    def _bury(self, life: SimIncarnation) -> None:
        life.end()
        self.life = None
        # What ailed this life does not ail the next.
        self.paused = False
        self._pause_end_us = self._slow_end_us = 0
        self._inbox.clear()
        self.world.lost(life)

    # -- faults ---------------------------------------------------------------------------------

    def pause(self, for_us: int) -> None:
        if self.life is None:
            return
        self.world.counts["paused"] += 1
        self.paused = True
        self._pause_end_us = max(self._pause_end_us, self.world.now_us + for_us)
        self.world.post(self._pause_end_us, self.resume, self.life, None)

    def resume(self, life: SimIncarnation | None, _: object = None) -> None:
        """Wake: packets and timers that are overdue come first, in either order."""
        if not self.paused or life is not self.life or life is None:
            return
        if self.world.now_us < self._pause_end_us and not self.world.healing:
            return
        self.paused = False
        self._pause_end_us = 0
        inbox, self._inbox = self._inbox, []
        timers_first = self.dice.random() < 0.5
        life.finish_step()
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
        life.tap.note(self.world.now_us, "fault", LEAVING)
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

    def read_on(self, life: SimIncarnation | None, _: object = None) -> None:
        if life is None or life is not self.life or not life.congested:
            return
        if self.world.now_us < self._slow_end_us and not self.world.healing:
            return
        self._slow_end_us = 0
        life.congested = False
        life.feed(Congested(False))

    def request(self, what: str) -> bool:
        """Whether there was a life to ask it."""
        if self.life is None or self.life.leaving:
            return False
        self.life.feed(Request(what))
        return True

    def fill_disk(self, for_us: int) -> None:
        self.disk.full = True
        self.world.post(self.world.now_us + for_us, self._free_disk, None, None)

    def _free_disk(self, _: None, __: None) -> None:
        self.disk.full = False

    def bend_clock(self, bend: Callable[[NodeClock, int], None]) -> None:
        """Change the clock; what waits for a time that it shows goes on waiting for that."""
        waiting = self.life.local_deadlines() if self.life is not None else {}
        bend(self.watch, self.world.now_us)
        if self.life is not None:
            self.life.keep_deadlines(waiting)

    def heal(self) -> None:
        """End whatever ails this node; who is away comes back soon."""
        self.aims.clear()
        self.disk.full = False
        if self.skewed:
            self.bend_clock(NodeClock.heal)
        if self.life is None and self.host is None:
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
