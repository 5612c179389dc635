"""Sessions of a simulated member: between a process of the simulated world and its `Group`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from unisono import config as configs
from unisono.config import Config
from unisono.core import (
    DEFAULT_PROTOCOL,
    Adopt,
    Answer,
    Capture,
    Captured,
    Cause,
    Congested,
    Deliver,
    Effect,
    Event,
    FailStability,
    Install,
    Request,
    Stabilize,
    Warn,
)
from unisono.errors import Misuse, Stopped
from unisono.group.session import SessionEvents
from unisono.model import ServiceLevel
from unisono.net.stream import CaptureMark, Stable, Unstable, progress_notice
from unisono.replay_history import HEADER_BYTES_MAX
from unisono.requests import GroupCommand
from unisono.spec import ProtocolSpec

if TYPE_CHECKING:
    from unisono.programs.loop import VirtualLoop
    from unisono.sim.nodes import Node
    from unisono.sim.process import SimProcess


class SimFactory:
    """Opens the sessions of a program's group, each a new process of its node."""

    founds: Final = True
    holds: Final = True

    def __init__(
        self,
        node: Node,
        loop: VirtualLoop,
        config: Config,
        asked: ProtocolSpec,
        with_state: bool,
    ) -> None:
        self.spec = node.world.spec
        if asked is not self.spec and config.protocol != DEFAULT_PROTOCOL:
            raise Misuse(
                f"the program asks for {asked.name}, the simulation runs {self.spec.name}: simulate"
                f" it with --protocol {asked.name}"
            )
        self.name = node.name
        self.default_level = configs.default_service(self.spec)
        self.message_bytes_max = config.message_bytes_max
        if config.replayable:
            self.message_bytes_max += HEADER_BYTES_MAX
        self._node = node
        self._loop = loop
        self._with_state = with_state
        self._options: Mapping[str, int] = {
            **config.options,
            **node.world.options_of(node.index),
        }
        self._terms = configs.terms(config)

    def level(self, asked: ServiceLevel | str) -> ServiceLevel:
        return configs.check_service(configs.service_level(asked), self.spec, (self.spec,))

    def groups(self, to: str | Sequence[str]) -> tuple[str, ...]:
        raise Misuse(f"to={to!r}: a simulated member multicasts to its own group only")

    @property
    def requests(self) -> tuple[type[GroupCommand], ...]:
        return self.spec.requests

    def advice(self) -> str:
        return ""

    async def open(self, events: SessionEvents) -> SimSession:
        if self._node.process is not None:
            raise Misuse("a simulated program joins one group, once: leave it before the next join")
        process = self._node.incarnate(
            with_state=self._with_state,
            message_bytes_max=self.message_bytes_max,
            options=self._options,
            terms=self._terms,
        )
        return SimSession(process, events, self._loop)


class SimSession:
    """One incarnation."""

    def __init__(self, process: SimProcess, events: SessionEvents, loop: VirtualLoop) -> None:
        self._process = process
        self._events = events
        self._loop = loop
        self._stepping = False
        self.cause: Cause | None = None
        self.warning = ""
        self.send_credit: Callable[[], int] = process.tap.send_credit
        process.session = self

    @property
    def finished(self) -> bool:
        return self._process.over

    def start(self) -> None:
        self._events.opened(self._process.me)
        self._process.node.launch(self._process)

    # -- what the group asks --------------------------------------------------------------------

    def submit(
        self, messages: Sequence[bytes], service: ServiceLevel, groups: tuple[str, ...]
    ) -> None:
        self._process.multicast(messages, service)

    def request(self, request: Request) -> None:
        self._feed(request)

    def congested(self, on: bool) -> None:
        self._feed(Congested(on))

    def leave(self) -> None:
        process = self._process
        if not process.leaving:
            process.node.begin_to_leave(process)

    def fail(self, reason: str) -> None:
        """Amid a step perhaps, which ends first."""
        world = self._process.world
        world.post(world.now_us, self._fail, reason, None)

    def _fail(self, reason: str, _: None) -> None:
        self.leave()
        if not self._process.over:
            self._process.stop(reason)

    def close(self) -> None:
        if not self._process.over:
            self._process.node.cut_off()

    def counts(self) -> Counter[str]:
        return Counter(self._process.tap.counts)

    def describe(self) -> str:
        return f"tried {self._process.world.spec.name} as {self._process.me} in a simulated world"

    def _feed(self, event: Event) -> None:
        """Called amid a step of the core, it comes after it."""
        if self._stepping:
            world = self._process.world
            world.post(world.now_us, self._fed_later, event, None)
        else:
            self._process.feed(event)

    def _fed_later(self, event: Event, _: None) -> None:
        self._process.feed(event)

    # -- what the process reports ---------------------------------------------------------------

    def perform(self, effect: Effect) -> None:
        self._stepping = True
        try:
            with self._loop.acting():
                self._report(effect)
        finally:
            self._stepping = False

    def _report(self, effect: Effect) -> None:
        events = self._events
        match effect:
            case Deliver(messages):
                events.deliver(messages)
            case Install(view):
                events.install(view)
            case Stabilize(messages, holders):
                events.put(Stable(tuple(messages), holders))
            case FailStability(messages, cause):
                events.put(Unstable(tuple(messages), cause))
            case Answer():
                events.put(effect)
            case Capture(key):
                events.put(CaptureMark(key, self._captured))
            case Adopt(state):
                events.adopt(state)
            case Warn(text):
                if text != self.warning:
                    self.warning = text
                    events.put(progress_notice(text))
            case _:
                pass

    def _captured(self, key: Hashable, state: bytes) -> None:
        self._process.world.counts["captured"] += 1
        self._feed(Captured(key, state))

    def stepped(self) -> None:
        with self._loop.acting():
            self._events.stepped()

    def ended(self, reason: str | None, cause: Cause | None) -> None:
        self.cause = cause
        with self._loop.acting():
            self._events.ended(reason)


def stopped_only(error: BaseException) -> bool:
    """Whether it says only that the member was stopped, or lost what it had."""
    from unisono.errors import UnisonoError

    if isinstance(error, BaseExceptionGroup):
        return all(map(stopped_only, error.exceptions))
    return isinstance(error, Stopped) or (
        isinstance(error, UnisonoError) and not isinstance(error, Misuse)
    )
