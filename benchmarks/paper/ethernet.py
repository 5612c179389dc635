"""The paper's cluster in virtual time: one Ethernet, and processors that take their time.

The simulator's links have delay and bandwidth. What the paper measured is mostly the cost of
handling a packet [RNG Table I], so here each workstation is a processor that does one thing after
another, and all share 10 Mbit/s that carry one packet at a time. Nothing is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random
from typing import Any, Final

from benchmarks.paper.plan import RATE, SENDERS_COUNT, SPORADIC, Effort, Point
from unisono.core import (
    Arm,
    CoreConfig,
    Deliver,
    Disarm,
    Event,
    Everyone,
    Expired,
    Fail,
    Install,
    Join,
    Multicast,
    Received,
    Send,
)
from unisono.model import Address, Member, Message, Service
from unisono.sim.plan import node_name
from unisono.spec import ProtocolSpec

CALL_US: Final = 130
"""[RNG Table I] The user's call, a message."""
SEND_US: Final = 69 + 78
"""Packeting, IP and UDP, a packet."""
RECEIVE_US: Final = 72
"""Buffering, a packet."""
DELIVER_US: Final = 180
"""The interface, a message."""
ETHERNET_US: Final = 269
"""Latency, however short the packet is."""
OCTET_NS: Final = 800
"""10 Mbit/s."""
FRAME_BYTES: Final = 18 + 20 + 8
"""Ethernet, IP and UDP around a packet."""
WINDOW_BYTES: Final = 1 << 16
SETTLE_US: Final = 500_000
TOGETHER_US: Final = 60_000_000
EVENTS_MAX: Final = 5_000_000
"""A run with more never ends."""

OnDelivery = Callable[[int, "Workstation", Message], None]


class Stuck(Exception):
    """The group did not form, or lost a member."""


@dataclass(frozen=True, slots=True)
class EthernetTraffic:
    """What the senders do."""

    nbytes: int
    service: Service
    at_once: bool
    """Send as long as there is room; otherwise the next when the last was delivered."""
    pause_us: int = 0
    """Between two messages of a sender: so long, up to twice. 0: up to the longest recent delay, so
    that a busy ring is met at any point of its round."""


