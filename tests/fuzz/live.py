"""Live members under hostile packets: simulated runs, with faults, judged by the laws.

Three enemies, each until the run heals:

*outsider*: has no key. It sees every packet, changes, repeats and floods, from any address, against
    a sealed group. Every law holds, for all.
*broken*: one member, that says as itself, beside what it should, whatever its packets can carry.
    Nobody raises, hangs or grows; and once it is silent the group is one again.
*impersonator*: has the key, and says anything as anyone. Nobody raises, hangs or grows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final, NamedTuple

from tests.fuzz.forging import Forger
from tests.ring.test_hostile import weight
from unisono.core import Received
from unisono.model import Address
from unisono.sim.nodes import Node
from unisono.sim.plan import Plan
from unisono.sim.run import checked_spec, services_for, verdict_on
from unisono.sim.swarm import drawn
from unisono.sim.world import World
from unisono.trace.history import History

PROTOCOLS: Final = ("ring", "mtp", "rmcast", "rmp", "transis")
ENEMIES: Final = ("outsider", "broken", "impersonator")
KEPT_MAX: Final = 300
"""Packets that are remembered, to be forged and repeated."""
WEIGHT_MAX: Final = 400_000
ALWAYS: Final = frozenset(("no_crash", "no_livelock", "packet_size"))
"""Laws of the world that hold whoever speaks."""
LAWS: Final[dict[str, frozenset[str] | None]] = {
    "outsider": None,
    "broken": ALWAYS,
    "impersonator": ALWAYS,
}
"""By enemy, the laws that hold; None is all."""


class Found(NamedTuple):
    """What became of a run under attack."""

    protocol: str
    enemy: str
    seed: int
    counts: Counter[str]
    violations: tuple[str, ...]
    on_sockets: bool = False

    @property
    def replay(self) -> str:
        which = f"--protocol {self.protocol} --enemy {self.enemy} --seed {self.seed}"
        return f"python -m tests.fuzz {which}{' --sockets' * self.on_sockets}"


class Enemy:
    """Sends with every packet that arrives, now and then, some of its own."""

    def __init__(self, protocol: str, enemy: str, seed: int) -> None:
        self.dice = Random(f"{protocol} {enemy} {seed}")
        self.rate = self.dice.choice((0.05, 0.2, 0.5))
        self.counts: Counter[str] = Counter()
        self._enemy = enemy
        self._forger = Forger(protocol, self.dice)
        self._kept: list[tuple[Address, bytes]] = []

    def keep(self, source: Address, packets: list[bytes]) -> None:
        for packet in packets[:2]:
            if len(self._kept) < KEPT_MAX:
                self._kept.append((source, packet))
            else:
                self._kept[self.dice.randrange(KEPT_MAX)] = source, packet

    def hostile(self, source: Address) -> Iterator[tuple[Address, list[bytes]]]:
        """What arrives beside: from where, and the packets."""
        dice = self.dice
        if not self._kept or dice.random() > self.rate:
            return
        its, packet = dice.choice(self._kept)
        match dice.randrange(8):
            case 0:
                made = packet
                self._count("replayed")
            case 1:
                made = self._forger.mangled(packet)
                self._count("mangled")
            case _ if self._enemy == "outsider":
                made = self._changed(packet)
                self._count("mangled")
            case _:
                made, is_sound = self._forger.forged(packet)
                self._count("forged" if is_sound else "mangled")
        times = 1 if dice.random() < 0.97 else 60
        self.counts["inputs"] += times - 1
        if self._enemy == "outsider":
            its = dice.choice((its, source, Address("10.9.9.9", 9)))
        yield its, [made] * times

    def _changed(self, packet: bytes) -> bytes:
        changed = bytearray(packet or b"\0")
        for _ in range(self.dice.randint(1, 3)):
            changed[self.dice.randrange(len(changed))] = self.dice.randrange(256)
        if self.dice.random() < 0.2:
            del changed[self.dice.randrange(len(changed)) :]
        return bytes(changed)

    def _count(self, what: str) -> None:
        self.counts["inputs"] += 1
        self.counts[what] += 1


@contextmanager
def attacked(enemy: Enemy, kind: str) -> Iterator[None]:
    """Every node hears the enemy too. A broken member's packets are those of the last node, which
    is no master."""
    arrive = Node.arrive

    def both(node: Node, received: Received, count: int) -> None:
        source = received.source
        last = node.world.plan.nodes - 1
        if kind != "broken" or node.world.index_of.get(source) == last:
            enemy.keep(source, [bytes(packet) for packet in received.packets])
        arrive(node, received, count)
        if node.world.healing or (kind == "broken" and node.index == last):
            return
        for its, made in list(enemy.hostile(source)):
            arrive(node, Received(its, made), len(made))

    Node.arrive = both  # type: ignore[method-assign]
    try:
        yield
    finally:
        Node.arrive = arrive  # type: ignore[method-assign]


def attack(protocol: str, enemy: str, seed: int, messages: int = 120, **more: Any) -> Found:
    """One run."""
    dice = Random(seed)
    faults = dice.choice(("none", "loss", "crash", "chaos"))
    sealed = enemy == "outsider"
    plan = drawn(
        Plan(
            protocol=protocol,
            nodes=dice.randint(3, 5),
            seed=seed,
            faults=faults,
            messages=messages,
            sealed=sealed,
            **more,
        )
    )
    assert plan.weather is not None
    spec = checked_spec(plan)
    bad = Enemy(protocol, enemy, seed)
    with attacked(bad, enemy):
        world = World(plan, plan.weather, spec, services_for(plan, spec))
        world.run()
    history = History(plan.run_name, spec.name, world.group, tuple(world.rows))
    _, violations = verdict_on(world, history)
    laws = LAWS[enemy]
    found = [f"{v.law}: {v.detail}" for v in violations if laws is None or v.law in laws]
    heaviest = max((weight(process.tap.core) for process in world.processes.values()), default=0)
    if heaviest > WEIGHT_MAX:
        found.append(f"growth: a member holds {heaviest} things")
    bad.counts["steps"] = world.steps
    bad.counts["stopped"] = sum(n for name, n in world.counts.items() if name[:8] == "stopped_")
    bad.counts["others"] = len(violations) - len([v for v in violations if v.law in ALWAYS])
    return Found(protocol, enemy, seed, bad.counts, tuple(found))
