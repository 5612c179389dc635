"""Space-time diagrams: a history in, SVG out. One line per incarnation, time downward."""

from __future__ import annotations

from typing import NamedTuple

from unisono.draw.flights import DAMAGED, LOST
from unisono.draw.labels import REPAIR
from unisono.draw.layout import layout_of
from unisono.draw.picture import picture
from unisono.draw.story import PACKETS_MAX, DrawRequest, story_of
from unisono.trace.history import History

__all__ = ["PACKETS_MAX", "DrawRequest", "Drawing", "draw"]


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


def draw(history: History, request: DrawRequest | None = None) -> Drawing:
    """The history as SVG. Equal histories and requests make equal bytes."""
    request = request or DrawRequest()
    story = story_of(history, request)
    title = request.title or f"{history.run}: {history.protocol}, group {history.group}"
    packets = story.packets
    fates = [fate for packet in packets for fate in packet.fates if fate.life in story.lives]
    return Drawing(
        svg=picture(layout_of(story), title),
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
