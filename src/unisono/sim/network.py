"""The network of a simulated world: what becomes of a burst between two nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeAlias

from unisono.sim.plan import CALM, Link, Weather, dice

Arrival: TypeAlias = Callable[[int, int, int, list[bytes]], None]
"""Called with (when, source, target, packets): put the burst into the world's queue."""

LOOPBACK_US: Final = 10
"""A node's own packets come back to it after this, unharmed."""

_MILLION: Final = 1_000_000
_LN2: Final = 45_426
"""The natural logarithm of 2, in 65536ths."""


def drawn_delay_us(link: Link, roll: Random) -> int:
    """A delay, in whole microseconds from whole random bits: the same on every machine."""
    spread = link.spread_us
    if link.delay == "constant" or not spread:
        return link.delay_us
    if link.delay == "uniform":
        return link.delay_us + int(roll.random() * (spread + 1))
    bits = roll.getrandbits(32)
    if link.delay == "exponential":
        # Each leading zero is one more halving: exact at the powers of two, straight between.
        halvings = 16 - (bits & 0xFFFF).bit_length()
        return link.delay_us + (((halvings << 16) + (bits >> 16)) * spread * _LN2 >> 32)
    # Four dice make the bell, three doublings to either side of the median.
    bell = (bits & 255) + (bits >> 8 & 255) + (bits >> 16 & 255) + (bits >> 24)
    doublings = bell * 6 * 65536 // 1020
    return link.delay_us + ((65536 + (doublings & 65535) << (doublings >> 16)) * spread >> 19)


class Pipe:
    """One directed link at work: its dice, its mood, its queue."""

    __slots__ = ("bad", "dice", "free_us", "last_us", "link", "odd")

    def __init__(self, link: Link, roll: Random) -> None:
        self.dice = roll
        self.become(link)

    def become(self, link: Link) -> None:
        """Be like this from now on; what is under way still arrives late, even out of order."""
        self.link = link
        self.odd = bool(link.duplicate_ppm or link.reorder_ppm or link.corrupt_ppm)
        self.bad = False
        self.last_us = 0
        self.free_us = 0

    def survivors(self, packets: Sequence[bytes], counts: Counter[str]) -> list[bytes]:
        """Those that neither loss nor a burst of loss takes."""
        link, roll, kept = self.link, self.dice.random, []
        for packet in packets:
            if link.burst_ppm:
                if roll() * _MILLION < (link.burst_end_ppm if self.bad else link.burst_ppm):
                    self.bad = not self.bad
                if self.bad and roll() * _MILLION < link.burst_loss_ppm:
                    counts["burst_lost"] += 1
                    continue
            if link.loss_ppm and roll() * _MILLION < link.loss_ppm:
                counts["lost"] += 1
                continue
            kept.append(packet)
        return kept

    def serialised(
        self, now_us: int, packets: Sequence[bytes], counts: Counter[str]
    ) -> tuple[int, list[bytes]]:
        """When the last of them has left, and those for which the queue had a place."""
        link, kept = self.link, []
        free_us = max(self.free_us, now_us)
        longest_us = link.queue_octets * _MILLION // link.octets_per_s
        for packet in packets:
            takes_us = len(packet) * _MILLION // link.octets_per_s
            if free_us + takes_us - now_us > longest_us:
                counts["overflowed"] += 1
                continue
            free_us += takes_us
            kept.append(packet)
        self.free_us = free_us
        return free_us, kept


class Network:
    """Carries bursts between nodes by index, over one pipe for each directed pair."""

    def __init__(self, nodes: int, seed: int, weather: Weather, arrive: Arrival) -> None:
        self.counts: Counter[str] = Counter()
        """What happened to packets, by name."""
        unlike = {(source, target): link for source, target, link in weather.links}
        self._pipes = [
            [
                Pipe(unlike.get((source, target), weather.link), dice(seed, "pipe", source, target))
                for target in range(nodes)
            ]
            for source in range(nodes)
        ]
        self._blocked = [[0] * nodes for _ in range(nodes)]
        self._arrive = arrive

    def block(self, sources: Sequence[int], targets: Sequence[int], by: int = 1) -> None:
        """Block one direction; blocks that overlap are counted, `by=-1` takes one away."""
        for source in sources:
            for target in targets:
                if source != target:
                    held = self._blocked[source][target] + by
                    self._blocked[source][target] = max(held, 0)

    def blocked(self, source: int, target: int) -> bool:
        return self._blocked[source][target] > 0

    def heal(self) -> None:
        """End every fault: all pipes calm, nothing blocked."""
        for row in self._pipes:
            for pipe in row:
                pipe.become(CALM)
        for held in self._blocked:
            held[:] = [0] * len(held)

    def carry(self, now_us: int, source: int, target: int, packets: list[bytes]) -> None:
        """Send a burst; what survives arrives as one burst, but for the odd ones out."""
        counts = self.counts
        counts["carried"] += len(packets)
        if source == target:
            self._arrive(now_us + LOOPBACK_US, source, target, packets)
            return
        if self._blocked[source][target]:
            counts["blocked"] += len(packets)
            return
        pipe = self._pipes[source][target]
        link = pipe.link
        left_us = now_us
        if link.loss_ppm or link.burst_ppm:
            packets = pipe.survivors(packets, counts)
        if link.octets_per_s:
            left_us, packets = pipe.serialised(now_us, packets, counts)
        if not packets:
            return
        # Without reordering a link keeps its order, as nearly every path does.
        at_us = pipe.last_us = max(left_us + drawn_delay_us(link, pipe.dice), pipe.last_us)
        if pipe.odd:
            packets = self._odd_ones_out(pipe, at_us, source, target, packets)
        if packets:
            self._arrive(at_us, source, target, packets)

    def _odd_ones_out(
        self, pipe: Pipe, at_us: int, source: int, target: int, packets: list[bytes]
    ) -> list[bytes]:
        """Corrupt, double and hold back single packets; the rest stays a burst."""
        link, roll, counts, rest = pipe.link, pipe.dice, self.counts, []
        for packet in packets:
            if link.corrupt_ppm and roll.random() * _MILLION < link.corrupt_ppm:
                counts["corrupted"] += 1
                packet = corrupted(packet, roll)
            if link.duplicate_ppm and roll.random() * _MILLION < link.duplicate_ppm:
                counts["duplicated"] += 1
                later_us = at_us + drawn_delay_us(link, roll)
                self._arrive(later_us, source, target, [packet])
            if link.reorder_ppm and roll.random() * _MILLION < link.reorder_ppm:
                counts["reordered"] += 1
                held_us = 1 + int(roll.random() * link.reorder_us)
                self._arrive(at_us + held_us, source, target, [packet])
            else:
                rest.append(packet)
        return rest


def corrupted(packet: bytes, roll: Random) -> bytes:
    """The packet with one to eight bits flipped, or cut short, or made longer."""
    way = roll.randrange(4)
    if way == 0 and packet:
        return packet[: roll.randrange(len(packet))]
    if way == 1 or not packet:
        return packet + roll.randbytes(roll.randint(1, 16))
    damaged = bytearray(packet)
    bits = len(packet) * 8
    for bit in roll.sample(range(bits), min(roll.randint(1, 8), bits)):
        damaged[bit >> 3] ^= 1 << (bit & 7)
    return bytes(damaged)
