"""Standard input and output beside an event loop, for pipes, files and terminals.

Threads read and write the descriptors, so that a blocked pipe never blocks the member, and the
process can end while one of them is blocked.
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
    """Writes to standard output, in order; `write` returns when it is written."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[bytes, asyncio.Future[None]]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def write(self, data: bytes) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_all, name="stdout", daemon=True)
            self._thread.start()
        written = asyncio.get_running_loop().create_future()
        self._queue.put((data, written))
        await written

    def _write_all(self) -> None:
        while True:
            data, written = self._queue.get()
            error: OSError | None = None
            view = memoryview(data)
            try:
                while view:
                    view = view[os.write(STDOUT, view) :]
            except OSError as failed:
                error = failed
            _settle(written, error)


class StdinReader:
    """The lines of standard input, in blocks; a block is read when the last one was taken."""

    def __init__(self, line_bytes_max: int) -> None:
        self._line_bytes_max = line_bytes_max
        self._part: list[bytes] = []
        self._part_bytes = 0
        self._line_count = 0

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        requests: SimpleQueue[asyncio.Future[bytes]] = SimpleQueue()
        threading.Thread(target=_read, args=(requests,), name="stdin", daemon=True).start()
        while True:
            arrived = asyncio.get_running_loop().create_future()
            requests.put(arrived)
            block = await arrived
            if not block:
                break
            lines, too_long = self._lines_of(block)
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

    def _lines_of(self, block: bytes) -> tuple[list[bytes], bool]:
        """Whole lines, and whether one is too long; the rest after the last newline is kept."""
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


def _read(requests: SimpleQueue[asyncio.Future[bytes]]) -> None:
    block = b"?"
    while block:
        arrived = requests.get()
        try:
            block = os.read(STDIN, BLOCK_BYTES)
        except OSError:  # closed, or a terminal of another process group
            block = b""
        _settle(arrived, None, block)


def _settle(waiting: asyncio.Future[Any], error: OSError | None, value: Any = None) -> None:
    """Resolve a future of the event loop from a thread."""

    def settle() -> None:
        if waiting.done():
            return
        if error is not None:
            waiting.set_exception(error)
        else:
            waiting.set_result(value)

    with contextlib.suppress(RuntimeError):  # the loop has ended
        waiting.get_loop().call_soon_threadsafe(settle)
