"""The feed's door: bounds, ranges, status, and rows for the group, over TCP.

Reads of the log happen in threads, so that the member beside them goes on answering its group; a
reader that is slow holds up nobody but itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from unisono.errors import BadPacket, Misuse, Stopped, UnisonoError
from unisono.feed import protocol, rows
from unisono.feed.protocol import FeedFrameKind, Refusal
from unisono.feed.sound import BadRows, read_batch
from unisono.log import LogBounds, LogReader, Trimmed

READERS_COUNT_MAX: Final = 256
"""Connections; one more is told to come later."""
THREADS: Final = 4
QUERY_MAX: Final = 1024
IDLE_S: Final = 600.0
"""Who asks nothing for so long is shut out, and may connect again."""
ASKING_S: Final = 60.0
"""A frame that has begun must have come within so long."""
SILENT_S: Final = 120.0
"""A reader that takes nothing for so long is shut out."""
GOODBYE_S: Final = 2.0
"""Who was turned away may take so long to read why. As many may do so at once as may read."""

log = logging.getLogger("unisono.feed")

Take = Callable[[str, int, int, int, list[bytes]], Awaitable[int]]


class Server:
    """Serves one log. `take` is told a writer's rows and returns when they are in the log."""

    def __init__(
        self,
        directory: str,
        bounds: Callable[[], LogBounds],
        status: Callable[[], dict[str, Any]],
        take: Take,
    ) -> None:
        self._directory = directory
        self._bounds = bounds
        self._status = status
        self._take = take
        self._threads = ThreadPoolExecutor(THREADS, "feed")
        self._server: asyncio.Server | None = None
        self._talks: set[asyncio.Task[None]] = set()
        self.readers_count = 0
        self.counts: Counter[str] = Counter()

    async def open(self, host: str, port: int) -> int:
        """Listen; returns the port, which is a free one where 0 was asked for."""
        try:
            self._server = await asyncio.start_server(self._met, host, port, backlog=256)
        except OSError as error:
            reason = error.strerror or str(error)
            raise Misuse(f"cannot listen at {host}:{port}: {reason}") from None
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._talks:
            task.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)
        self._threads.shutdown(wait=True, cancel_futures=True)

    # -- one connection ---------------------------------------------------------------------------

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._talks.add(task)
        self.counts["connections"] += 1
        try:
            if self.readers_count < READERS_COUNT_MAX:
                await self._serve(reader, writer)
            else:
                await self._turn_away(reader, writer)
        except BadPacket as error:
            self.counts[f"drop.{error.reason}"] += 1
            log.info("a reader said what is no asking: %s", error.reason)
        except (OSError, EOFError, TimeoutError):
            self.counts["broken"] += 1
        except asyncio.CancelledError:
            pass  # the feed ends
        finally:
            self._talks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.readers_count += 1
        talk_with = _Talk(self, reader, writer)
        try:
            await talk_with.run()
        finally:
            self.readers_count -= 1
            talk_with.close()

    async def _turn_away(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Say why, and hang up when it has hung up or its time is over: hanging up on what it is
        still asking would break the connection before it has read the answer."""
        self.counts["drop.busy"] += 1
        writer.write(protocol.refusal(Refusal.BUSY, "too many readers: come again"))
        writer.write_eof()
        if len(self._talks) <= 2 * READERS_COUNT_MAX:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE_S):
                    while await reader.read(protocol.ASK_BYTES_MAX):
                        pass

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)


class _Talk:
    """What one connection asks, one thing after the other."""

    def __init__(
        self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._log: LogReader | None = None

    def close(self) -> None:
        if self._log is not None:
            self._log.close()

    async def run(self) -> None:
        async with asyncio.timeout(ASKING_S):
            if await self._reader.readexactly(len(protocol.HELLO)) != protocol.HELLO:
                raise BadPacket("foreign")
        while True:
            try:
                async with asyncio.timeout(IDLE_S):
                    start = await self._reader.readexactly(protocol.FRONT_BYTES)
            except (asyncio.IncompleteReadError, TimeoutError):
                return
            asked = protocol.said(
                await self._body(start, FeedFrameKind.ASK, protocol.ASK_BYTES_MAX)
            )
            try:
                await self._answer(asked)
            except BadPacket:
                raise
            except Misuse as error:
                await self._say(protocol.refusal(Refusal.MISUSE, str(error)))
            except Trimmed as gone:
                more = {"first": gone.first, "begins": gone.begins}
                await self._say(protocol.refusal(Refusal.TRIMMED, str(gone), **more))
            except Stopped as stop:
                await self._say(protocol.refusal(Refusal.AWAY, stop.reason))
            except UnisonoError as error:
                log.error("%s", error)
                await self._say(protocol.refusal(Refusal.BROKEN, str(error)))

    async def _body(self, start: bytes, kind: FeedFrameKind, bytes_max: int) -> bytes:
        its_kind, length = protocol.front_read(start, bytes_max)
        if its_kind is not kind:
            raise BadPacket("kind")
        async with asyncio.timeout(ASKING_S):
            return await self._reader.readexactly(length)

    async def _say(self, *parts: bytes) -> None:
        self._writer.writelines(parts)
        async with asyncio.timeout(SILENT_S):
            await self._writer.drain()

    async def _answer(self, asked: dict[str, Any]) -> None:
        what = asked.get("do")
        if what == "bounds":
            await self._say(protocol.told(FeedFrameKind.ANSWER, **self._known()))
        elif what == "status":
            await self._say(protocol.told(FeedFrameKind.ANSWER, **self._server._status()))
        elif what == "read":
            await self._range(protocol.number(asked, "after"), protocol.number(asked, "upto"))
        elif what == "rows":
            await self._rows(asked)
        else:
            raise Misuse(f"a feed knows bounds, read, rows and status, not {what!r}")

    def _known(self) -> dict[str, Any]:
        first, end, last = self._server._bounds()
        status = self._server._status()
        keys = ("group", "life", "stretches", "opening")
        return {"first": first, "end": end, "last": last} | {key: status[key] for key in keys}

    # -- ranges -----------------------------------------------------------------------------------

    async def _range(self, after: int, upto: int) -> None:
        end = self._server._bounds().end
        if upto > end:
            text = f"the feed has come to place {end}, not to {upto} yet"
            await self._say(protocol.refusal(Refusal.AHEAD, text, end=end))
            return
        if self._log is None:
            self._log = await self._server._in_thread(LogReader, self._server._directory)
        at = after + 1
        while at <= upto:
            frames, at = await self._server._in_thread(page, self._log, at, upto)
            await self._say(*frames)
            self._server.counts["batches_sent"] += len(frames) // 2
        await self._say(protocol.told(FeedFrameKind.END, upto=upto))

    # -- intake -----------------------------------------------------------------------------------

    async def _rows(self, asked: dict[str, Any]) -> None:
        """Rows for the group, said once whatever is repeated."""
        start = await self._reader.readexactly(protocol.FRONT_BYTES)
        body = await self._body(start, FeedFrameKind.ROWS, protocol.ROWS_BYTES_MAX)
        query = asked.get("query")
        if not isinstance(query, str) or not 0 < len(query) <= QUERY_MAX or not query.isprintable():
            raise Misuse(f"a writer names its query, in at most {QUERY_MAX} characters")
        partition = protocol.number(asked, "partition", most=(1 << 32) - 1)
        epoch, first_row = protocol.number(asked, "epoch"), protocol.number(asked, "first_row")
        try:
            batch = read_batch(body, protocol.INTAKE, protocol.ROWS_BYTES_MAX)
        except BadRows as error:
            self._server.counts["drop.rows"] += 1
            raise Misuse(str(error)) from None
        if batch.num_rows > protocol.ROWS_COUNT_MAX or batch.column(0).null_count:
            self._server.counts["drop.rows"] += 1
            raise Misuse(f"at most {protocol.ROWS_COUNT_MAX} rows at once, and none of them null")
        payloads = batch.column(0).to_pylist()
        place = await self._server._take(query, partition, epoch, first_row, payloads)
        with contextlib.suppress(ConnectionError):
            await self._say(protocol.told(FeedFrameKind.ANSWER, place=place, rows=len(payloads)))


def page(log: LogReader, at: int, upto: int) -> tuple[list[bytes], int]:
    """Some of the range as frames, and the place that comes after them."""
    frames: list[bytes] = []
    for batch in log.page(at, upto):
        blob = batch.blob
        if batch.first < at or batch.last > upto:
            blob = rows.encoded(rows.cut(rows.decoded(blob), at - 1, upto))
        frames += (protocol.front(FeedFrameKind.ROWS, len(blob)), blob)
        at = batch.last + 1
    if not frames:
        raise BadRows(f"the log lacks place {at}, which it should have")
    return frames, at
