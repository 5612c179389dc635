"""Messages into packets: small ones side by side, large ones in fragments, and back again.

A *chunk* is what a packet carries whole: a small message, or one fragment of a large one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from typing import TypeVar

from unisono.model import Buffer

T = TypeVar("T")


def fragments(payload: Buffer, first_max: int, piece_max: int) -> list[memoryview]:
    """The payload in pieces, not copied: the first of at most `first_max` bytes, the others of
    `piece_max`. An empty payload is one empty piece."""
    view = memoryview(payload)
    if len(view) <= first_max:
        return [view]
    rest = range(first_max, len(view), piece_max)
    return [view[:first_max], *(view[at : at + piece_max] for at in rest)]


def joined(pieces: Sequence[Buffer]) -> bytes:
    """The payload again, as the one copy that the application keeps."""
    return bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)


def packed(items: Iterable[tuple[T, int]], bytes_max: int) -> Iterator[list[T]]:
    """Group items, each with its size, into loads of at most `bytes_max`; order is kept.

    An item larger than a load travels alone.
    """
    load: list[T] = []
    left = bytes_max
    for item, nbytes in items:
        if load and nbytes > left:
            yield load
            load, left = [], bytes_max
        load.append(item)
        left -= nbytes
    if load:
        yield load


def sliced(chunks: Iterable[Buffer], size: int) -> list[Buffer]:
    """The bytes of the chunks in slices of `size`, the last one shorter. Only a
    slice that spans several chunks is copied. No bytes are one empty slice."""
    slices: list[Buffer] = []
    rest: list[memoryview] = []
    missing = size
    for chunk in chunks:
        view = memoryview(chunk)
        at, end = 0, len(view)
        if rest:
            at = min(missing, end)
            rest.append(view[:at])
            missing -= at
            if missing:
                continue
            slices.append(b"".join(rest))
            rest, missing = [], size
        whole = at + (end - at) // size * size
        slices.extend(view[i : i + size] for i in range(at, whole, size))
        if whole < end:
            rest.append(view[whole:])
            missing = size - (end - whole)
    if rest or not slices:
        slices.append(rest[0] if len(rest) == 1 else b"".join(rest))
    return slices


def pour(slices: list[Buffer], start: int, lengths: Iterable[int]) -> list[bytes]:
    """Payloads of these lengths from the slices, from offset `start` on; the caller checks that
    they suffice. Each byte is copied once and its slice emptied, so a large payload is never in
    memory twice."""
    payloads: list[bytes] = []
    index = 0
    while start and start >= len(slices[index]):
        start -= len(slices[index])
        slices[index] = b""
        index += 1
    for length in lengths:
        whole = BytesIO()
        while length:
            part = memoryview(slices[index])[start : start + length]
            whole.write(part)
            length -= len(part)
            start += len(part)
            if start == len(slices[index]):
                slices[index] = b""
                index, start = index + 1, 0
        payloads.append(whole.getvalue())
    return payloads
