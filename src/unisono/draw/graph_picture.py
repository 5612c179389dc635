"""A causal graph as SVG: a column a member, causes above what follows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from unisono.draw.causal import (
    CausalStory,
    DrawnComponent,
    DrawnVertex,
    Place,
    names_of,
    text_of_messages,
)
from unisono.draw.labels import DATA
from unisono.draw.layout import width_of
from unisono.draw.shapes import Point, arrow, capsule
from unisono.draw.svg import document, group, path, tag, words

COLUMN_PX: Final = 170
LEFT_PX: Final = 110
LEVEL_PX: Final = 44
TOP_PX: Final = 84
"""Above the first component."""
HEAD_PX: Final = 66
"""From a component's name to its first level."""
NODE_PX: Final = 9
"""Half the height of a vertex with messages."""
DOT_PX: Final = 4.0
"""The radius of an empty one."""
LINE_PX: Final = 17
WIDTH_PX_MIN: Final = 640

KEY: Final = (
    "An arrow leads from a vertex to one of another member that acknowledges it, where no vertex"
    " between them does.",
    "Bold: the order of delivery. In the capsules: the numbers of the sender's messages; a circle"
    " is an empty vertex.",
)


def graph_picture(story: CausalStory, title: str) -> str:
    nodes = sorted({name for each in story.components for name in names_of(each)})
    columns = {name: LEFT_PX + COLUMN_PX * at for at, name in enumerate(nodes)}
    parts: list[str] = []
    y = 0.0
    for component in story.components:
        drawn = _ComponentPicture(component, columns, y)
        parts += drawn.parts()
        y = drawn.bottom + 30
    body = tag("g", "\n".join(parts), transform=f"translate(0 {TOP_PX})")
    y += TOP_PX
    notes = [*KEY, *story.notes]
    below = [words(24, y + LINE_PX * at, note, "faint small") for at, note in enumerate(notes)]
    right = max(columns.values()) + COLUMN_PX / 2 + 30
    width = max(WIDTH_PX_MIN, right, *(width_of(note, 11) + 48 for note in notes))
    span = f"{(story.from_us - story.zero_us) / 1000:,.1f} to"
    head = [
        words(24, 30, title, "head"),
        words(24, 49, f"{span} {(story.to_us - story.zero_us) / 1000:,.1f} ms", "faint small"),
    ]
    name = f"Causal graph, causes above: {title}"
    return document(name, width, y + LINE_PX * len(notes), [*head, body, *below])


class _ComponentPicture:
    """One configuration."""

    def __init__(self, component: DrawnComponent, columns: dict[str, int], top: float) -> None:
        self._component = component
        self._top = top
        self._xs = [columns[name] for name in names_of(component)]
        levels = component.levels
        self._ys = {place: top + HEAD_PX + LEVEL_PX * level for place, level in levels.items()}
        self._vertices = {vertex.place: vertex for vertex in component.vertices}

    @property
    def bottom(self) -> float:
        return max(self._ys.values()) + NODE_PX

    def parts(self) -> Iterator[str]:
        component = self._component
        yield words(24, self._top, f"configuration {component.view}", "name")
        for name, x in zip(names_of(component), self._xs, strict=True):
            yield words(x, self._top + 30, name, "name", "middle")
        for vertex in component.vertices:
            yield from (self._edge(place, vertex) for place in component.edges[vertex.place])
        yield from map(self._vertex, component.vertices)

    def _at(self, place: Place) -> Point:
        return self._xs[place[0]], self._ys[place]

    def _reach(self, place: Place) -> float:
        return NODE_PX if self._vertices[place].messages else DOT_PX

    def _edge(self, place: Place, vertex: DrawnVertex) -> str:
        (x0, y0), (x1, y1) = self._at(place), self._at(vertex.place)
        start, end = (x0, y0 + self._reach(place)), (x1, y1 - self._reach(vertex.place) - 1)
        if place[0] == vertex.rank:
            return path(start, end, kind="hair")
        return group(f"packet {DATA}", "", [arrow(start, end)])

    def _vertex(self, vertex: DrawnVertex) -> str:
        x, y = self._at(vertex.place)
        name = names_of(self._component)[vertex.rank]
        acks = " ".join(map(str, vertex.acks))
        tooltip = f"{name}.{vertex.number} after {acks}\n{vertex.t_us / 1000:,.3f} ms"
        text = text_of_messages(vertex)
        if not vertex.messages:
            return group("mark", tooltip, [tag("circle", cx=x, cy=y, r=DOT_PX)])
        width = max(26.0, width_of(text) + 12)
        parts = [capsule(x, y, text, width)]
        order = self._component.order.get(vertex.place)
        if order is not None:
            parts.append(words(x + width / 2 + 5, y + 5, f"{order}", "name"))
        return group("mark view", tooltip, parts)