class Workstation:
    """A member and its processor."""

    def __init__(
        self, wire: Ethernet, index: int, spec: ProtocolSpec, options: Mapping[str, int]
    ) -> None:
        self.wire = wire
        self.me = Member(node_name(index), Address(f"10.0.0.{index + 1}", 7000), 1)
        roles = spec.assign_roles(index, wire.count, options)
        self.core = spec.make(
            CoreConfig(self.me, "paper", index + 1, window_bytes_max=WINDOW_BYTES, options=roles)
        )
        self.members = 0
        self.traffic: EthernetTraffic | None = None
        self.called_us: dict[int, int] = {}
        """By message number: when the user called."""
        self._waits_us: deque[int] = deque(maxlen=8)
        self._number = 0
        self._dice = Random(index)
        self._free_us = 0
        self._waiting: deque[tuple[Callable[[Any], int], Any]] = deque()
        self._busy = False
        self._deadlines: dict[Any, int] = {}

    # -- the processor ---------------------------------------------------------------------------

    def do(self, work: Callable[[Any], int], what: Any) -> None:
        """Do it once all before it is done; `work` returns the time when it is done."""
        self._waiting.append((work, what))
        if not self._busy:
            self._busy = True
            self.wire.post(max(self.wire.now_us, self._free_us), self._next, None)

    def _next(self, _: None) -> None:
        work, what = self._waiting.popleft()
        self._free_us = work(what)
        if self._waiting:
            self.wire.post(self._free_us, self._next, None)
        else:
            self._busy = False

    def _step(self, at_us: int, event: Event) -> int:
        """A step of the core, and its effects one after another; when they are done."""
        for effect in self.core.step(at_us, event):
            if isinstance(effect, Send):
                for packet in effect.packets:
                    at_us += SEND_US
                    self.wire.carry(at_us, self, effect.to, bytes(packet))
            elif isinstance(effect, Deliver):
                for message in effect.messages:
                    at_us += DELIVER_US
                    self.wire.post(at_us, self._delivered, message)
            elif isinstance(effect, Arm):
                deadline_us = at_us + max(effect.after_us, 0)
                self._deadlines[effect.timer] = deadline_us
                self.wire.post(deadline_us, self._due, (effect.timer, deadline_us))
            elif isinstance(effect, Disarm):
                self._deadlines.pop(effect.timer, None)
            elif isinstance(effect, Install):
                self.members = len(effect.view.members)
            elif isinstance(effect, Fail):
                raise Stuck(f"{self.me.name}: {effect.reason}")
        return at_us

    # -- events ---------------------------------------------------------------------------------

    def join(self, _: None) -> int:
        return self._step(self.wire.now_us, Join())

    def receive(self, burst: tuple[Address, bytes]) -> int:
        source, packet = burst
        return self._step(self.wire.now_us + RECEIVE_US, Received(source, [packet]))

    def _due(self, entry: tuple[Any, int]) -> None:
        if self._deadlines.get(entry[0]) == entry[1]:
            self.do(self._expire, entry)

    def _expire(self, entry: tuple[Any, int]) -> int:
        if self._deadlines.get(entry[0]) != entry[1]:
            return self.wire.now_us  # disarmed while it waited for the processor
        del self._deadlines[entry[0]]
        return self._step(self.wire.now_us, Expired(entry[0]))

    def _delivered(self, message: Message) -> None:
        self.wire.on_delivery(self.wire.now_us, self, message)
        traffic = self.traffic
        if traffic and message.sender == self.me and not traffic.at_once:
            self._waits_us.append(self.wire.now_us - self.called_us[message.number])
            most_us = 2 * traffic.pause_us or max(self._waits_us)
            pause_us = self._dice.randint(traffic.pause_us, most_us)
            self.wire.post(self.wire.now_us + pause_us, self.begin, None)

    def begin(self, _: None) -> None:
        """The user calls; the call waits for the processor."""
        if self.traffic:
            self.do(self._multicast, self.wire.now_us)

    def _multicast(self, called_us: int) -> int:
        traffic, now_us = self.traffic, self.wire.now_us
        if traffic is None:
            return now_us
        if self.core.send_credit() < traffic.nbytes + 64:
            self.wire.post(now_us + CALL_US, self.begin, None)
            return now_us
        self._number += 1
        self.called_us[self._number] = called_us
        done_us = self._step(now_us + CALL_US, Multicast([bytes(traffic.nbytes)], traffic.service))
        if traffic.at_once:
            self.wire.post(done_us, self.begin, None)
        return done_us


