"""Matches sendings with arrivals by digest, and finds what was lost."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low
from typing import Final, NamedTuple

from unisono.draw.labels import DATA, REPAIR, category, named, owners, parsed
from unisono.trace.history import ALIVE, History, life_of, message_of, sender_of
from unisono.trace.record import Row

ARRIVED: Final = "arrived"
AGAIN: Final = "again"
"""A duplicate."""
LOST: Final = "lost"
DAMAGED: Final = "damaged"
"""It arrived altered."""
ABSENT: Final = "absent"
"""The receiver ended before it could arrive."""
UNDER_WAY: Final = "under way"
"""The trace ends before it could arrive."""

EVERYONE: Final = "*"
PATIENCE: Final = 4
"""A packet is lost after this many times the usual delay."""
EQUAL_MAX: Final = 64
"""Equal packets considered for an arrival."""
DELAY_US: Final = 500
"""The usual delay where nothing ever arrived."""


@dataclass(frozen=True, slots=True)
class Lifeline:
    """The line of an incarnation."""

    key: str
    node: str
    name: str
    """The node's name, with a prime per earlier incarnation."""
    start_us: int
    end_us: int
    """Its end, or its last row."""
    end: str
    """As in `trace.history`: alive, left, stopped, crashed or vanished."""


class Fate(NamedTuple):
    """What became of a packet for one receiver."""

    life: str
    t_us: int
    """When it arrived, or should have."""
    how: str


@dataclass(slots=True)
class Packet:
    """A sent packet, with its fate at each receiver."""

    life: str
    step: int
    t_us: int
    label: str
    category: str
    size: int
    fates: list[Fate] = field(default_factory=list)
    peers: set[str] = field(default_factory=set)

    def reached(self, life: str) -> bool:
        return any(fate.life == life for fate in self.fates)


class Stray(NamedTuple):
    """An arrival without a sending: damaged, or from outside."""

    life: str
    step: int
    t_us: int
    label: str
    peer: str


@dataclass(slots=True)
class Traffic:
    lives: dict[str, Lifeline]
    """By node, then incarnation."""
    packets: list[Packet]
    """By time."""
    strays: list[Stray]
    delay_us: int
    """The usual delay."""
    traced: bool
    """Whether packets were traced; else `packets` are messages, from send to delivery."""


def traffic_of(history: History) -> Traffic:
    ordered = sorted(history.rows, key=lambda row: (row.t_us, row.node, row.incarnation, row.step))
    lives = lives_of(history, ordered)
    if not any(row.kind == "packet_out" for row in ordered):
        packets = _messages(ordered, lives)
        return Traffic(lives, packets, [], _usual(packets), False)
    return _Matching(ordered, lives).traffic()


# -- lives ---------------------------------------------------------------------------------------


def lives_of(history: History, ordered: Sequence[Row]) -> dict[str, Lifeline]:
    """By node, then incarnation."""
    spans: dict[str, tuple[int, int]] = {}
    ends: dict[str, int] = {}
    for row in ordered:
        key = life_of(row)
        spans[key] = (spans.get(key, (row.t_us, 0))[0], row.t_us)
        if row.kind in ("leave", "crash"):
            ends.setdefault(key, row.t_us)
    found: dict[str, Lifeline] = {}
    counts: dict[str, int] = {}
    for life in sorted(history.lives.values(), key=lambda life: (life.node, life.incarnation)):
        key, node = life.key, life.node
        before = counts[node] = counts.get(node, -1) + 1
        name = node + ("′" * before if before < 4 else f"′{before}")
        start_us, last_us = spans[key]
        found[key] = Lifeline(key, node, name, start_us, ends.get(key, last_us), life.end)
    return found


# -- packets -------------------------------------------------------------------------------------


