"""The simulated world: one thread, one seed, virtual microseconds, two phases.

First the faults of the plan strike while the application talks. Then everything heals, and within
a bound all nodes must be together in one view and deliver the probes that each of them sends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple, TypeAlias

from unisono.core import Core, CoreConfig, Event, Fail, ProtocolSpec
from unisono.model import Member, Message, ServiceLevel, View
from unisono.sim.application import drawn_sizes, payload_of
from unisono.sim.applications import where_raised
from unisono.sim.clocks import Skewed
from unisono.sim.exclusions import Exclusions
from unisono.sim.incarnations import SimIncarnation
from unisono.sim.injection import FaultInjector
from unisono.sim.network import Network
from unisono.sim.nodes import Node
from unisono.sim.plan import SECOND_US, FaultEvent, Plan, Weather, dice
from unisono.sim.probes import Probes
from unisono.sim.receipts import Receipts
from unisono.sim.recovery import Recovery, apart
from unisono.trace.record import APART, Row, Sink
from unisono.trace.tap import Tap
from unisono.wire import Datagram

Act: TypeAlias = Callable[[Any, Any], None]

RETRIES_MAX: Final = 40
"""How often a sender that finds no room, or no view, tries again before it gives the burst up."""

LINGER_US: Final = 300_000
"""The run goes on this long after the last probe, so that a late duplicate is seen."""


class WorldViolation(NamedTuple):
    """What the world itself saw break, as opposed to what the laws find in the trace."""

    law: str
    text: str
    life: str
    t_us: int


class RowBuffer:
    """Keeps every row in memory, and passes it on to those who want it too."""

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
    """Owns time, dice and packets, and drives one core for each life of each node."""

    datagram: type[bytes] = Datagram
    """What packets travel as: read once, however many they reach."""

    def __init__(
        self, plan: Plan, weather: Weather, offer: ProtocolSpec, services: Sequence[ServiceLevel]
    ) -> None:
        self.plan = plan
        self.weather = weather
        self.offer = offer
        self.services = tuple(services)
        """What bursts of messages ask for: each for one of these."""
        self.group = "sim"
        self.with_state = weather.with_state or plan.application is not None
        self.life_of: dict[Member, SimIncarnation] = {}
        """All that there were."""
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
        self._popped = 0
        self._allowed = plan.steps_per_s_max * plan.nodes
        self._stopped = False
        self._orders: dict[int, int] = {}
        self._sinks: list[Sink] = []
        self.ailing = Exclusions(self)
        self.receipts = Receipts(self)
        self.probes = Probes(self)
        self._striker = FaultInjector(self)
        self.nodes = [Node(self, index) for index in range(plan.nodes)]
        self.everywhere = [*self.nodes, *self._namesakes()]
        """All nodes, and those who only want the name of one."""
        self.places = {node.address: node.index for node in self.everywhere}
        self.recovery = Recovery(self)
        everyone = range(len(self.everywhere))
        self.reach = [
            [target for target in everyone if target != here or weather.loopback]
            for here in everyone
        ]
        """Whom a multicast packet reaches, by node."""
        self.network = Network(len(everyone), plan.seed, weather, self._arrive, self.post)
        if plan.trace is not None:
            from unisono.trace.files import clear_run  # needs pyarrow, as below

            # Lives that an earlier run of this name had, and this one has not, are not of this run.
            clear_run(plan.trace, plan.run_name)

    def _namesakes(self) -> list[Node]:
        found: list[Node] = []
        for event in self.weather.schedule:
            if event.kind == "namesake":
                host = self.nodes[event.nodes[0]]
                found.append(Node(self, len(self.nodes) + len(found), host))
                self._striker.expect_namesake(event, found[-1])
        return found

    # -- time -----------------------------------------------------------------------------------

    def post(self, at_us: int, act: Act, a: Any, b: Any) -> None:
        """Do `act(a, b)` then; what is posted first for the same instant is done first."""
        self._posted += 1
        heappush(self._queue, (at_us, self._posted, act, a, b))

    def run(self) -> None:
        """Both phases, to the end or to the bound."""
        weather, plan = self.weather, self.plan
        for node in self.nodes:
            starts = weather.starts_us
            node.plan_return(starts[node.index] if node.index < len(starts) else 0)
            self._plan_talk(node)
        for event in weather.schedule:
            if event.at_us < weather.fault_us:
                self._striker.plan(event)
        self.post(SECOND_US, self._second, None, None)
        self.post(weather.fault_us, self._heal, None, None)
        self._advance(weather.fault_us + plan.progress_us)
        self._end()
        for sink in self._sinks:
            sink.close()

    def _end(self) -> None:
        """Parts that need not go on are killed: what they never learn is not held against them."""
        self.receipts.close()
        for node in self.recovery.spare():
            node.vanish()
        if self.life_of and not self.found and not self.recovery.progressed:
            # Whoever judges the files alone is to know it too.
            some = next(iter(self.life_of.values()))
            some.tap.note(self.now_us, "stuck", self.recovery.why_stuck())
        elif self.life_of and not self.recovery.going_on:
            next(iter(self.life_of.values())).tap.note(self.now_us, "fault", APART)

    def _advance(self, until_us: int) -> None:
        queue = self._queue
        while queue and not self._stopped and queue[0][0] <= until_us:
            self.now_us, _, act, a, b = heappop(queue)
            self._popped += 1
            if self._popped > self._allowed:
                self._livelock()
                return
            act(a, b)

    def _second(self, _: None, __: None) -> None:
        self._allowed = self._popped + self.plan.steps_per_s_max * self.plan.nodes
        self.post(self.now_us + SECOND_US, self._second, None, None)

    def _livelock(self) -> None:
        limit = self.plan.steps_per_s_max
        self.broken("no_livelock", f"over {limit} events a node within one virtual second", None)
        self._stopped = True

    def _stop(self, was_idle: bool, _: None) -> None:
        """The end; where a plan brings its application, once all were idle for a while."""
        if self.plan.application is None:
            self._stopped = True
            return
        lives = [node.life for node in self.nodes]
        idle = all(life and life.acting and life.acting.is_idle() for life in lives)
        self._stopped = was_idle and idle
        self.post(self.now_us + LINGER_US, self._stop, idle, None)

    def _arrive(self, at_us: int, source: int, target: int, packets: list[bytes]) -> None:
        self._posted += 1
        nodes = self.everywhere
        entry = (at_us, self._posted, nodes[target].arrive, nodes[source].address, packets)
        heappush(self._queue, entry)

    # -- cores ----------------------------------------------------------------------------------

    def born(self, life: SimIncarnation) -> SimIncarnation:
        self.life_of[life.me] = life
        self.ailing.born(life)
        return life

    def tapped(self, setting: CoreConfig, node: Node) -> Tap:
        """A new core behind its tap."""
        core: Core = self.offer.make(setting)
        if node.skewed:
            core = Skewed(core, node.watch)
        plan, others = self.plan, list[Sink]()
        if plan.trace is not None:
            from unisono.trace.files import TraceFile  # needs pyarrow, which a plain run does not

            me = setting.me
            others.append(TraceFile(plan.trace, plan.run_name, me.name, me.incarnation))
        if plan.sink is not None:
            others.append(plan.sink(setting.me))
        self._sinks.extend(others)
        sink = RowBuffer(self.rows, others)
        offer = self.offer
        least = offer.quorum(setting.options)
        return Tap(core, offer.name, self.group, sink, plan.detail, offer.label, least)

    def crashed(self, life: SimIncarnation, event: Event, error: Exception) -> None:
        """A core must never raise: the run ends here."""
        text = f"on {type(event).__name__}: {where_raised(error)}"
        self.broken("no_crash", text, life)
        self._stopped = True

    def broken(self, law: str, text: str, life: SimIncarnation | None) -> None:
        if len(self.found) < 100:
            self.found.append(WorldViolation(law, text, str(life.me) if life else "", self.now_us))

    def judge_state(self, life: SimIncarnation, wrong: str) -> None:
        """Report a bad adopted state; where the order is total, compare order with set."""
        if wrong:
            self.broken("state", wrong, life)
        memory = life.memory
        if memory is not None and "total_order" in self.offer.laws:
            if self._orders.setdefault(memory.heard, memory.chain) != memory.chain:
                self.broken("state", "holds the same messages in another order", life)

    # -- talk -----------------------------------------------------------------------------------

    def _plan_talk(self, node: Node) -> None:
        """When this node speaks, and how much: its share of the plan's messages, in bursts."""
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
            self.post(at_us, self._talk, (node, 0, service), sizes)

    def _talk(self, who: tuple[Node, int, ServiceLevel], sizes: list[int]) -> None:
        """Say as much as there is room for, and the rest later, a bounded number of times."""
        node, tried, service = who
        life = node.life
        fit = 0
        if life is not None and life.view and not (node.paused or life.leaving):
            if life.acting is not None:
                life.acting.prompt(len(sizes))
                return
            room = life.tap.send_credit()
            while fit < len(sizes) and room >= sizes[fit] + 32:
                room -= sizes[fit] + 32
                fit += 1
            if fit:
                first = life.said + 1
                life.say([payload_of(life.me, first + k, sizes[k]) for k in range(fit)], service)
        if fit < len(sizes):
            if tried >= RETRIES_MAX:
                self.counts["unsaid"] += len(sizes) - fit
                return
            self.counts["held_back"] += 1
            later_us = self.now_us + node.dice.randint(20_000, 200_000)
            self.post(later_us, self._talk, (node, tried + 1, service), sizes[fit:])

    def delivered_here(self, life: SimIncarnation, messages: Sequence[Message]) -> None:
        self.delivered += len(messages)
        if "safe" in self.offer.laws:
            self.receipts.delivered(life, messages)
        view = life.view.id if life.view is not None else ""
        for message in messages if "virtual_synchrony" in self.offer.laws else ():
            if message.view and message.view != view:
                text = (
                    f"{message.sender}:{message.number} of view {message.view} in {view or 'none'}"
                )
                self.broken("place", text, life)
        if self.recovery.settled:
            self.recovery.delivered(life, messages)

    def strike(self, event: FaultEvent, _: None) -> None:
        """Let a fault strike now."""
        self._striker.strike(event, None)

    # -- healing --------------------------------------------------------------------------------

    def _heal(self, _: None, __: None) -> None:
        self.healing = True
        self.ailing.healed()
        self.network.heal()
        self.network.block(apart(self.recovery.parts))
        for node in self.everywhere:
            if node.host is not None:
                self._striker.dismiss(node, None)
            node.heal()
        self.recovery.begin()

    def finish(self) -> None:
        """All is done that was to be done; what comes late is still seen."""
        self.post(self.now_us + LINGER_US, self._stop, False, None)

    def options_of(self, index: int) -> Mapping[str, int]:
        """What the process of a node is told, all its lives the same."""
        return self.offer.assign_roles(index, self.plan.nodes, self.plan.options)

    def installed(self, life: SimIncarnation, before: View | None) -> None:
        view = life.view
        assert view is not None
        self.ailing.installed(life, before)
        self.receipts.installed(life)
        lives = [self.life_of.get(member) for member in view.members]
        names = Counter(each.me.name for each in lives if each is not None and not each.over)
        for name in sorted(name for name, count in names.items() if count > 1):
            self.broken("one_name", f"view {view.id} has two living members named {name}", life)
        self.recovery.installed(view)

    def failed(self, life: SimIncarnation, fail: Fail) -> None:
        self.counts[f"stopped_{fail.cause.value}"] += 1
        self.ailing.failed(life, fail)

    def lost(self, life: SimIncarnation) -> None:
        """A life ended."""
        if life.node.host is None:
            self.ailing.away(life.node.index)
            if not self._stopped:
                self.recovery.lost()
