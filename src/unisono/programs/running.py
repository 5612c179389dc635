"""The programs of a simulated world: started, interrupted, killed, watched and judged."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import unisono
from unisono.config import Config
from unisono.group import Group
from unisono.group.session import SESSIONS, SessionFactory
from unisono.net.stable import RECORD_FILES
from unisono.programs.loop import VirtualLoop
from unisono.programs.program import Program
from unisono.programs.records import NodeRecords
from unisono.programs.session import SimFactory, stopped_only
from unisono.sim.plan import SECOND_US, dice
from unisono.spec import ProtocolSpec
from unisono.trace.operations import OPERATIONS, SUFFIX, OperationLog, history_of

if TYPE_CHECKING:
    from unisono.sim.nodes import Node
    from unisono.sim.world import World

QUIET_US: Final = SECOND_US
"""No message was delivered for so long: the programs are quiet."""
BUSY_MAX_US: Final = 10 * SECOND_US
"""They may go on for so long after all have come together."""
GROUP: Final = "sim"
OWN: Final = (str(Path(__file__).parents[1]), str(Path(asyncio.__file__).parent))
"""Frames of these are not the program's."""


@dataclass(eq=False)
class SimulatedMember:
    """One start of the program on one node, as `invariant` and `converged` see it."""

    name: str
    state: Any = None
    """What `main` got as `state`, or the object whose methods are `snapshot=` and `restore=`."""
    alive: bool = True
    """It runs; those that were killed or have returned do not."""
    group: Group | None = None
    """Where `main` got a group."""


class WorldPrograms:
    """All programs of one run."""

    def __init__(self, program: Program, world: World) -> None:
        self.program = program
        self.world = world
        self.members: list[SimulatedMember] = []
        self._running: list[NodeProgram] = []
        self._all: list[NodeProgram] = []
        self._starts = 0
        self._finish_us = 0
        self._delivered = -1
        self._is_over = False

    def start(self, node: Node) -> NodeProgram:
        self._starts += 1
        program = NodeProgram(self, node, self._starts)
        self.members.append(program.member)
        self._running.append(program)
        self._all.append(program)
        return program

    def gone(self, program: NodeProgram) -> None:
        if program in self._running:
            self._running.remove(program)

    # -- verdicts -------------------------------------------------------------------------------

    def check(self) -> None:
        """A program has run."""
        if self.program.invariant is not None and not self._is_over:
            self._ask("invariant", self.program.invariant)

    def _ask(self, law: str, question: Callable[..., object]) -> None:
        try:
            wrong = question(self.members)
        except Exception as error:
            self.broken(law, described(error))
            return
        if wrong:
            self.broken(law, str(wrong))

    def _judge_operations(self) -> None:
        """What was called on shared objects, in the order that they had."""
        from unisono.laws.linearizable import judge_operations

        history = history_of(each.operations for each in self._all)
        for found in judge_operations(self.world.plan.run_name, history).violations[:1]:
            self.broken(found.law, f"{found.message or found.life}: {found.detail}")

    def broken(self, law: str, text: str, node: Node | None = None) -> None:
        if self._is_over:
            return
        self._is_over = True
        self.world.broken(law, text, node.process if node is not None else None)
        self.world.stop()

    # -- the end --------------------------------------------------------------------------------

    def finish(self) -> None:
        """Let the programs become quiet, then stop their clocks, then let arrive what is under
        way."""
        self._finish_us = self.world.now_us + BUSY_MAX_US
        self._look(None, None)

    def _look(self, _: None, __: None) -> None:
        world = self.world
        is_quiet = world.delivered == self._delivered and all(
            each.loop.is_idle for each in self._running
        )
        self._delivered = world.delivered
        if not is_quiet and world.now_us < self._finish_us:
            world.post(world.now_us + QUIET_US, self._look, None, None)
            return
        for each in self._running:
            each.loop.frozen = True
        self._finish_us = world.now_us + BUSY_MAX_US
        world.post(world.now_us + QUIET_US, self._settle, None, None)

    def _settle(self, _: None, __: None) -> None:
        world = self.world
        if world.delivered != self._delivered and world.now_us < self._finish_us:
            self._delivered = world.delivered
            world.post(world.now_us + QUIET_US, self._settle, None, None)
            return
        for each in self._all:
            each.report_failed_tasks()
        if not self._is_over:
            self._judge_operations()
        if self.program.converged is not None and not self._is_over:
            self._ask("converged", self.program.converged)
        self._is_over = True
        world.stop()

    def close(self) -> None:
        for node in self.world.nodes:
            if node.process is not None:
                node.process.end()
        for each in self._all:
            each.loop.kill()
            each.loop.dispose()
        if self.world.plan.trace is not None:
            self._write_operations(self.world.plan.trace, self.world.plan.run_name)

    def _write_operations(self, trace: str | Path, run: str) -> None:
        from unisono.trace.files import run_folder

        for number, each in enumerate(self._all):
            if each.operations:
                path = run_folder(trace, run) / f"{number}{SUFFIX}"
                path.write_bytes(b"".join(each.operations))