class _Matching:
    """Collects sendings, assigns each arrival to one, then finds the receivers left without."""

    def __init__(self, ordered: Sequence[Row], lives: dict[str, Lifeline]) -> None:
        self._lives = lives
        self._end_us = ordered[-1].t_us
        self._addresses: dict[str, str] = {}
        """Nodes by address."""
        self._by_digest: dict[int, list[Packet]] = {}
        self._by_node: dict[tuple[int, str], list[Packet]] = {}
        """By digest and sending node."""
        self._strays: list[Stray] = []
        self.packets = self._sendings(ordered)
        self._learn_addresses(ordered)
        self._patience_us = PATIENCE * self._first_guess(ordered)
        for row in ordered:
            if row.kind == "packet_in":
                self._arrive(row)

    def traffic(self) -> Traffic:
        delays = _link_delays(self.packets)
        usual_us = _usual(self.packets)
        for packet in self.packets:
            self._miss(packet, delays, usual_us)
        self._find_damaged()
        for packet in self.packets:
            packet.fates.sort()
        self._name()
        _mark_repairs(self.packets)
        return Traffic(self._lives, self.packets, self._strays, usual_us, True)

    def _sendings(self, ordered: Sequence[Row]) -> list[Packet]:
        """Rows of one packet to several peers are one sending."""
        found: list[Packet] = []
        last: dict[tuple[str, int], Packet] = {}
        for row in ordered:
            if row.kind != "packet_out" or row.digest is None:
                continue
            life, peer = life_of(row), row.peer or EVERYONE
            before = last.get((life, row.digest))
            if before is not None and before.t_us == row.t_us and peer not in before.peers:
                before.peers.add(peer)
                continue
            label = row.detail or ""
            kind = category(label, row.protocol)
            packet = Packet(life, row.step, row.t_us, label, kind, row.size or 0)
            packet.peers.add(peer)
            last[life, row.digest] = packet
            found.append(packet)
            self._by_digest.setdefault(row.digest, []).append(packet)
            self._by_node.setdefault((row.digest, row.node), []).append(packet)
        return found

    def _learn_addresses(self, ordered: Sequence[Row]) -> None:
        """From a join its own address; else from an arrival that only one node sent."""
        for row in ordered:
            if row.kind == "join" and row.peer:
                self._addresses[row.peer] = row.node
        for row in ordered:
            if row.kind == "packet_in" and row.peer and row.peer not in self._addresses:
                senders = {packet.life for packet in self._by_digest.get(row.digest or 0, ())}
                if len(senders) == 1:
                    self._addresses[row.peer] = self._lives[senders.pop()].node

    def _arrive(self, row: Row) -> None:
        here = life_of(row)
        packet = self._sending_of(row, here)
        if packet is None:
            origin = self._addresses.get(row.peer or "", row.peer or "")
            self._strays.append(Stray(here, row.step, row.t_us, row.detail or "", origin))
        elif packet.life != here:
            how = AGAIN if packet.reached(here) else ARRIVED
            packet.fates.append(Fate(here, row.t_us, how))

    def _first_guess(self, ordered: Sequence[Row]) -> int:
        """The usual delay of packets that were sent only once."""
        delays = []
        for row in ordered:
            if row.kind == "packet_in":
                sendings = self._by_digest.get(row.digest or 0, ())
                if len(sendings) == 1 and row.t_us > sendings[0].t_us:
                    delays.append(row.t_us - sendings[0].t_us)
        return median_low(delays) if delays else DELAY_US

    def _sending_of(self, row: Row, here: str) -> Packet | None:
        """Equal packets may be sent often. A link mostly keeps its order, so choose the first
        recent one not received here; else a recent one as a duplicate; else an older one; else,
        where clocks disagree, the first of all."""
        node = self._addresses.get(row.peer or "")
        if node is None:
            sendings = self._by_digest.get(row.digest or 0, [])
        else:
            sendings = self._by_node.get((row.digest or 0, node), [])
        now = bisect_right(sendings, row.t_us, key=_when)
        recent = bisect_right(sendings, row.t_us - self._patience_us - 1, 0, now, key=_when)
        for some in (sendings[recent:now], sendings[max(0, now - EQUAL_MAX) : now][::-1]):
            meant = [each for each in some if self._meant(each, row)]
            if meant:
                latest = max(meant, key=_when)
                return next((each for each in meant if not each.reached(here)), latest)
        return next((each for each in sendings[now:] if self._meant(each, row)), None)

    def _meant(self, packet: Packet, row: Row) -> bool:
        """Whether it was addressed to the row's node, as far as addresses are known."""
        return any(
            peer == EVERYONE or self._addresses.get(peer, row.node) == row.node
            for peer in packet.peers
        )

    def _miss(self, packet: Packet, delays: Mapping[tuple[str, str], int], usual_us: int) -> None:
        """Add the fates of receivers that it did not reach."""
        reached = {fate.life for fate in packet.fates}
        for life in self._receivers(packet):
            if life.key in reached:
                continue
            takes_us = delays.get((packet.life, life.key), usual_us)
            due_us = packet.t_us + takes_us
            late_us = packet.t_us + PATIENCE * takes_us
            how = LOST
            if life.end != ALIVE and life.end_us <= late_us:
                how = ABSENT
            elif self._end_us <= late_us:
                how = UNDER_WAY
            packet.fates.append(Fate(life.key, due_us, how))

    def _receivers(self, packet: Packet) -> list[Lifeline]:
        """The incarnations that were alive when it was sent."""
        there = [
            life
            for life in self._lives.values()
            if life.start_us <= packet.t_us
            and (packet.t_us <= life.end_us or life.end == ALIVE)
            and life.key != packet.life
        ]
        if EVERYONE in packet.peers:
            return there
        nodes = {self._addresses.get(peer, "") for peer in packet.peers}
        return [life for life in there if life.node in nodes]

    def _find_damaged(self) -> None:
        """A packet lost on a link just before a stray arrived by it is that stray."""
        lost: dict[tuple[str, str], list[Packet]] = {}
        for packet in self.packets:
            for fate in packet.fates:
                if fate.how == LOST:
                    node = self._lives[packet.life].node
                    lost.setdefault((node, fate.life), []).append(packet)
        strays = []
        for stray in self._strays:
            waiting = lost.get((stray.peer, stray.life), [])
            at = bisect_right(waiting, stray.t_us, key=_when) - 1
            if at < 0 or waiting[at].t_us < stray.t_us - self._patience_us:
                strays.append(stray)
                continue
            packet = waiting.pop(at)
            packet.fates = [fate for fate in packet.fates if fate[::2] != (stray.life, LOST)]
            packet.fates.append(Fate(stray.life, stray.t_us, DAMAGED))
        self._strays = strays

    def _name(self) -> None:
        keys = owners((packet.life, packet.label) for packet in self.packets)
        names = {key: self._lives[life].name for key, life in keys.items()}
        for packet in self.packets:
            packet.label = named(packet.label, names)
        self._strays = [stray._replace(label=named(stray.label, names)) for stray in self._strays]


