"""Standard input and output beside an event loop: pipes, files and terminals alike.

Threads read and write the descriptors themselves, so that a blocked pipe never makes the member
silent, and a process can end while one of them is still blocked.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator
from queue import SimpleQueue
from typing import Any

from unisono.errors import TooLarge

BLOCK_BYTES = 1 << 16
STDIN, STDOUT = 0, 1


class StdoutWriter:
    """Writes to standard output, in order; `say` waits until it is written."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[bytes, asyncio.Future[None]]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def say(self, octets: bytes) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="stdout", daemon=True)
            self._thread.start()
        written = asyncio.get_running_loop().create_future()
        self._queue.put((octets, written))
        await written

    def _write(self) -> None:
        while True:
            octets, written = self._queue.get()
            error: OSError | None = None
            view = memoryview(octets)
            try:
                while view:
                    view = view[os.write(STDOUT, view) :]
            except OSError as failed:
                error = failed
            _tell(written, error)


class StdinReader:
    """The lines of standard input, in blocks. The next block is read when the last was taken."""

    def __init__(self, line_bytes_max: int) -> None:
        self._line_bytes_max = line_bytes_max
        self._part: list[bytes] = []
        self._part_bytes = 0
        self._line_count = 0

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        asks: SimpleQueue[asyncio.Future[bytes]] = SimpleQueue()
        threading.Thread(target=_read, args=(asks,), name="stdin", daemon=True).start()
        while True:
            arrived = asyncio.get_running_loop().create_future()
            asks.put(arrived)
            block = await arrived
            if not block:
                break
            lines, too_long = self._cut(block)
            if lines:
                yield lines
            if too_long:
                raise TooLarge(
                    f"line {self._line_count + 1} is over the group's limit"
                    f" message_bytes_max={self._line_bytes_max}: split it, or raise the limit"
                    " with --config"
                )
        if self._part_bytes:
            yield [b"".join(self._part)]

    def _cut(self, block: bytes) -> tuple[list[bytes], bool]:
        """Whole lines, up to one that is too long; what follows the last newline waits."""
        pieces = block.split(b"\n")
        lines: list[bytes] = []
        for piece in pieces[:-1]:
            line = b"".join((*self._part, piece)) if self._part else piece
            self._part, self._part_bytes = [], 0
            if len(line) > self._line_bytes_max:
                return lines, True
            lines.append(line)
            self._line_count += 1
        if pieces[-1]:
            self._part.append(pieces[-1])
            self._part_bytes += len(pieces[-1])
        return lines, self._part_bytes > self._line_bytes_max


def _read(asks: SimpleQueue[asyncio.Future[bytes]]) -> None:
    block = b"?"
    while block:
        arrived = asks.get()
        try:
            block = os.read(STDIN, BLOCK_BYTES)
        except OSError:  # closed, or a terminal that is not ours: nothing comes
            block = b""
        _tell(arrived, None, block)


def _tell(waiting: asyncio.Future[Any], error: OSError | None, value: Any = None) -> None:
    """Settle a future of the event loop from a thread."""

    def settle() -> None:
        if waiting.done():
            return
        if error is not None:
            waiting.set_exception(error)
        else:
            waiting.set_result(value)

    with contextlib.suppress(RuntimeError):  # the loop has ended
        waiting.get_loop().call_soon_threadsafe(settle)
