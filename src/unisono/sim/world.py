"""The simulated world: one thread, one seed, virtual microseconds, two phases.

First the faults of the plan strike while the application multicasts. Then everything heals, and
within a bound all nodes must be in one view and deliver the probes that each of them sends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple, TypeAlias

from unisono.core import Core, CoreConfig, Event, Fail, Received
from unisono.model import Member, Message, Packets, ServiceLevel, View, coalesced
from unisono.sealing.keys import KEY_BYTES, Keyring
from unisono.sealing.records import OVERHEAD_BYTES
from unisono.sealing.seal import Seal
from unisono.sim.applications import where_raised
from unisono.sim.clocks import Skewed
from unisono.sim.exclusions import Exclusions
from unisono.sim.injection import FaultInjector
from unisono.sim.network import Network
from unisono.sim.nodes import Node
from unisono.sim.plan import SECOND_US, FaultEvent, Plan, Weather, dice
from unisono.sim.probes import Probes
from unisono.sim.process import SimProcess
from unisono.sim.programs import Programs
from unisono.sim.receipts import Receipts
from unisono.sim.recovery import Recovery, apart
from unisono.sim.workload import drawn_sizes, payload_of
from unisono.spec import ProtocolSpec
from unisono.trace.record import APART, Row, Sink
from unisono.trace.tap import Tap
from unisono.wire import Datagram

Act: TypeAlias = Callable[[Any, Any], None]

RETRIES_MAX: Final = 40
"""How often a sender without credit, or without a view, tries again before it gives up."""

LINGER_US: Final = 100_000
"""The run goes on this long after the last probe and the last burst, so that a late duplicate is
seen."""

LINGERS_MAX: Final = 20
"""So often a run goes on for a large message that its sender has not delivered."""

DATAGRAMS_MAX: Final = 256
"""Packets that are remembered, to recognise one that is sent again."""

KEYRING: Final = Keyring((bytes(KEY_BYTES),))


class WorldViolation(NamedTuple):
    """A violation that the world itself saw, as opposed to those that laws find in the trace."""

    law: str
    text: str
    process: str
    t_us: int


class RowBuffer:
    """Keeps every row in memory, and passes it on to other sinks."""

    def __init__(self, rows: list[Row], others: Sequence[Sink]) -> None:
        self._rows = rows
        self._others = others

    def write(self, row: Row) -> None:
        self._rows.append(row)
        for sink in self._others:
            sink.write(row)

    def close(self) -> None:
        for sink in self._others:
            sink.close()


class World:
    """Owns time, dice and packets, and drives one core per process of each node."""

    def __init__(
        self, plan: Plan, weather: Weather, spec: ProtocolSpec, services: Sequence[ServiceLevel]
    ) -> None:
        self.plan = plan
        self.weather = weather
        self.spec = spec
        self.services = tuple(services)
        """The service level of each burst is one of these."""
        self.group = "sim"
        self.packet_bytes_max = weather.packet_bytes_max - (OVERHEAD_BYTES if plan.sealed else 0)
        """Of packets before they are sealed."""
        self.with_state = plan.application is not None or (
            weather.with_state and plan.program is None
        )
        """The world's own state is transferred; a program transfers its own."""
        self.processes: dict[Member, SimProcess] = {}
        """All that there were, by member."""
        self.forgot = False
        """A node has lost its records."""
        self.now_us = 0
        self.steps = 0
        self.sent = 0
        self.delivered = 0
        self.counts: Counter[str] = Counter()
        self.found: list[WorldViolation] = []
        self.rows: list[Row] = []
        self.healing = False
        self._queue: list[tuple[int, int, Act, Any, Any]] = []
        self._posted = 0
        self._allowed = plan.steps_per_s_max * plan.nodes
        self._stopped = False
        self._held_back: Counter[int] = Counter()
        """By node, its bursts that wait for credit or a view."""
        self._busy_us = 0
        """When a burst was last sent, or delivered."""
        self._lingered = 0
        self._orders: dict[tuple[str, int], int] = {}
        """By part that went on by itself and set of messages, their sequence (see `Memory`)."""
        self._sinks: list[Sink] = []
        self._datagrams: dict[bytes, Datagram] = {}
        """Sent before: many packets repeat earlier ones, such as heartbeats."""
        self.programs: Programs | None = plan.program.begin(self) if plan.program else None
        self.exclusions = Exclusions(self)
        self.receipts = Receipts(self)
        self.probes = Probes(self)
        self._injector = FaultInjector(self)
        self.nodes = [Node(self, index) for index in range(plan.nodes)]
        self.all_nodes = [*self.nodes, *self._namesakes()]
        """The nodes, and the namesakes of some."""
        self.index_of = {node.address: node.index for node in self.all_nodes}
        self._arrivals = [node.arrive for node in self.all_nodes]
        self._carried: list[bytes] = []
        """The packets that arrived last, and their event."""
        self._event = Received(self.nodes[0].address, self._carried)
        self.clusters = {
            f"c{number}": tuple(self.nodes[index].address for index in members)
            for number, members in enumerate(weather.clusters, 1)
        }
        """By name, the processes of each cluster."""
        self.recovery = Recovery(self)
        everyone = range(len(self.all_nodes))
        home = {index: members for members in weather.clusters for index in members}
        self.reach = [
            [target for target in home.get(here, everyone) if target != here or weather.loopback]
            for here in everyone
        ]
        """By node, the nodes that its multicast packets reach."""
        self.network = Network(len(everyone), plan.seed, weather, self._arrive, self.post)
        if plan.trace is not None:
            from unisono.trace.files import clear_run  # needs pyarrow, as below

            # An earlier run of this name may have had incarnations that this one has not.
            clear_run(plan.trace, plan.run_name)

    def _namesakes(self) -> list[Node]:
        found: list[Node] = []
        for event in self.weather.schedule:
            if event.kind == "namesake":
                host = self.nodes[event.nodes[0]]
                found.append(Node(self, len(self.nodes) + len(found), host))
                self._injector.expect_namesake(event, found[-1])
        return found

    # -- time -----------------------------------------------------------------------------------

    def post(self, at_us: int, act: Act, a: Any, b: Any) -> None:
        """Call `act(a, b)` then; at the same instant, in the order of posting."""
        self._posted += 1
        heappush(self._queue, (at_us, self._posted, act, a, b))

    def run(self) -> None:
        """Both phases, to the end or to the bound."""
        weather, plan = self.weather, self.plan
        for node in self.nodes:
            starts = weather.starts_us
            node.plan_return(starts[node.index] if node.index < len(starts) else 0)
            if self.programs is None:
                self._plan_bursts(node)
        for event in weather.schedule:
            if event.at_us < weather.fault_us:
                self._injector.plan(event)
        self.post(SECOND_US, self._second, None, None)
        self.post(weather.fault_us, self._heal, None, None)
        self._advance(weather.fault_us + plan.progress_us)
        self._end()
        if self.programs is not None:
            self.programs.close()
        for sink in self._sinks:
            sink.close()

    def _end(self) -> None:
        """Kill the parts that need not go on, so that laws ask nothing of them."""
        self.receipts.close()
        self._forget_datagrams()
        for node in self.recovery.spare():
            node.vanish()
        if self.processes and not self.found and not self.recovery.progressed:
            # So that the files alone show it, too.
            some = next(iter(self.processes.values()))
            some.tap.note(self.now_us, "stuck", self.recovery.why_stuck())
        elif self.processes and not self.recovery.going_on:
            next(iter(self.processes.values())).tap.note(self.now_us, "fault", APART)

    def _advance(self, until_us: int) -> None:
        queue = self._queue
        while queue and not self._stopped and queue[0][0] <= until_us:
            self.now_us, _, act, a, b = heappop(queue)
            if self._posted > self._allowed:
                return self._livelock()
            act(a, b)

    def _second(self, _: None, __: None) -> None:
        self._allowed = self._posted + self.plan.steps_per_s_max * self.plan.nodes
        self.post(self.now_us + SECOND_US, self._second, None, None)

    def _livelock(self) -> None:
        limit = self.plan.steps_per_s_max
        self.broken("no_livelock", f"over {limit} events a node within one virtual second", None)
        self._stopped = True

    def stop(self) -> None:
        self._stopped = True

    def _stop(self, was_idle: bool, _: None) -> None:
        """Stop the run once no burst waits, and nothing was sent or delivered for a while; where a
        plan brings an application, once all were idle for a while."""
        if self.plan.application is None:
            if any(self._held_back[node.index] for node in self.recovery.awaited()):
                self._busy_us = self.now_us
            if self.recovery.is_under_way() and self._lingered < LINGERS_MAX:
                self._lingered += 1
                self._busy_us = self.now_us
            end_us = self._busy_us + LINGER_US
            self._stopped = self.now_us >= end_us
            if not self._stopped:
                self.post(end_us, self._stop, False, None)
            return
        processes = [node.process for node in self.nodes]
        idle = all(
            process and process.application and process.application.is_idle()
            for process in processes
        )
        self._stopped = was_idle and idle
        self.post(self.now_us + LINGER_US, self._stop, idle, None)

    def datagrams_of(self, packets: Packets, process: SimProcess) -> list[bytes]:
        """What the process sends. Equal packets are one object, which is decoded once."""
        known, made = self._datagrams, list[bytes]()
        for packet in packets:
            data = packet if type(packet) is bytes else bytes(packet)
            datagram = known.get(data)
            if datagram is None:
                if len(known) >= DATAGRAMS_MAX:
                    self._forget_datagrams()
                if len(data) > self.weather.packet_bytes_max:
                    self.broken("packet_size", f"a packet of {len(data)} bytes", process)
                datagram = known[data] = Datagram(data)
            made.append(datagram)
        return made

    def _forget_datagrams(self) -> None:
        for datagram in self._datagrams.values():
            datagram.forget()
        self._datagrams.clear()

    def _arrive(self, at_us: int, source: int, target: int, packets: list[bytes]) -> None:
        self._posted += 1
        if packets is not self._carried:
            # Most receivers get the same packets: they get the same event.
            self._carried = packets
            self._event = Received(self.all_nodes[source].address, coalesced(packets))
        act, event = self._arrivals[target], self._event
        heappush(self._queue, (at_us, self._posted, act, event, len(packets)))

    # -- cores ----------------------------------------------------------------------------------

    def started(self, process: SimProcess) -> SimProcess:
        self.processes[process.me] = process
        self.exclusions.started(process)
        return process

    def tapped_core(self, setting: CoreConfig, node: Node) -> Tap:
        """A new core behind its tap."""
        core: Core = self.spec.make(setting)
        if node.skewed:
            core = Skewed(core, node.clock)
        plan, others = self.plan, list[Sink]()
        if plan.trace is not None:
            from unisono.trace.files import TraceFile  # needs pyarrow, which a plain run does not

            me = setting.me
            others.append(TraceFile(plan.trace, plan.run_name, me.name, me.incarnation))
        if plan.sink is not None:
            others.append(plan.sink(setting.me))
        self._sinks.extend(others)
        sink = RowBuffer(self.rows, others)
        spec = self.spec
        least = spec.quorum(setting.options)
        return Tap(core, spec.name, self.group, sink, plan.detail, spec.label, least)

    def seal_of(self, member: Member) -> Seal | None:
        """A seal for this process, if the group has a key."""
        if not self.plan.sealed:
            return None
        roll = dice(self.plan.seed, "seal", member)
        return Seal(
            KEYRING, self.group, member.name, member.incarnation, roll.randbytes, self.counts
        )

    def crashed(self, process: SimProcess, event: Event, error: Exception) -> None:
        """A core must never raise: the run ends here."""
        text = f"on {type(event).__name__}: {where_raised(error)}"
        self.broken("no_crash", text, process)
        self._stopped = True

    def broken(self, law: str, text: str, process: SimProcess | None) -> None:
        if len(self.found) < 100:
            self.found.append(
                WorldViolation(law, text, str(process.me) if process else "", self.now_us)
            )

    def check_state(self, process: SimProcess, wrong: str) -> None:
        """Report a bad adopted state; where there is one order, compare order with set: of all that
        are of one part. What a life had shown before it parted is compared with all others."""
        if wrong:
            self.broken("state", wrong, process)
        memory = process.memory
        if memory is not None and self.spec.is_ordered:
            messages = memory.part, memory.message_set
            if self._orders.setdefault(messages, memory.sequence) != memory.sequence:
                self.broken("state", "holds the same messages in another order", process)

    # -- load -----------------------------------------------------------------------------------

    def _plan_bursts(self, node: Node) -> None:
        """Plan this node's share of the plan's messages, in bursts."""
        plan, weather, index = self.plan, self.weather, node.index
        left = plan.messages * (index + 1) // plan.nodes - plan.messages * index // plan.nodes
        roll = dice(plan.seed, "talk", index)
        while left > 0:
            at_us = roll.randrange(max(weather.fault_us, 1))
            count = min(roll.randint(1, weather.burst_max), left)
            left -= count
            sizes = drawn_sizes(weather, count, roll)
            service = self.services[0]
            if len(self.services) > 1:
                service = roll.choice(self.services)
            self.post(at_us, self._send_burst, (node, 0, service), sizes)

    def _send_burst(self, burst: tuple[Node, int, ServiceLevel], sizes: list[int]) -> None:
        """Multicast as much as there is credit for, the rest later, a bounded number of times."""
        node, tried, service = burst
        process = node.process
        fit = 0
        if tried:
            self._held_back[node.index] -= 1
        if process is not None and process.view and not (node.paused or process.leaving):
            if process.application is not None:
                process.application.prompt(len(sizes))
                return
            credit = process.tap.send_credit()
            while fit < len(sizes) and credit >= sizes[fit] + 32:
                credit -= sizes[fit] + 32
                fit += 1
            if fit:
                first = process.sent_count + 1
                self._busy_us = self.now_us
                self.recovery.sends(process, first + fit - 1)
                process.multicast(
                    [payload_of(process.me, first + k, sizes[k]) for k in range(fit)], service
                )
        if fit < len(sizes):
            if tried >= RETRIES_MAX:
                self.counts["unsaid"] += len(sizes) - fit
                return
            self.counts["held_back"] += 1
            self._held_back[node.index] += 1
            later_us = self.now_us + node.dice.randint(20_000, 200_000)
            self.post(later_us, self._send_burst, (node, tried + 1, service), sizes[fit:])

    def on_delivered(self, process: SimProcess, messages: Sequence[Message]) -> None:
        self.delivered += len(messages)
        self._busy_us = self.now_us
        if "safe" in self.spec.laws:
            self.receipts.delivered(process, messages)
        view = process.view.id if process.view is not None else ""
        for message in messages if "virtual_synchrony" in self.spec.laws else ():
            if message.view and message.view != view:
                text = (
                    f"{message.sender}:{message.number} of view {message.view} in {view or 'none'}"
                )
                self.broken("place", text, process)
        if self.recovery.settled:
            self.recovery.delivered(process, messages)

    def strike(self, event: FaultEvent, _: None) -> None:
        """Let a fault strike now."""
        self._injector.strike(event, None)

    # -- healing --------------------------------------------------------------------------------

    def _heal(self, _: None, __: None) -> None:
        self.healing = True
        self.exclusions.healed()
        self.network.heal()
        self.network.block(apart(self.recovery.parts))
        for node in self.all_nodes:
            if node.host is not None:
                self._injector.dismiss(node, None)
            node.heal()
        self.recovery.begin()

    def finish(self) -> None:
        """End the run after a while, in which late duplicates are still seen."""
        if self.programs is not None:
            self.programs.finish()
            return
        self.post(self.now_us + LINGER_US, self._stop, False, None)

    def options_of(self, index: int) -> Mapping[str, int]:
        """The options of a node's processes, the same for all of them."""
        return self.spec.assign_roles(index, self.plan.nodes, self.plan.options)

    def installed(self, process: SimProcess, before: View | None) -> None:
        view = process.view
        assert view is not None
        self.exclusions.installed(process, before)
        self.receipts.installed(process)
        processes = [self.processes.get(member) for member in view.members]
        names = Counter(each.me.name for each in processes if each is not None and not each.over)
        for name in sorted(name for name, count in names.items() if count > 1):
            self.broken("one_name", f"view {view.id} has two living members named {name}", process)
        self.recovery.installed(process)

    def failed(self, process: SimProcess, fail: Fail) -> None:
        self.counts[f"stopped_{fail.cause.value}"] += 1
        self.exclusions.failed(process, fail)

    def lost(self, process: SimProcess) -> None:
        """A process ended."""
        if process.node.host is None:
            self.exclusions.ended(process.node.index)
            if not self._stopped:
                self.recovery.lost()
