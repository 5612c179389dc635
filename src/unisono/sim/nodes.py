"""The nodes of a simulated world, which crash, pause and return.

A node is a name, an address, a disk and a clock; it runs one process at a time, each a new
incarnation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from unisono.core import Congested, CoreConfig, Join, Leave, Received, Request, Restart
from unisono.model import Address, Member
from unisono.requests import command_of
from unisono.sim.aims import AimedFaults
from unisono.sim.clocks import NodeClock
from unisono.sim.plan import TRUE, dice, node_name
from unisono.sim.process import SimProcess
from unisono.sim.programs import RunningProgram
from unisono.trace.record import LEAVING

if TYPE_CHECKING:
    from unisono.sim.world import World

INBOX_MAX: Final = 256
"""Bursts that wait for a paused process; the operating system drops the rest."""

CLOCK_KINDS: Final = ("drift", "jump", "stand")
"""Faults of a node's clock."""

TAKING_NAMES: Final = ("setback", "namesake")
"""Faults that need an incarnation below an earlier one."""


class SimDisk:
    """Stable storage: records, oldest first."""

    def __init__(self, durable: bool) -> None:
        self.durable = durable
        """Whether records survive a crash."""
        self.records: list[bytes] = []
        self.full = False
        self._before: list[bytes] = []

    def write(self, record: bytes, alone: bool) -> bool:
        """Add a record, or replace all others by it; false when there is no space."""
        if self.full:
            return False
        self._before = self.records
        self.records = [record] if alone else [*self.records, record]
        return True

    def tear(self) -> None:
        """Undo the last write, which did not complete."""
        self.records = self._before

    def lose(self) -> None:
        self.records = self._before = []


