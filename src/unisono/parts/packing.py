"""Messages into packets: small ones side by side, large ones in fragments, and back again.

A *chunk* is what a packet carries whole: a small message, or one fragment of a large one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from unisono.model import Buffer

T = TypeVar("T")


def fragments(payload: Buffer, first_max: int, piece_max: int) -> list[memoryview]:
    """The payload in pieces, not copied: the first of at most `first_max` octets, the others of
    `piece_max`. An empty payload is one empty piece."""
    view = memoryview(payload)
    if len(view) <= first_max:
        return [view]
    rest = range(first_max, len(view), piece_max)
    return [view[:first_max], *(view[at : at + piece_max] for at in rest)]


def joined(pieces: Sequence[Buffer]) -> bytes:
    """The payload again, as the one copy that the application keeps."""
    return bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)


def packed(items: Iterable[tuple[T, int]], octets_max: int) -> Iterator[list[T]]:
    """Group items, each with its size, into loads of at most `octets_max`; order is kept.

    An item larger than a load travels alone.
    """
    load: list[T] = []
    room = octets_max
    for item, octets in items:
        if load and octets > room:
            yield load
            load, room = [], octets_max
        load.append(item)
        room -= octets
    if load:
        yield load
