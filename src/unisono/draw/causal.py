"""The causal graph of a history: what each burst acknowledges, as packet labels tell.

A label `vertex 0.5 in 93d1eb2d after 4 3 7 with 12-14` is the fifth burst of the first member of
the configuration whose view ends so. It follows the fourth of its own, the third of the second
member and the seventh of the third; its messages are 12 to 14 of its sender.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from unisono.draw.clocks import aligned
from unisono.draw.labels import runs
from unisono.draw.story import DrawRequest, interval_of
from unisono.errors import Misuse
from unisono.trace.history import History, life_of
from unisono.trace.record import Row

_VERTEX: Final = re.compile(
    r"\S+ (?P<rank>\d{1,9})\.(?P<index>\d{1,18})(?: \S+)?"
    r" in (?P<where>\S{1,64}) after (?P<acks>\d{1,18}(?: \d{1,18})*)"
    r"(?: with (?P<first>\d{1,18})(?:-(?P<last>\d{1,18}))?)?"
)

Place = tuple[int, int]
"""Rank and index."""


class DrawnVertex(NamedTuple):
    """A burst of one member."""

    rank: int
    number: int
    """1, 2, … in its configuration."""
    acks: tuple[int, ...]
    """By rank, the last that it follows."""
    messages: range
    """Their numbers; an empty burst shows that its sender is alive."""
    t_us: int

    @property
    def place(self) -> Place:
        return self.rank, self.number


@dataclass(slots=True)
class DrawnComponent:
    """The causal graph of one configuration, or the part of it that is drawn."""

    view: str
    members: tuple[str, ...]
    """By rank."""
    vertices: list[DrawnVertex]
    """Each after those that it follows."""
    edges: dict[Place, list[Place]] = field(default_factory=dict)
    """Those that a vertex follows directly, of those drawn."""
    order: dict[Place, int] = field(default_factory=dict)
    """The order in which a member delivered their messages: 1, 2, …"""

    @property
    def levels(self) -> dict[Place, int]:
        """The length of the longest path to each."""
        found: dict[Place, int] = {}
        for vertex in self.vertices:
            before = [found[place] for place in self.edges[vertex.place]]
            found[vertex.place] = max(before, default=-1) + 1
        return found


@dataclass(slots=True)
class CausalStory:
    components: list[DrawnComponent]
    """By time."""
    zero_us: int
    from_us: int
    to_us: int
    notes: list[str]


def causal_story_of(recorded: History, request: DrawRequest) -> CausalStory:
    history, _ = aligned(recorded)
    zero_us, from_us, to_us = interval_of(history, request)
    members = {row.view: row.members or () for row in history.rows if row.kind == "view"}
    found = [
        DrawnComponent(view or where, members.get(view, ()), vertices)
        for where, vertices in _vertices(history.rows).items()
        for view in (_view_named(members, where),)
    ]
    if not found:
        raise Misuse(
            "the trace has no acknowledgments: a causal graph is drawn of a trace of transis that"
            " was written with --detail"
        )
    story = CausalStory([], zero_us, from_us, to_us, [])
    left = request.packets_max
    for component in sorted(found, key=lambda each: each.vertices[0].t_us):
        total = len(component.vertices)
        component.vertices = _chosen(component, request, from_us, to_us)
        if len(component.vertices) > left:
            story.notes.append(
                f"{component.view}: the first {left:,} of {total:,} vertices are drawn."
            )
            del component.vertices[left:]
        left -= len(component.vertices)
        if component.vertices:
            component.edges = _edges(component)
            component.order = _order(component, history.rows)
            story.components.append(component)
    if not request.every:
        story.notes.append("Empty vertices that acknowledge no new messages are not drawn.")
    return story


def _vertices(rows: Iterable[Row]) -> dict[str, list[DrawnVertex]]:
    """By the end of the view's name, in a causal order."""
    found: dict[str, dict[Place, DrawnVertex]] = {}
    for row in rows:
        match = _VERTEX.fullmatch(row.detail or "") if row.kind == "packet_out" else None
        if match is None:
            continue
        first, last = int(match["first"] or 1), int(match["last"] or match["first"] or 0)
        acks = tuple(map(int, match["acks"].split()))
        vertex = DrawnVertex(
            int(match["rank"]), int(match["index"]), acks, range(first, last + 1), row.t_us
        )
        known = found.setdefault(match["where"], {})
        if vertex.rank >= len(acks) or acks[vertex.rank] >= vertex.number:
            continue  # Not what a member sends.
        if vertex.place not in known or known[vertex.place].t_us > row.t_us:
            known[vertex.place] = vertex
    # A vertex follows all that those before it follow, so its vector has a greater sum.
    by_sum = lambda vertex: (sum(vertex.acks), vertex.place)  # noqa: E731
    return {where: sorted(each.values(), key=by_sum) for where, each in found.items()}


