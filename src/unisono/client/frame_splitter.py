"""A stream of bytes, split into frames."""

from __future__ import annotations

from collections.abc import Iterator

from unisono.client.frames import FRONT, FRONT_BYTES
from unisono.errors import BadPacket


class FrameSplitter:
    """Splits a stream of bytes into frames; frames beyond the bound are refused."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._rest = bytearray()
        self._needed = 0

    def allow(self, bytes_max: int) -> None:
        """The bound from the next frame on."""
        self._bytes_max = bytes_max

    def feed(self, data: bytes) -> Iterator[tuple[int, memoryview]]:
        """Kind and body of each frame that is complete. The bound may change between two."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return
            # Frames are views of this buffer, so it is never resized again.
            whole = memoryview(self._rest)
            self._rest = bytearray()
        else:
            whole = memoryview(data)
        at, end = 0, len(whole)
        while end - at >= FRONT_BYTES:
            (length, kind), body = FRONT.read(whole, at)
            if not 1 <= length <= self._bytes_max:
                raise BadPacket("frame_length")
            after = at + 4 + length
            if after > end:
                self._needed = 4 + length
                break
            yield kind, whole[body:after]
            at = after
        else:
            self._needed = FRONT_BYTES
        self._rest = bytearray(whole[at:])
