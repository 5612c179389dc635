"""One directed link: loss, delay, duplication, reordering and damage of a burst."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Final, TypeAlias

from unisono.sim.plan import LinkPlan

Land: TypeAlias = Callable[[int, Any, Any, list[bytes]], None]
"""Called with (when, a, b, packets) for what comes out at the far end; `a` and `b` are whatever
was given at the near one."""

_MILLION: Final = 1_000_000
_LN2: Final = 45_426
"""The natural logarithm of 2, in 65536ths."""


def drawn_delay_us(link: LinkPlan, roll: Random) -> int:
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
    """One directed link: its dice, its state and its queue."""

    __slots__ = ("_odds", "bad", "dice", "free_us", "last_us", "link", "lossy", "odd", "uniform")

    def __init__(self, link: LinkPlan, roll: Random) -> None:
        self.dice = roll
        self.become(link)

    def become(self, link: LinkPlan) -> None:
        """Behave like this from now on; what is under way still arrives late, even out of order."""
        self.link = link
        self.lossy = bool(link.loss_ppm or link.burst_ppm)
        self._odds = link.corrupt_ppm, link.duplicate_ppm, link.hold_ppm, link.reorder_ppm
        self.odd = any(self._odds)
        self.uniform = link.delay == "uniform" and link.spread_us > 0
        """The most frequent delay, drawn without a call."""
        self.bad = False
        self.last_us = 0
        self.free_us = 0

    def survivors(self, packets: list[bytes], counts: Counter[str]) -> list[bytes]:
        """Those that neither loss nor a burst of loss takes; the same list if that is all."""
        link, roll, kept = self.link, self.dice.random, []
        burst_ppm, loss_ppm = link.burst_ppm, link.loss_ppm
        for packet in packets:
            if burst_ppm:
                if roll() * _MILLION < (link.burst_end_ppm if self.bad else burst_ppm):
                    self.bad = not self.bad
                if self.bad and roll() * _MILLION < link.burst_loss_ppm:
                    counts["burst_lost"] += 1
                    continue
            if loss_ppm and roll() * _MILLION < loss_ppm:
                counts["lost"] += 1
                continue
            kept.append(packet)
        return packets if len(kept) == len(packets) else kept

    def serialised(
        self, now_us: int, packets: list[bytes], counts: Counter[str]
    ) -> tuple[int, list[bytes]]:
        """When the last of them has left, and those that fitted into the queue; the same list if
        that is all."""
        link, kept = self.link, []
        free_us = max(self.free_us, now_us)
        longest_us = link.queue_bytes * _MILLION // link.bytes_per_s
        for packet in packets:
            takes_us = len(packet) * _MILLION // link.bytes_per_s
            if free_us + takes_us - now_us > longest_us:
                counts["overflowed"] += 1
                continue
            free_us += takes_us
            kept.append(packet)
        self.free_us = free_us
        return free_us, packets if len(kept) == len(packets) else kept

    def through(
        self,
        now_us: int,
        packets: list[bytes],
        counts: Counter[str],
        land: Land,
        a: Any,
        b: Any,
    ) -> None:
        """Carry a burst to the far end; what survives lands as one burst, but for the odd ones
        out."""
        link, left_us = self.link, now_us
        if self.lossy:
            packets = self.survivors(packets, counts)
        if link.bytes_per_s:
            left_us, packets = self.serialised(now_us, packets, counts)
        if not packets:
            return
        # Without reordering a link keeps its order, as nearly every path does.
        if self.uniform:
            at_us = left_us + link.delay_us + int(self.dice.random() * (link.spread_us + 1))
        else:
            at_us = left_us + drawn_delay_us(link, self.dice)
        if at_us < self.last_us:
            at_us = self.last_us
        self.last_us = at_us
        if self.odd:
            packets = self._odd_ones_out(at_us, packets, counts, land, a, b)
        if packets:
            land(at_us, a, b, packets)

    def _odd_ones_out(
        self,
        at_us: int,
        packets: list[bytes],
        counts: Counter[str],
        land: Land,
        a: Any,
        b: Any,
    ) -> list[bytes]:
        """Corrupt, double and hold back single packets; the rest stays a burst, the same list if
        that is all."""
        link, dice, rest, is_same = self.link, self.dice, [], True
        roll = dice.random
        corrupt_ppm, duplicate_ppm, hold_ppm, reorder_ppm = self._odds
        for packet in packets:
            if corrupt_ppm and roll() * _MILLION < corrupt_ppm:
                counts["corrupted"] += 1
                packet, is_same = corrupted(packet, dice), False
            if duplicate_ppm and roll() * _MILLION < duplicate_ppm:
                counts["duplicated"] += 1
                later_us = at_us + drawn_delay_us(link, dice)
                land(later_us, a, b, [packet])
            if hold_ppm and roll() * _MILLION < hold_ppm:
                counts["held_back_long"] += 1
                held_us = link.hold_us // 10 + int(roll() * (link.hold_us * 9 // 10))
                land(at_us + held_us, a, b, [packet])
                is_same = False
            elif reorder_ppm and roll() * _MILLION < reorder_ppm:
                counts["reordered"] += 1
                held_us = 1 + int(roll() * link.reorder_us)
                land(at_us + held_us, a, b, [packet])
                is_same = False
            else:
                rest.append(packet)
        return packets if is_same else rest


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