def _view_named(views: Iterable[str], where: str) -> str:
    return next((view for view in views if view.endswith(f"-{where}")), "")


def _chosen(
    component: DrawnComponent, request: DrawRequest, from_us: int, to_us: int
) -> list[DrawnVertex]:
    names = [life.partition("#")[0] for life in component.members]
    latest: dict[int, Mapping[int, int]] = {}
    """By rank, the messages that its last vertex followed: by rank, the index."""
    talking: dict[int, list[int]] = {}
    """By rank, the indices of its vertices with messages."""
    for vertex in sorted(component.vertices, key=lambda vertex: vertex.place):
        if vertex.messages:
            talking.setdefault(vertex.rank, []).append(vertex.number)
    kept = []
    for vertex in component.vertices:
        follows = {
            rank: _last(talking[rank], ack)
            for rank, ack in enumerate(vertex.acks)
            if rank in talking and rank != vertex.rank
        }
        is_answer = follows != latest.get(vertex.rank, dict.fromkeys(follows, 0))
        latest[vertex.rank] = follows
        if not (vertex.messages or is_answer or request.every):
            continue
        known = not request.nodes or (names and names[vertex.rank] in request.nodes)
        if known and from_us <= vertex.t_us <= to_us:
            kept.append(vertex)
    return kept


def _last(indices: Sequence[int], upto: int) -> int:
    at = bisect_right(indices, upto)
    return indices[at - 1] if at else 0


def _edges(component: DrawnComponent) -> dict[Place, list[Place]]:
    """To those drawn that it follows, without those that another of them follows."""
    drawn: dict[int, list[int]] = {}
    for vertex in sorted(component.vertices, key=lambda vertex: vertex.place):
        drawn.setdefault(vertex.rank, []).append(vertex.number)
    acks = {vertex.place: vertex.acks for vertex in component.vertices}
    found: dict[Place, list[Place]] = {}
    for vertex in component.vertices:
        before = [
            (rank, _last(drawn[rank], ack))
            for rank, ack in enumerate(vertex.acks)
            if rank in drawn and _last(drawn[rank], ack)
        ]
        found[vertex.place] = [
            place
            for place in before
            if not any(acks[each][place[0]] >= place[1] for each in before if each != place)
        ]
    return found


def _order(component: DrawnComponent, rows: Iterable[Row]) -> dict[Place, int]:
    """Of the member that delivered the most of them."""
    of = {
        (component.members[vertex.rank], number): vertex.place
        for vertex in component.vertices
        if component.members
        for number in vertex.messages
    }
    orders: dict[str, dict[Place, int]] = {}
    for row in sorted(rows, key=lambda row: row.step):
        if row.kind == "deliver":
            place = of.get((f"{row.sender}#{row.sender_incarnation}", row.number or 0))
            if place is not None:
                order = orders.setdefault(life_of(row), {})
                order.setdefault(place, len(order) + 1)
    return max(orders.values(), key=len, default={})


def as_text(story: CausalStory) -> str:
    """A line a vertex: its place in the order, its messages, and what it follows directly."""
    lines: list[str] = []
    for component in story.components:
        names = names_of(component)
        lines += ["", f"{component.view}: {' '.join(component.members)}".rstrip()]
        for vertex in component.vertices:
            order = component.order.get(vertex.place, "")
            before = [f"{names[rank]}.{index}" for rank, index in component.edges[vertex.place]]
            messages = f" ({text_of_messages(vertex)})" if vertex.messages else ""
            what = f"{names[vertex.rank]}.{vertex.number}{messages}"
            after = f"  after {' '.join(before)}" if before else ""
            lines.append(f"{order:>6}  {what:<20}{after}".rstrip())
    return "\n".join([*lines[1:], *(["", *story.notes] if story.notes else [])]) + "\n"


def text_of_messages(vertex: DrawnVertex) -> str:
    return runs([(vertex.messages[0], vertex.messages[-1])]) if vertex.messages else ""


def names_of(component: DrawnComponent) -> list[str]:
    """By rank."""
    size = max(vertex.rank for vertex in component.vertices) + 1
    known = [life.partition("#")[0] for life in component.members]
    return [known[rank] if rank < len(known) else f"{rank}" for rank in range(size)]
