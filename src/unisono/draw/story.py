"""Selects what is drawn of a history: the interval, the nodes, a bounded number of packets."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from unisono.draw.clocks import aligned
from unisono.draw.flights import ARRIVED, Fate, Lifeline, Packet, Stray, traffic_of
from unisono.draw.labels import QUIET, brief, counted, parsed, together
from unisono.draw.marks import VIEWED, Mark, marks_of
from unisono.errors import Misuse
from unisono.trace.history import ALIVE, History, message_of

PACKETS_MAX: Final = 1500
MARKS_PER_PACKET: Final = 4
"""The bound of marks, as a multiple of that of packets."""
NEAR: Final = 3
"""A quiet packet is drawn within this many usual delays of another event."""
TOGETHER: Final = 4
"""Events within this fraction of the usual delay are drawn as one."""


AROUND_US: Final = 1000
"""What is drawn before and after a message that was asked for, at least."""


@dataclass(frozen=True, slots=True)
class DrawRequest:
    """What to draw. Times count from the first row of the history."""

    from_us: int | None = None
    to_us: int | None = None
    message: str = ""
    """Only from the sending to the last delivery of this message, `name:number` or
    `name#incarnation:number`, within those times."""
    nodes: tuple[str, ...] = ()
    """The columns, from left to right; all when empty."""
    packets_max: int = PACKETS_MAX
    every: bool = False
    """Draw all quiet packets."""
    without: tuple[str, ...] = ()
    """Packets to omit, by the first word of their label."""
    title: str = ""
    """Default: run, protocol and group."""


@dataclass(slots=True)
class Shot:
    """Packets of one kind sent together with the same fates: one set of arrows."""

    life: str
    step: int
    t_us: int
    category: str
    fates: list[Fate]
    packets: list[Packet]
    receivers: int = 0
    """Drawn or not."""

    @property
    def text(self) -> str:
        return together(brief(packet.label) for packet in self.packets)


@dataclass(slots=True)
class Story:
    columns: tuple[str, ...]
    lives: dict[str, Lifeline]
    marks: list[Mark]
    shots: list[Shot]
    strays: list[Stray]
    hidden_us: list[int]
    """The times of quiet packets that are not drawn, in order."""
    zero_us: int
    """The start of the history."""
    from_us: int
    to_us: int
    views: dict[str, str]
    """By life, its view at the start of the drawing."""
    traced: bool
    left_out: dict[str, int] = field(default_factory=dict)
    """Counts of what is not drawn, by reason."""
    notes: list[str] = field(default_factory=list)

    @property
    def packets(self) -> list[Packet]:
        return [packet for shot in self.shots for packet in shot.packets]


def story_of(recorded: History, request: DrawRequest) -> Story:
    history, moved = aligned(recorded)
    traffic = traffic_of(history)
    zero_us, from_us, to_us = interval_of(history, request)
    columns = _columns(traffic.lives.values(), request.nodes)
    lives = {key: life for key, life in traffic.lives.items() if life.node in columns}
    together_us = traffic.delay_us // TOGETHER
    mine = (row for row in history.rows if row.node in columns)
    marks = marks_of(mine, lives, _arrivals(traffic.packets), together_us)
    story = Story(
        columns=columns,
        lives={key: life for key, life in lives.items() if _meets(life, from_us, to_us)},
        marks=[mark for mark in marks if from_us <= mark.t_us <= to_us],
        shots=[],
        strays=[s for s in traffic.strays if s.life in lives and from_us <= s.t_us <= to_us],
        hidden_us=[],
        zero_us=zero_us,
        from_us=from_us,
        to_us=to_us,
        views=_views_at(marks, from_us),
        traced=traffic.traced,
    )
    if moved:
        story.notes.append(
            "Clocks disagreed and were shifted: "
            + ", ".join(f"{node} by {us / 1000:,.3f} ms" for node, us in sorted(moved.items()))
            + "."
        )
    if not traffic.traced:
        story.notes.append("Packets were not traced: messages are drawn, from send to delivery.")
    packets = _chosen(traffic.packets, story, request)
    if traffic.traced and not request.every:
        packets = _without_quiet(packets, story, NEAR * traffic.delay_us)
    packets = _bounded(packets, story, request.packets_max)
    story.shots = _shots(packets, story.lives, together_us)
    return story


def interval_of(history: History, request: DrawRequest) -> tuple[int, int, int]:
    """The start of the history, and the interval drawn."""
    zero_us = min(row.t_us for row in history.rows)
    last_us = max(row.t_us for row in history.rows)
    from_us = zero_us + (request.from_us or 0)
    to_us = last_us if request.to_us is None else zero_us + request.to_us
    if from_us > last_us:
        raise Misuse(
            f"nothing happens after {(from_us - zero_us) / 1000:g} ms:"
            f" the run lasts {(last_us - zero_us) / 1000:g} ms"
        )
    if from_us > to_us:
        raise Misuse("the interval ends before it begins: give the earlier time first")
    if request.message:
        first_us, last_us = _around(history, request.message)
        from_us, to_us = max(from_us, first_us), min(to_us, last_us)
        if from_us > to_us:
            raise Misuse(f"message {request.message} is not sent and delivered in the interval")
    return zero_us, from_us, to_us


def _around(history: History, message: str) -> tuple[int, int]:
    """From somewhat before a message is sent until somewhat after its last delivery."""
    times = [
        row.t_us
        for row in history.rows
        if row.kind in ("send", "deliver")
        and message in (message_of(row), f"{row.sender}:{row.number}")
    ]
    if not times:
        raise Misuse(
            f"no message {message!r} in this trace: write NAME:NUMBER or NAME#INCARNATION:NUMBER"
        )
    around_us = max(AROUND_US, (max(times) - min(times)) // 4)
    return min(times) - around_us, max(times) + around_us


def _arrivals(packets: Iterable[Packet]) -> dict[str, list[int]]:
    """By life, when packets arrived."""
    found: dict[str, list[int]] = {}
    for packet in packets:
        for fate in packet.fates:
            if fate.how == ARRIVED:
                found.setdefault(fate.life, []).append(fate.t_us)
    return {life: sorted(times) for life, times in found.items()}


def _columns(lives: Iterable[Lifeline], requested: tuple[str, ...]) -> tuple[str, ...]:
    known = sorted({life.node for life in lives}, key=_natural)
    for node in requested:
        if node not in known:
            raise Misuse(f"no node {node!r} in this trace: it has {', '.join(known)}")
    if len(set(requested)) < len(requested):
        raise Misuse(f"a node is named twice in {','.join(requested)!r}")
    return requested or tuple(known)


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """`n2` before `n10`."""
    return tuple(
        (int(part or 0), rest) for rest, part in re.findall(r"([^0-9]*)([0-9]{0,18})", name)
    )


def _meets(life: Lifeline, from_us: int, to_us: int) -> bool:
    return life.start_us <= to_us and (life.end_us >= from_us or life.end == ALIVE)


def _views_at(marks: Iterable[Mark], from_us: int) -> dict[str, str]:
    return {m.life: m.text for m in marks if m.kind == VIEWED and m.t_us < from_us}


# -- which packets -------------------------------------------------------------------------------


def _chosen(packets: Iterable[Packet], story: Story, request: DrawRequest) -> list[Packet]:
    """Those sent or received in the interval, between nodes that are drawn."""
    found, unwanted, elsewhere = [], 0, 0
    for packet in packets:
        ends = [packet.t_us, *(fate.t_us for fate in packet.fates if fate.how == ARRIVED)]
        if not any(story.from_us <= end <= story.to_us for end in ends):
            continue
        received = not packet.fates or any(fate.life in story.lives for fate in packet.fates)
        if packet.life not in story.lives or not received:
            elsewhere += 1
        elif packet.label.split(" ", 1)[0] in request.without:
            unwanted += 1
        else:
            found.append(packet)
    if unwanted:
        story.left_out["unwanted"] = unwanted
        story.notes.append(
            f"{counted(unwanted, 'packet')} not drawn: {', '.join(request.without)}."
        )
    if elsewhere:
        story.left_out["other nodes"] = elsewhere
        story.notes.append(f"{counted(elsewhere, 'packet')} from or to other nodes not drawn.")
    return found


def _without_quiet(packets: list[Packet], story: Story, near_us: int) -> list[Packet]:
    """Omit heartbeats and the like unless they are near another event."""
    busy = sorted(
        [mark.t_us for mark in story.marks]
        + [p.t_us for p in packets if p.category != QUIET]
        + [fate.t_us for p in packets if p.category != QUIET for fate in p.fates]
    )
    kept = []
    for packet in packets:
        if packet.category != QUIET or _is_near(busy, packet.t_us, near_us):
            kept.append(packet)
        else:
            story.hidden_us.append(packet.t_us)
    if not kept:  # nothing else happens
        story.hidden_us.clear()
        return packets
    if story.hidden_us:
        story.left_out["quiet"] = len(story.hidden_us)
        quiet = counted(len(story.hidden_us), "quiet packet")
        story.notes.append(f"{quiet} (heartbeats and the like) far from other events not drawn.")
    story.strays = [stray for stray in story.strays if _is_near(busy, stray.t_us, near_us)]
    return kept


def _is_near(busy: Sequence[int], t_us: int, near_us: int) -> bool:
    at = bisect_left(busy, t_us - near_us)
    return at < len(busy) and busy[at] <= t_us + near_us


def _bounded(packets: list[Packet], story: Story, packets_max: int) -> list[Packet]:
    """At most this many; the drawing ends before the next."""
    marks_max = packets_max * MARKS_PER_PACKET
    ends_us = [
        each[count].t_us
        for each, count in ((packets, packets_max), (story.marks, marks_max))
        if len(each) > count
    ]
    if not ends_us:
        return packets
    # Where all happens at once, at least the first are drawn.
    end_us = max(min(ends_us), story.from_us + 1)
    kept = [packet for packet in packets[:packets_max] if packet.t_us < end_us]
    later, marks = len(packets) - len(kept), sum(mark.t_us >= end_us for mark in story.marks)
    story.left_out["beyond the bound"] = later
    what = "packet" if story.traced else "message"
    story.notes.append(
        f"The drawing ends at {(end_us - story.zero_us) / 1000:,.3f} ms: {later:,} of"
        f" {counted(len(packets), what)} and {counted(marks, 'mark')} come later; at most"
        f" {counted(packets_max, what)} and {counted(marks_max, 'mark')} are drawn."
    )
    story.to_us = end_us - 1
    story.marks = [mark for mark in story.marks if mark.t_us < end_us]
    story.strays = [stray for stray in story.strays if stray.t_us < end_us]
    story.hidden_us = [t_us for t_us in story.hidden_us if t_us < end_us]
    story.lives = {
        key: life for key, life in story.lives.items() if _meets(life, story.from_us, story.to_us)
    }
    return kept


# -- packets drawn as one ------------------------------------------------------------------------


def _shots(packets: Iterable[Packet], lives: dict[str, Lifeline], together_us: int) -> list[Shot]:
    found: list[Shot] = []
    open_shots: dict[tuple[str, str, str, str, str], list[Shot]] = {}
    for packet in packets:
        label = parsed(brief(packet.label))
        fates = [fate for fate in packet.fates if fate.life in lives]
        key = (packet.life, packet.category, label.kind, label.stream, label.rest)
        recent = [
            shot for shot in open_shots.get(key, ()) if packet.t_us - shot.t_us <= together_us
        ]
        open_shots[key] = recent
        for shot in recent:
            if _same_fates(shot.fates, fates, together_us):
                shot.packets.append(packet)
                break
        else:
            shot = Shot(packet.life, packet.step, packet.t_us, packet.category, fates, [packet])
            shot.receivers = len(packet.fates)
            recent.append(shot)
            found.append(shot)
    for shot in found:
        shot.fates = sorted({*shot.fates, *_last_arrivals(shot)})
    return found


def _last_arrivals(shot: Shot) -> list[Fate]:
    """Of packets that arrived at different times, the first and the last are drawn."""
    last: dict[str, Fate] = {}
    for packet in shot.packets:
        for fate in packet.fates:
            if fate.how == ARRIVED:
                last[fate.life] = max(fate, last.get(fate.life, fate))
    drawn = {fate.life for fate in shot.fates}
    return [fate for fate in last.values() if fate.life in drawn]


def _same_fates(some: Sequence[Fate], others: Sequence[Fate], together_us: int) -> bool:
    return len(some) == len(others) and all(
        one.life == other.life
        and one.how == other.how
        and abs(one.t_us - other.t_us) <= together_us
        for one, other in zip(some, others, strict=True)
    )
