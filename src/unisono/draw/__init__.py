"""A history in, SVG out: a space-time diagram, one line per incarnation, or a causal graph."""

from __future__ import annotations

from typing import NamedTuple

from unisono.draw.causal import as_text, causal_story_of
from unisono.draw.flights import DAMAGED, LOST
from unisono.draw.graph_picture import graph_picture
from unisono.draw.labels import REPAIR
from unisono.draw.layout import layout_of
from unisono.draw.picture import picture
from unisono.draw.story import PACKETS_MAX, DrawRequest, story_of
from unisono.trace.history import History

__all__ = ["PACKETS_MAX", "DrawRequest", "Drawing", "GraphDrawing", "draw", "draw_graph"]


class Drawing(NamedTuple):
    """The SVG, and what is in it."""

    svg: str
    lives: int
    packets: int
    """Packets drawn; messages where packets were not traced."""
    lost: int
    """Deliveries of a packet to a receiver that were lost or damaged."""
    repairs: int
    traced: bool
    from_us: int
    to_us: int
    left_out: dict[str, int]
    notes: list[str]


class GraphDrawing(NamedTuple):
    """The SVG of a causal graph, the same as text, and what is in it."""

    svg: str
    text: str
    configurations: int
    vertices: int
    from_us: int
    to_us: int
    notes: list[str]


def draw_graph(history: History, request: DrawRequest | None = None) -> GraphDrawing:
    """The causal graph of a history, by what its members acknowledged."""
    request = request or DrawRequest()
    story = causal_story_of(history, request)
    return GraphDrawing(
        svg=graph_picture(story, request.title or _title(history)),
        text=as_text(story),
        configurations=len(story.components),
        vertices=sum(len(each.vertices) for each in story.components),
        from_us=story.from_us - story.zero_us,
        to_us=story.to_us - story.zero_us,
        notes=story.notes,
    )


def _title(history: History) -> str:
    return f"{history.run}: {history.protocol}, group {history.group}"


def draw(history: History, request: DrawRequest | None = None) -> Drawing:
    """The history as SVG. Equal histories and requests make equal bytes."""
    request = request or DrawRequest()
    story = story_of(history, request)
    packets = story.packets
    fates = [fate for packet in packets for fate in packet.fates if fate.life in story.lives]
    return Drawing(
        svg=picture(layout_of(story), request.title or _title(history)),
        lives=len(story.lives),
        packets=len(packets),
        lost=sum(fate.how in (LOST, DAMAGED) for fate in fates),
        repairs=sum(packet.category == REPAIR for packet in packets),
        traced=story.traced,
        from_us=story.from_us - story.zero_us,
        to_us=story.to_us - story.zero_us,
        left_out=story.left_out,
        notes=story.notes,
    )
