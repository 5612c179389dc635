"""The simulated world: one thread, one seed, virtual microseconds, two phases.

First the faults of the plan strike while the application talks. Then everything heals, and within
a bound all nodes must be together in one view and deliver the probes that each of them sends.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple, TypeAlias

from unisono.core import Core, Event, Offer, Setting
from unisono.model import Message, ServiceLevel
from unisono.sim.application import drawn_sizes, payload_of
from unisono.sim.network import Network
from unisono.sim.nodes import Life, Node, Skewed
from unisono.sim.plan import SECOND_US, TRUE, Clock, FaultEvent, Plan, Weather, dice
from unisono.trace.record import PROBE, Row, Sink
from unisono.trace.tap import Tap

Act: TypeAlias = Callable[[Any, Any], None]

RETRIES_MAX: Final = 40
"""How often a sender that finds no room, or no view, tries again before it gives the burst up."""

SETTLE_US: Final = 500_000
"""All must have been together this long before the probes go out."""

LINGER_US: Final = 300_000
"""The run goes on this long after the last probe, so that a late duplicate is seen."""

PROBES: Final = 2
"""Probes that each node sends after healing."""


class Found(NamedTuple):
    """What the world itself saw break, as opposed to what the laws find in the trace."""

    law: str
    text: str
    life: str
    t_us: int


class Rows:
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

    def __init__(self, plan: Plan, weather: Weather, offer: Offer, service: ServiceLevel) -> None:
        self.plan = plan
        self.weather = weather
        self.offer = offer
        self.service = service
        self.group = "sim"
        self.with_state = weather.with_state or plan.application is not None
        self.lives: list[Life] = []
        """All that there were, where the plan brings its application."""
        self.now_us = 0
        self.steps = 0
        self.sent = 0
        self.delivered = 0
        self.counts: Counter[str] = Counter()
        self.found: list[Found] = []
        self.rows: list[Row] = []
        self.healing = False
        self.settled = False
        """All came together after healing, and the probes went out."""
        self.progressed = False
        """Every node delivered every probe."""
        self._queue: list[tuple[int, int, Act, Any, Any]] = []
        self._posted = 0
        self._popped = 0
        self._allowed = plan.steps_per_s_max * plan.nodes
        self._stopped = False
        self._epoch = 0
        self._awaited: dict[str, set[tuple[str, int]]] = {}
        self._orders: dict[int, int] = {}
        self._sinks: list[Sink] = []
        clocks = weather.clocks
        self.nodes = [
            Node(self, index, clocks[index] if index < len(clocks) else TRUE)
            for index in range(plan.nodes)
        ]
        self.places = {node.address: node.index for node in self.nodes}
        everyone = range(plan.nodes)
        self.reach = [
            [target for target in everyone if target != here or weather.loopback]
            for here in everyone
        ]
        """Whom a multicast packet reaches, by node."""
        self.network = Network(plan.nodes, plan.seed, weather, self._arrive, self.post)
        if plan.trace is not None:
            from unisono.trace.files import clear_run  # needs pyarrow, as below

            # Lives that an earlier run of this name had, and this one has not, are not of this run.
            clear_run(plan.trace, plan.run_name)

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
                self.post(event.at_us, self._strike, event, None)
        self.post(SECOND_US, self._second, None, None)
        self.post(weather.fault_us, self._heal, None, None)
        self._advance(weather.fault_us + plan.progress_us)
        for sink in self._sinks:
            sink.close()

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
        nodes = self.nodes
        entry = (at_us, self._posted, nodes[target].arrive, nodes[source].address, packets)
        heappush(self._queue, entry)

    # -- cores ----------------------------------------------------------------------------------

    def tapped(self, setting: Setting, clock: Clock) -> Tap:
        """A new core behind its tap."""
        core: Core = self.offer.make(setting)
        if clock != TRUE:
            core = Skewed(core, clock)
        plan, others = self.plan, list[Sink]()
        if plan.trace is not None:
            from unisono.trace.files import TraceFile  # needs pyarrow, which a plain run does not

            me = setting.me
            others.append(TraceFile(plan.trace, plan.run_name, me.name, me.incarnation))
        if plan.sink is not None:
            others.append(plan.sink(setting.me))
        self._sinks.extend(others)
        sink = Rows(self.rows, others)
        offer = self.offer
        return Tap(core, offer.name, self.group, sink, detail=plan.detail, label=offer.label)

    def crashed(self, life: Life, event: Event, error: Exception) -> None:
        """A core must never raise: the run ends here."""
        steps = [
            f"{frame.filename.replace(chr(92), '/').rpartition('/')[2]}:{frame.lineno} {frame.name}"
            for frame in traceback.extract_tb(error.__traceback__)[1:]
        ]
        what = f"{type(error).__name__}: {error}"
        text = f"on {type(event).__name__}: {what} [{' > '.join(steps)}]"
        self.broken("no_crash", text, life)
        self._stopped = True

    def broken(self, law: str, text: str, life: Life | None) -> None:
        if len(self.found) < 100:
            self.found.append(Found(law, text, str(life.me) if life else "", self.now_us))

    def judge_state(self, life: Life, wrong: str) -> None:
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
            self.post(at_us, self._talk, (node, 0), drawn_sizes(weather, count, roll))

    def _talk(self, who: tuple[Node, int], sizes: list[int]) -> None:
        """Say as much as there is room for, and the rest later, a bounded number of times."""
        node, tried = who
        life = node.life
        fit = 0
        if life is not None and life.view and not (node.paused or life.leaving):
            if life.acting is not None:
                life.acting.prompt(len(sizes))
                return
            room = life.tap.room()
            while fit < len(sizes) and room >= sizes[fit] + 32:
                room -= sizes[fit] + 32
                fit += 1
            if fit:
                first = life.said + 1
                life.say([payload_of(life.me, first + k, sizes[k]) for k in range(fit)])
        if fit < len(sizes):
            if tried >= RETRIES_MAX:
                self.counts["unsaid"] += len(sizes) - fit
                return
            self.counts["held_back"] += 1
            later_us = self.now_us + node.dice.randint(20_000, 200_000)
            self.post(later_us, self._talk, (node, tried + 1), sizes[fit:])

    def delivered_here(self, life: Life, messages: Sequence[Message]) -> None:
        self.delivered += len(messages)
        view = life.view.id if life.view is not None else ""
        for message in messages if "virtual_synchrony" in self.offer.laws else ():
            if message.view and message.view != view:
                text = (
                    f"{message.sender}:{message.number} of view {message.view} in {view or 'none'}"
                )
                self.broken("place", text, life)
        awaited = self._awaited
        if not awaited:
            return
        mine = awaited.get(life.node.name)
        if mine:
            for message in messages:
                mine.discard((str(message.sender), message.number))
            if not mine:
                self._maybe_done()

    # -- faults ---------------------------------------------------------------------------------

    def _strike(self, event: FaultEvent, _: None) -> None:
        kind, struck = event.kind, [self.nodes[index] for index in event.nodes]
        if kind in ("block", "split"):
            self._block(event, 1)
            self.counts[kind] += 1
            self.post(self.now_us + event.for_us, self._block, event, -1)
        for node in struck:
            if kind in ("crash", "amnesia"):
                node.crash(keep_disk=kind == "crash", down_us=event.for_us)
            elif kind == "pause":
                node.pause(event.for_us)
            elif kind == "leave":
                node.leave(event.for_us)
            elif kind == "slow":
                node.slow(event.for_us)

    def _block(self, event: FaultEvent, by: int) -> None:
        if self.healing:
            return
        self.network.block(event.nodes, event.to, by)
        if event.kind == "split":
            self.network.block(event.to, event.nodes, by)

    # -- healing --------------------------------------------------------------------------------

    def _heal(self, _: None, __: None) -> None:
        self.healing = True
        self.network.heal()
        for node in self.nodes:
            node.heal()
        self.changed()

    def options_of(self, index: int) -> Mapping[str, int]:
        """What the process of a node is told, all its lives the same."""
        return self.offer.appoint(index, self.plan.nodes, self.plan.options)

    def installed(self, life: Life) -> None:
        least = self.offer.quorum(self.options_of(life.node.index))
        view = life.view
        if view is not None and len(view.members) < least:
            text = f"view {view.id} has {len(view.members)} members, fewer than {least}"
            self.broken("quorum", text, life)
        self.changed()

    def lost(self) -> None:
        """A life ended. If that was amid the probes, all must come together and probe again."""
        if self.settled and not self.progressed:
            self.counts["probed_in_vain"] += 1
            self.settled = False
            self._awaited = {}
        self.changed()

    def changed(self) -> None:
        """A view or a life came or went: if now all are together, look again in a while."""
        if self.healing and not self.settled:
            self._epoch += 1
            if self._together():
                self.post(self.now_us + SETTLE_US, self._settle, self._epoch, None)

    def _together(self) -> bool:
        """Everyone is alive, and everyone's view is exactly everyone."""
        lives = [node.life for node in self.nodes]
        everyone = {life.me for life in lives if life is not None and not life.leaving}
        return len(everyone) == len(self.nodes) and all(
            life is not None and life.view is not None and set(life.view.members) == everyone
            for life in lives
        )

    def _settle(self, epoch: int, _: None) -> None:
        if epoch != self._epoch or self.settled:
            return
        self.settled = True
        lives = [node.life for node in self.nodes if node.life is not None]
        # Until a probe is sent, a number below zero stands for it.
        probes = [(str(life.me), -left) for life in lives for left in range(1, PROBES + 1)]
        self._awaited = {life.node.name: set(probes) for life in lives}
        for life in lives:
            self._probe(life, PROBES)

    def _probe(self, life: Life, left: int) -> None:
        """Multicast a probe, now or as soon as there is room; everyone shall deliver it."""
        if life.over or not self.settled:
            return
        payload = payload_of(life.me, life.said + 1, 40)
        if life.tap.room() < len(payload):
            self.post(self.now_us + 10_000, self._probe, life, left)
            return
        for awaited in self._awaited.values():
            awaited.discard((str(life.me), -left))
            awaited.add((str(life.me), life.said + 1))
        usual = life.tap.send_detail
        life.tap.send_detail = PROBE
        life.say([payload])
        life.tap.send_detail = usual
        if left > 1:
            self._probe(life, left - 1)

    def _maybe_done(self) -> None:
        if not any(self._awaited.values()) and not self.progressed:
            self.progressed = True
            self.post(self.now_us + LINGER_US, self._stop, False, None)