def _when(packet: Packet) -> int:
    return packet.t_us


def _mark_repairs(packets: Iterable[Packet]) -> None:
    """Data sent before to some of the same receivers is a repair."""
    sent: dict[tuple[str, str, int], list[tuple[int, set[str]]]] = {}
    for packet in packets:
        if packet.category != DATA:
            continue
        each = parsed(packet.label)
        if each.first is None or each.last is None:
            continue
        to = {fate.life for fate in packet.fates} | (packet.peers & {EVERYONE})
        # The ends suffice: a repeated run repeats its ends.
        ends = [(each.kind, each.stream, number) for number in {each.first, each.last}]
        if all(_was_sent(sent.get(end, []), packet.t_us, to) for end in ends):
            packet.category = REPAIR
        for number in range(each.first, min(each.last, each.first + 1000) + 1):
            sent.setdefault((each.kind, each.stream, number), []).append((packet.t_us, to))


def _was_sent(earlier: list[tuple[int, set[str]]], t_us: int, to: set[str]) -> bool:
    return any(before_us < t_us and to & others for before_us, others in earlier)


def _messages(ordered: Sequence[Row], lives: Mapping[str, Lifeline]) -> list[Packet]:
    """Each message as a packet from its sender to those that delivered it."""
    sent: dict[str, Packet] = {}
    for row in ordered:
        if row.kind == "send" and message_of(row) not in sent:
            label = f"{DATA} {lives[life_of(row)].name}.{row.number}"
            sent[message_of(row)] = Packet(
                life_of(row), row.step, row.t_us, label, DATA, row.size or 0
            )
    for row in ordered:
        packet = sent.get(message_of(row)) if row.kind == "deliver" else None
        if packet is not None and life_of(row) != sender_of(row):
            packet.fates.append(Fate(life_of(row), row.t_us, ARRIVED))
    return list(sent.values())


# -- delays --------------------------------------------------------------------------------------


def _usual(packets: Iterable[Packet]) -> int:
    delays = [
        fate.t_us - packet.t_us
        for packet in packets
        for fate in packet.fates
        if fate.how == ARRIVED and fate.t_us > packet.t_us
    ]
    return median_low(delays) if delays else DELAY_US


def _link_delays(packets: Iterable[Packet]) -> dict[tuple[str, str], int]:
    """By sender and receiver, the usual delay."""
    delays: dict[tuple[str, str], list[int]] = {}
    for packet in packets:
        for fate in packet.fates:
            if fate.how == ARRIVED and fate.t_us > packet.t_us:
                delays.setdefault((packet.life, fate.life), []).append(fate.t_us - packet.t_us)
    return {link: median_low(each) for link, each in delays.items()}