class Node:
    """Runs one process after another."""

    def __init__(self, world: World, index: int, host: Node | None = None) -> None:
        weather, plan = world.weather, world.plan
        self.world = world
        self.index = index
        self.host = host
        """Of a namesake: the node whose name it takes."""
        self.name: str = host.name if host is not None else node_name(index)
        self.address = Address(f"10.0.{index >> 8}.{(index & 255) + 1}", 7000)
        clock = weather.clocks[index] if index < len(weather.clocks) else TRUE
        mine = [event.kind for event in weather.schedule if index in event.nodes]
        self.clock = NodeClock(clock)
        self.skewed = clock != TRUE or any(kind in CLOCK_KINDS for kind in mine)
        self.dice = dice(plan.seed, "node", index)
        durable = weather.durable[index] if index < len(weather.durable) else True
        self.disk = SimDisk(durable)
        self.aims = AimedFaults(index, world.strike)
        self.records: list[bytes] = []
        """What a plan's application has stored, beside what its core has."""
        self.process: SimProcess | None = None
        self.program: RunningProgram | None = None
        """The program that runs here, in the group or not."""
        self.done = False
        """Its program returned, and is not started again."""
        self.paused = False
        self._unused = list(range(1, 1 + sum(kind in TAKING_NAMES for kind in mine)))
        """Incarnations below the first, for processes whose clock was set back."""
        self._highest = len(self._unused)
        self._set_back = False
        self._pause_end_us = 0
        self._slow_end_us = 0
        self._down = False
        """It crashed, so its next process begins with `Restart`."""
        self._starts = 0
        self._return = 0
        """The number of the last planned return, which is the one that counts."""
        self._away_us = 0
        self._inbox: list[Received] = []

    # -- processes ------------------------------------------------------------------------------

    def start(self, which: int, _: object = None) -> None:
        """Start a process, unless one runs or this return was superseded."""
        if not self.is_down or which != self._return:
            return
        world = self.world
        if world.programs is not None:
            self.program = world.programs.start(self)
        else:
            self.launch(self.incarnate(with_state=world.with_state))

    @property
    def is_down(self) -> bool:
        return self.process is None and self.program is None and not self.done

    def incarnate(self, **setting_of_its_own: Any) -> SimProcess:
        """The next incarnation, about to be launched."""
        world = self.world
        member = Member(self.name, self.address, self._next_incarnation())
        setting = CoreConfig(
            me=member,
            group=world.group,
            seed=dice(world.plan.seed, "core", self.name, member.incarnation).getrandbits(63),
            packet_bytes_max=world.packet_bytes_max,
            window_bytes_max=world.weather.window_bytes_max,
            durable=self.disk.durable,
            options=world.options_of(self.index),
            clusters=world.clusters,
        )
        setting = replace(setting, **setting_of_its_own)
        process = SimProcess(world, self, member, world.tapped_core(setting, self))
        self.process = world.started(process)
        return process

    def launch(self, process: SimProcess) -> None:
        self._starts += 1
        if self._starts > 1:
            self.world.counts["incarnations"] += 1
            if self._down or self.disk.records:
                process.feed(Restart(tuple(self.disk.records)))
        self._down = False
        process.feed(Join())

    def _next_incarnation(self) -> int:
        if self.host is not None:
            return self.host.lend_incarnation(self.dice.random() < 0.5)
        if self._set_back and self._unused:
            self._set_back = False
            return self._unused.pop()
        self._highest += 1
        return self._highest

    def lend_incarnation(self, lower: bool) -> int:
        """One that no other process of this name has or will have."""
        if lower and self._unused:
            return self._unused.pop(0)
        self._highest += 1
        return self._highest

    def plan_return(self, after_us: int) -> None:
        self._return += 1
        self.world.post(self.world.now_us + after_us, self.start, self._return, None)

    def crash(self, kind: str, down_us: int) -> None:
        """Die; `amnesia`, `torn` and `setback` are crashes with something more."""
        process = self.process
        if process is None and self.program is None:
            return
        world = self.world
        world.counts["crashed" if kind == "crash" else kind] += 1
        if process is not None:
            process.tap.note(world.now_us, "crash", kind)
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
        if process is not None:
            self._end_process(process)
        self._kill_program()
        self.plan_return(down_us)

    def finished(self, process: SimProcess, clean: bool) -> None:
        """The core has left or failed; the node always joins again, unless a program decides that.
        A member that stopped does so in the same operating-system process, and keeps its records
        even without a disk."""
        self.world.counts["departed" if clean else "stopped"] += 1
        self._end_process(process)
        if clean and not self.disk.durable:
            self.disk.lose()
        if self.program is None:
            self.return_later(clean)

    def return_later(self, clean: bool) -> None:
        away_us = self.dice.randint(50_000, 200_000)
        if not self.world.healing:
            away_us = self._away_us if clean else self.dice.randint(100_000, 2_000_000)
        if self.host is None:
            self.plan_return(away_us)

    def vanish(self) -> None:
        """The process is killed and does not come back."""
        self._return += 1
        self.cut_off()
        self._kill_program()

    def cut_off(self) -> None:
        """End the process without a word to anyone."""
        if self.process is not None:
            self.process.tap.note(self.world.now_us, "crash", "crash")
            self._end_process(self.process)

    def _kill_program(self) -> None:
        program, self.program = self.program, None
        if program is not None:
            program.kill()

    def _end_process(self, process: SimProcess) -> None:
        process.end()
        self.process = None
        # Pauses and slowness end with the process.
        self.paused = False
        self._pause_end_us = self._slow_end_us = 0
        self._inbox.clear()
        self._let_program_run()
        self.world.lost(process)

    # -- faults ---------------------------------------------------------------------------------

    def pause(self, for_us: int) -> None:
        if self.process is None:
            return
        self.world.counts["paused"] += 1
        self.paused = True
        self._pause_end_us = max(self._pause_end_us, self.world.now_us + for_us)
        self.world.post(self._pause_end_us, self.resume, self.process, None)

    def resume(self, process: SimProcess | None, _: object = None) -> None:
        """Handle overdue packets and timers, in either order."""
        if not self.paused or process is not self.process or process is None:
            return
        if self.world.now_us < self._pause_end_us and not self.world.healing:
            return
        self.paused = False
        self._pause_end_us = 0
        inbox, self._inbox = self._inbox, []
        timers_first = self.dice.random() < 0.5
        process.finish_step()
        if timers_first:
            process.wake(timers_first)
        for received in inbox:
            process.receive(received)
        if not timers_first:
            process.wake(timers_first)
        if self.program is not None:
            self.program.wake()

    def leave(self, away_us: int) -> None:
        process = self.process
        if process is None or process.view is None or process.leaving:
            return
        self.world.counts["left"] += 1
        self._away_us = away_us
        if self.program is not None:
            self.program.interrupt()
        else:
            self.begin_to_leave(process)

    def begin_to_leave(self, process: SimProcess) -> None:
        process.leaving = True
        process.tap.note(self.world.now_us, "fault", LEAVING)
        process.feed(Leave())

    def slow(self, for_us: int) -> None:
        """The application stops reading."""
        process = self.process
        if process is None:
            return
        self._slow_end_us = max(self._slow_end_us, self.world.now_us + for_us)
        self.world.post(self._slow_end_us, self.read_on, process, None)
        if self.program is not None:
            self.world.counts["held"] += 1
            self.program.held = True
            return
        if not process.congested:
            self.world.counts["congested"] += 1
            process.congested = True
            process.feed(Congested(True))

    def read_on(self, process: SimProcess | None, _: object = None) -> None:
        if process is None or process is not self.process:
            return
        if self.world.now_us < self._slow_end_us and not self.world.healing:
            return
        self._slow_end_us = 0
        self._let_program_run()
        if not process.congested:
            return
        process.congested = False
        process.feed(Congested(False))

    def _let_program_run(self) -> None:
        if self.program is not None:
            self.program.held = False
            self.program.wake()

    def request(self, what: str) -> bool:
        """Whether there was a process to make the request."""
        if self.process is None or self.process.leaving:
            return False
        self.process.feed(Request(command_of(what, self.world.spec.requests)))
        return True

    def fill_disk(self, for_us: int) -> None:
        self.disk.full = True
        self.world.post(self.world.now_us + for_us, self._free_disk, None, None)

    def _free_disk(self, _: None, __: None) -> None:
        self.disk.full = False

    def adjust_clock(self, adjust: Callable[[NodeClock, int], None]) -> None:
        """Change the clock; timers keep waiting for the same reading of it."""
        waiting = self.process.local_deadlines() if self.process is not None else {}
        adjust(self.clock, self.world.now_us)
        if self.process is not None:
            self.process.keep_deadlines(waiting)

    def heal(self) -> None:
        """End all faults of this node; if it is down, it comes back soon."""
        self.aims.clear()
        self.disk.full = False
        if self.skewed:
            self.adjust_clock(NodeClock.heal)
        if self.is_down and self.host is None:
            self.plan_return(self.dice.randint(0, 300_000))
        self.resume(self.process)
        self.read_on(self.process)

    # -- packets --------------------------------------------------------------------------------

    def arrive(self, received: Received, count: int) -> None:
        """So many packets."""
        process = self.process
        if process is None:
            self.world.counts["arrived_nowhere"] += count
        elif not self.paused:
            if process.seal is None:
                process.feed(received)
            else:
                process.receive(received)
        elif len(self._inbox) < INBOX_MAX:
            self.world.counts["inboxed"] += count
            self._inbox.append(received)
        else:
            self.world.counts["inbox_overflowed"] += count