class NodeProgram:
    """One start of the program: an event loop, and the task of `main` on it."""

    def __init__(self, programs: WorldPrograms, node: Node, number: int) -> None:
        world = node.world
        self.held = False
        self.node = node
        self.operations: list[bytes] = []
        """On shared objects, as lines of a log."""
        self.member = SimulatedMember(node.name, programs.program.new_state())
        self._programs = programs
        self._interrupted = False
        self.loop = VirtualLoop(  # type: ignore[abstract]
            node,
            dice(world.plan.seed, "program", node.name, number),
            lambda: self.held,
            self._raised,
            programs.check,
        )
        self._sessions: SessionFactory | None = None
        with self.loop.acting():
            sessions = SESSIONS.set(self._sessions_of)
            files = RECORD_FILES.set(lambda _: NodeRecords(node.records))
            operations = OPERATIONS.set(self._operation_log)
            self._main = self.loop.create_task(self._run(), name="main")
            OPERATIONS.reset(operations)
            RECORD_FILES.reset(files)
            SESSIONS.reset(sessions)
        self._main.add_done_callback(self._ended)

    def _sessions_of(
        self, config: Config, spec: ProtocolSpec, with_state: bool, snapshot: Any
    ) -> SessionFactory:
        """What `join` asks instead of opening sockets."""
        if self.member.state is None:
            self.member.state = getattr(snapshot, "__self__", None)
        return SimFactory(self.node, self.loop, config, spec, with_state)

    def _operation_log(self) -> OperationLog:
        """In the time of the world, whatever the clock of the node shows."""
        world = self.node.world
        return OperationLog(self.operations.append, lambda: world.now_us, "world")

    async def _run(self) -> None:
        program = self._programs.program
        given: dict[str, Any] = {}
        if "name" in program.takes:
            given["name"] = self.node.name
        if "state" in program.takes:
            given["state"] = self.member.state
        if "group" not in program.takes:
            await program.main(**given)
            return
        state = self.member.state
        keeps = {
            name: getattr(state, name)
            for name in ("snapshot", "restore")
            if state is not None and hasattr(state, name)
        }
        async with unisono.join(GROUP, **keeps) as group:
            self.member.group = group
            await program.main(group=group, **given)

    # -- its ends -------------------------------------------------------------------------------

    def _ended(self, main: asyncio.Task[Any]) -> None:
        if self.loop.dead:
            return
        error = None if main.cancelled() else main.exception()
        self.report_failed_tasks()
        node, programs = self.node, self._programs
        self._over()
        node.cut_off()  # If it did not leave.
        node.program = None
        if error is not None and not stopped_only(error):
            programs.broken("exception", described(error), node)
        elif error is None and not main.cancelled():
            node.world.counts["returned"] += 1
            node.done = True
            node.world.recovery.waive()
        else:
            node.return_later(clean=self._interrupted)

    def _over(self) -> None:
        self.member.alive = False
        self._programs.gone(self)
        self.loop.kill()

    def _raised(self, error: BaseException, message: str) -> None:
        """A callback raised."""
        if isinstance(error, Exception) and not stopped_only(error):
            self._programs.broken("exception", described(error) or message, self.node)

    def report_failed_tasks(self) -> None:
        """Those whose exceptions nobody has looked at."""
        for task in self.loop.failed:
            error = task._exception
            if error is not None and task._log_traceback:
                task._log_traceback = False
                if task is not self._main:
                    self._raised(error, "")
        self.loop.failed.clear()

    # -- what the world does to it --------------------------------------------------------------

    def wake(self) -> None:
        self.loop.wake()

    def interrupt(self) -> None:
        self._interrupted = True
        self._main.cancel()

    def kill(self) -> None:
        self._over()


def described(error: BaseException) -> str:
    """The exception and the way to it through the program, the failing line last."""
    while isinstance(error, BaseExceptionGroup):
        error = next(each for each in error.exceptions if not stopped_only(each))
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(OWN)
    ]
    text = f"{type(error).__name__}: {error}".removesuffix(": ")
    lines = [
        f"\n  {Path(frame.filename).name}:{frame.lineno} {frame.name}: {frame.line}"
        for frame in frames
    ]
    return text + "".join(lines)