class Ethernet:
    """Virtual time, one cable, and the workstations on it."""

    def __init__(self, spec: ProtocolSpec, count: int, options: Mapping[str, int]) -> None:
        self.now_us = 0
        self.count = count
        self.on_delivery: OnDelivery = lambda now_us, host, message: None
        self._queue: list[tuple[int, int, Callable[[Any], None], Any]] = []
        self._posted = 0
        self._free_ns = 0
        self.hosts = [Workstation(self, index, spec, options) for index in range(count)]
        self._by_address = {host.me.address: host for host in self.hosts}

    def post(self, at_us: int, act: Callable[[Any], None], what: Any) -> None:
        self._posted += 1
        heappush(self._queue, (at_us, self._posted, act, what))

    def carry(self, at_us: int, source: Workstation, to: Any, packet: bytes) -> None:
        """Once over the cable, for however many receivers."""
        self.post(at_us, self._transmit, (source, to, packet))

    def _transmit(self, what: tuple[Workstation, Any, bytes]) -> None:
        source, to, packet = what
        begin_ns = max(self.now_us * 1000, self._free_ns)
        self._free_ns = begin_ns + (len(packet) + FRAME_BYTES) * OCTET_NS
        arrives_us = self._free_ns // 1000 + ETHERNET_US
        if isinstance(to, Everyone):
            targets = [host for host in self.hosts if host is not source]
        else:
            targets = [self._by_address[each] for each in to if each in self._by_address]
        for host in targets:
            self.post(arrives_us, self._arrive, (host, (source.me.address, packet)))

    def _arrive(self, what: tuple[Workstation, tuple[Address, bytes]]) -> None:
        host, burst = what
        host.do(host.receive, burst)

    def run_until(self, until_us: int, done: Callable[[], bool] = lambda: False) -> None:
        for _ in range(EVENTS_MAX):
            if not self._queue or self._queue[0][0] > until_us or done():
                self.now_us = max(self.now_us, until_us) if not done() else self.now_us
                return
            self.now_us, _, act, what = heappop(self._queue)
            act(what)
        raise Stuck(f"over {EVENTS_MAX:,} events")

    def gather(self, within_us: int = TOGETHER_US) -> None:
        """All join, and are in one view."""
        for host in self.hosts:
            host.do(host.join, None)
        self.run_until(within_us, lambda: all(host.members == self.count for host in self.hosts))
        if any(host.members != self.count for host in self.hosts):
            raise Stuck(f"{self.count} members are not in one view after {within_us / 1e6:g} s")


def simulated(
    spec: ProtocolSpec, options: Mapping[str, int], point: Point, effort: Effort
) -> list[float]:
    """The samples of one point, in the figure's unit."""
    figure, count = point.figure, point.members
    if figure.kind == RATE:
        traffic = EthernetTraffic(point.nbytes, figure.service, at_once=True)
        return rates(
            _busy_ethernet(spec, options, count, traffic), effort.simulated_s, effort.slices
        )
    sporadic = figure.kind == SPORADIC
    pause_us = round(effort.pause_s * 1e6) if sporadic else 0
    traffic = EthernetTraffic(point.nbytes, figure.service, False, pause_us)
    seconds = effort.sporadic_s if sporadic else effort.simulated_s
    return delays_ms(_busy_ethernet(spec, options, count, traffic), seconds)


def rates(wire: Ethernet, seconds: float, slices: int) -> list[float]:
    """Messages a second that a user receives, the average of all, slice by slice."""
    long_us = round(seconds * 1e6 / slices)
    wire.run_until(wire.now_us + long_us)  # Warm up.
    count = 0

    def delivered(now_us: int, host: Workstation, message: Message) -> None:
        nonlocal count
        count += 1

    wire.on_delivery = delivered
    found = []
    for _ in range(slices):
        count = 0
        wire.run_until(wire.now_us + long_us)
        found.append(count / wire.count / (long_us / 1e6))
    return found


def delays_ms(wire: Ethernet, seconds: float) -> list[float]:
    """From the user's call to each other member's user."""
    called = {host.me: host.called_us for host in wire.hosts}
    found: list[float] = []

    def delivered(now_us: int, host: Workstation, message: Message) -> None:
        if message.sender != host.me:
            found.append((now_us - called[message.sender][message.number]) / 1000)

    wire.run_until(wire.now_us + round(seconds * 1e6 / 5))
    wire.on_delivery = delivered
    wire.run_until(wire.now_us + round(seconds * 1e6))
    return found


def _busy_ethernet(
    spec: ProtocolSpec, options: Mapping[str, int], count: int, traffic: EthernetTraffic
) -> Ethernet:
    """A group in one view whose senders begin."""
    wire = Ethernet(spec, count, options)
    wire.gather()
    wire.run_until(wire.now_us + SETTLE_US)
    for host in wire.hosts[:SENDERS_COUNT]:
        host.traffic = traffic
        wire.post(wire.now_us + traffic.pause_us, host.begin, None)
    return wire
