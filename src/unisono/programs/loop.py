"""An asyncio event loop in virtual time: one operating-system process of a simulated node."""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import Context
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, Final

from unisono.errors import Misuse
from unisono.programs.environment import Acting

if TYPE_CHECKING:
    from unisono.sim.nodes import Node

TURN_US: Final = 100
"""What a turn of the loop takes while the next one is due already."""
LATE_MAX_US: Final = 20_000
"""Now and then the operating system lets a process wait for up to this long."""
LATE_SHARE: Final = 0.05
LAST_WORDS_MAX: Final = 8
"""A coroutine that is closed may await once more in each of its `finally` blocks."""

UNSUPPORTED: Final = {
    "threads": ("run_in_executor", "set_default_executor", "shutdown_default_executor"),
    "sockets of its own": (
        *("create_connection", "create_server", "create_datagram_endpoint", "getaddrinfo"),
        *(
            "create_unix_connection",
            "create_unix_server",
            "getnameinfo",
            "sock_recv",
            "sock_accept",
        ),
        *("sock_sendall", "sock_connect", "sock_recv_into", "sock_recvfrom", "sock_sendto"),
        *("add_reader", "add_writer", "remove_reader", "remove_writer", "connect_accepted_socket"),
        *("start_tls", "sendfile", "sock_sendfile", "sock_recvfrom_into"),
    ),
    "pipes": ("connect_read_pipe", "connect_write_pipe"),
    "other processes": ("subprocess_exec", "subprocess_shell"),
    "signals": ("add_signal_handler", "remove_signal_handler"),
}


def refusal(what: str) -> Misuse:
    return Misuse(
        f"a simulated program has no {what}: they cannot be replayed from a seed; give the program"
        " what it needs through its group, or replace that part in the simulation"
    )


class NumberedTask(asyncio.Task[Any]):
    """Sets of tasks, as in a `TaskGroup`, iterate in the same order in each run."""

    __slots__ = ("_number",)

    def __init__(self, coro: Any, number: int, **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class NumberedFuture(asyncio.Future[Any]):
    """As the tasks."""

    __slots__ = ("_number",)

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.AbstractEventLoop):
    """Runs while its node does, in the time of the node's clock. Turns may come late, as the dice
    fall; callbacks keep their order."""

    def __init__(
        self,
        node: Node,
        dice: Random,
        is_held: Callable[[], bool],
        raised: Callable[[BaseException, str], None],
        turned: Callable[[], None],
    ) -> None:
        self.dice = dice
        """Of everything random in the program."""
        self.frozen = False
        """Time stands still: timers do not fire."""
        self.dead = False
        self._node = node
        self._is_held = is_held
        self._raised = raised
        self._turned = turned
        self._pace = Random(dice.random())
        self._ready: deque[asyncio.Handle] = deque()
        self._is_posted = False
        self._numbers = count()
        self._tasks: list[asyncio.Task[Any]] = []
        """Those not done."""
        self.failed: list[asyncio.Task[Any]] = []

    def time(self) -> float:
        return self.now_us() / 1e6

    def now_us(self) -> int:
        return self._node.clock.local(self._node.world.now_us)

    # -- callbacks ------------------------------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self.dead:
            self._ready.append(handle)
            self._post(self._late_us())
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # There is one thread.

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._await(handle)
        return handle

    def _await(self, timer: asyncio.TimerHandle) -> None:
        world, due_us = self._node.world, round(timer.when() * 1e6)
        world.post(max(self._node.clock.world(due_us), world.now_us), self._fire, timer, due_us)

    def _fire(self, timer: asyncio.TimerHandle, due_us: int) -> None:
        if self.dead or self.frozen or timer.cancelled():
            return
        if self.now_us() < due_us:  # The clock was changed meanwhile.
            self._node.world.post(self._node.world.now_us + TURN_US, self._fire, timer, due_us)
            return
        self._ready.append(timer)
        self._post(0)

    def _timer_handle_cancelled(self, _: asyncio.TimerHandle) -> None: ...

    def _late_us(self) -> int:
        if self._pace.random() >= LATE_SHARE:
            return 0
        return self._pace.randrange(LATE_MAX_US)

    # -- turns ----------------------------------------------------------------------------------

    def _post(self, after_us: int) -> None:
        if not self._is_posted and not self.dead:
            self._is_posted = True
            self._node.world.post(self._node.world.now_us + after_us, self._turn, None, None)

    def wake(self) -> None:
        if self._ready:
            self._post(0)

    @property
    def is_idle(self) -> bool:
        return not self._ready

    def _turn(self, none: None, nothing: None) -> None:
        """Run what is ready now."""
        self._is_posted = False
        if self.dead or self._node.paused or self._is_held():
            return  # It is woken.
        with self.acting():
            for _ in range(len(self._ready)):
                if self.dead:
                    return
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        self._turned()
        if self._ready:
            self._post(TURN_US)

    def acting(self) -> Acting:
        """What happens now is of this process."""
        return Acting(self)

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    def is_closed(self) -> bool:
        return self.dead

    def close(self) -> None:
        raise Misuse("the event loop belongs to the simulator: return from the program instead")

    stop = close

    def kill(self) -> None:
        """Nothing of it runs any more."""
        self.dead = True
        self._ready.clear()

    def dispose(self) -> None:
        """Close what was under way when it was killed."""
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            for _ in range(LAST_WORDS_MAX):
                try:
                    with self.acting():
                        coroutine.close()
                    break
                except KeyboardInterrupt:
                    raise
                except BaseException:
                    continue  # As it was killed, its last words do not count.
        self._tasks.clear()

    # -- tasks and futures ----------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        return NumberedFuture(next(self._numbers), self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
        **options: Any,
    ) -> asyncio.Task[Any]:
        number = next(self._numbers)
        name = name or f"Task-{number}"
        task = NumberedTask(coro, number, loop=self, name=name, context=context, **options)
        self._tasks.append(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.remove(task)
        if not task.cancelled() and task._exception is not None:  # It is not retrieved.
            self.failed.append(task)

    def get_debug(self) -> bool:
        return False

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException) and not self.dead:
            self._raised(error, str(context.get("message", "")))

    call_exception_handler = default_exception_handler

    def set_exception_handler(self, handler: object) -> None:
        """What is not caught is the simulator's to report."""

    def finalize(self, generator: AsyncGenerator[Any, Any]) -> None:
        """An asynchronous generator was dropped."""
        if not self.dead:
            self.call_soon(self.create_task, generator.aclose())

    async def shutdown_asyncgens(self) -> None: ...


def _refusing(what: str) -> Callable[..., Any]:
    def refuse(self: VirtualLoop, *_: object, **__: object) -> Any:
        raise refusal(what)

    return refuse


for _what, _names in UNSUPPORTED.items():
    for _name in _names:
        setattr(VirtualLoop, _name, _refusing(_what))
VirtualLoop.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]  # Those refuse.
