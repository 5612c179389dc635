"""The feed's TCP server: bounds, ranges, status, and rows for the group.

The log is read in threads, so that the member keeps up with its group; a slow reader delays no
other.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from unisono.errors import BadPacket, Misuse, Stopped, UnisonoError
from unisono.feed import protocol, rows
from unisono.feed.access import HANDSHAKE_S
from unisono.feed.protocol import FeedFrameKind, Refusal
from unisono.feed.untrusted_arrow import BadRows, read_batch
from unisono.log import BadBatch, LogBounds, LogReader, Trimmed

READERS_COUNT_MAX: Final = 256
"""Connections; further ones are refused as busy."""
THREADS: Final = 4
QUERY_MAX: Final = 1024
IDLE_S: Final = 600.0
"""A connection without a request for this long is closed."""
ARRIVING_BYTES_MAX: Final = 256 << 20
"""Of all frames that have begun; beyond, one that begins is refused as busy."""
REQUEST_S: Final = 60.0
"""A frame that has begun must be complete within this time."""
SILENT_S: Final = 120.0
"""A client that reads nothing for this long is disconnected."""
GOODBYE_S: Final = 2.0
"""How long a refused client may take to read the reason; at most READERS_COUNT_MAX at once."""

log = logging.getLogger("unisono.feed")

Take = Callable[[str, int, int, int, list[bytes]], Awaitable[int]]


@dataclass(eq=False)
class Server:
    """Serves one log. `_take` multicasts a writer's rows and returns when they are logged."""

    _directory: str
    _bounds: Callable[[], LogBounds]
    _status: Callable[[], dict[str, Any]]
    _take: Take
    _set_aside: Callable[[int], Awaitable[None]]
    """Called with the first offset of a damaged batch."""
    _token: str = ""
    """What a client states first; empty if anybody may connect."""
    _tls: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "feed")
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.readers_count = 0
        self.arriving_bytes = 0
        """Of frames that have begun and are not complete."""
        self.counts: Counter[str] = Counter()

    async def open(self, host: str, port: int) -> int:
        """Listen; returns the port, a free one if 0 was given."""
        try:
            self._server = await asyncio.start_server(
                self._accepted,
                host,
                port,
                backlog=256,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_S if self._tls else None,
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise Misuse(f"cannot listen at {host}:{port}: {reason}") from None
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self._threads.shutdown(wait=True, cancel_futures=True)

    # -- one connection ---------------------------------------------------------------------------

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.counts["connections"] += 1
        try:
            if self.readers_count < READERS_COUNT_MAX:
                await self._serve(reader, writer)
            else:
                await self._refuse_busy(reader, writer)
        except BadPacket as error:
            self.counts[f"drop.{error.reason}"] += 1
            log.info("bad request: %s", error.reason)
        except (OSError, EOFError, TimeoutError):
            self.counts["broken"] += 1
        except asyncio.CancelledError:
            pass  # The feed is closing.
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.readers_count += 1
        connection = _Connection(self, reader, writer)
        try:
            await connection.run()
        finally:
            self.readers_count -= 1
            connection.close()

    async def _refuse_busy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Reply that the feed is busy, and close once the client has closed or GOODBYE_S is over:
        closing while it still sends would reset the connection before it has read the reply."""
        self.counts["drop.busy"] += 1
        writer.write(protocol.refusal(Refusal.BUSY, "too many readers: try again later"))
        if writer.can_write_eof():  # TLS cannot.
            writer.write_eof()
        if len(self._connections) <= 2 * READERS_COUNT_MAX:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE_S):
                    while await reader.read(protocol.REQUEST_BYTES_MAX):
                        pass

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)


@dataclass(eq=False)
class _Connection:
    """Answers the requests of one connection, one after the other."""

    _server: Server
    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    def __post_init__(self) -> None:
        self._log: LogReader | None = None

    def close(self) -> None:
        if self._log is not None:
            self._log.close()

    async def run(self) -> None:
        async with asyncio.timeout(REQUEST_S):
            if await self._reader.readexactly(len(protocol.HELLO)) != protocol.HELLO:
                raise BadPacket("foreign")
        known = False
        patience_s = REQUEST_S  # Whoever connects has something to ask.
        while True:
            try:
                async with asyncio.timeout(patience_s):
                    start = await self._reader.readexactly(protocol.FRONT_BYTES)
            except (asyncio.IncompleteReadError, TimeoutError):
                return
            patience_s = IDLE_S
            request = protocol.parse_json(
                await self._body(start, FeedFrameKind.REQUEST, protocol.REQUEST_BYTES_MAX)
            )
            if self._server._token and not known:
                known = await self._admit(request)
                continue
            try:
                await self._answer(request)
            except BadPacket:
                raise
            except Misuse as error:
                await self._reply(protocol.refusal(Refusal.MISUSE, str(error)))
            except Trimmed as gone:
                more = {"first": gone.first, "begins": gone.begins}
                await self._reply(protocol.refusal(Refusal.TRIMMED, str(gone), **more))
            except Stopped as stop:
                await self._reply(protocol.refusal(Refusal.AWAY, stop.reason))
            except BadBatch as error:
                await self._server._set_aside(error.first)
                text = f"{error}: it is recalled from other members"
                await self._reply(protocol.refusal(Refusal.AHEAD, text))
            except UnisonoError as error:
                log.error("%s", error)
                await self._reply(protocol.refusal(Refusal.BROKEN, str(error)))

    async def _admit(self, request: dict[str, Any]) -> bool:
        """The first request states the token, or the connection ends."""
        token = request.get("token") if request.get("do") == "token" else None
        stated = token.encode(errors="replace") if isinstance(token, str) else b""
        if not hmac.compare_digest(stated, self._server._token.encode()):
            text = "this feed has another token" if token else "this feed wants a token"
            text += ": give the file that holds it (token=, in Spark feedToken)"
            await self._reply(protocol.refusal(Refusal.MISUSE, text))
            raise BadPacket("token")
        await self._reply(protocol.json_frame(FeedFrameKind.ANSWER))
        return True

    async def _body(self, start: bytes, kind: FeedFrameKind, bytes_max: int) -> bytes:
        its_kind, length = protocol.front_read(start, bytes_max)
        if its_kind is not kind:
            raise BadPacket("kind")
        server = self._server
        if server.arriving_bytes and server.arriving_bytes + length > ARRIVING_BYTES_MAX:
            await self._reply(protocol.refusal(Refusal.BUSY, "too many rows at once: try again"))
            raise BadPacket("busy")
        server.arriving_bytes += length
        try:
            async with asyncio.timeout(REQUEST_S):
                return await self._reader.readexactly(length)
        finally:
            server.arriving_bytes -= length

    async def _reply(self, *parts: bytes) -> None:
        self._writer.writelines(parts)
        async with asyncio.timeout(SILENT_S):
            await self._writer.drain()

    async def _answer(self, request: dict[str, Any]) -> None:
        what = request.get("do")
        if what == "bounds":
            await self._reply(protocol.json_frame(FeedFrameKind.ANSWER, **self._bounds_reply()))
        elif what == "status":
            await self._reply(protocol.json_frame(FeedFrameKind.ANSWER, **self._server._status()))
        elif what == "read":
            await self._range(
                protocol.number(request, "after"),
                protocol.number(request, "upto"),
                protocol.columns(request),
            )
        elif what == "offset":
            at_us = protocol.number(request, "t_us")
            offset = await self._in_log(rows.offset_at, at_us)
            await self._reply(protocol.json_frame(FeedFrameKind.ANSWER, place=offset))
        elif what == "token":  # None is wanted.
            await self._reply(protocol.json_frame(FeedFrameKind.ANSWER))
        elif what == "rows":
            await self._rows(request)
        else:
            raise Misuse(f"unknown request {what!r}: use bounds, offset, read, rows or status")

    def _bounds_reply(self) -> dict[str, Any]:
        first, end, last = self._server._bounds()
        status = self._server._status()
        keys = ("group", "life", "stretches", "opening")
        return {"first": first, "end": end, "last": last} | {key: status[key] for key in keys}

    # -- ranges -----------------------------------------------------------------------------------

    async def _in_log(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the function, in a thread, with this connection's reader of the log."""
        if self._log is None:
            self._log = await self._server._in_thread(LogReader, self._server._directory)
        return await self._server._in_thread(function, self._log, *arguments)

    async def _range(self, after: int, upto: int, columns: list[str] | None) -> None:
        end = self._server._bounds().end
        if upto > end:
            text = f"the feed has reached offset {end}, not {upto} yet"
            await self._reply(protocol.refusal(Refusal.AHEAD, text, end=end))
            return
        at = after + 1
        while at <= upto:
            frames, at = await self._in_log(page, at, upto, columns)
            await self._reply(*frames)
            self._server.counts["batches_sent"] += len(frames) // 2
        await self._reply(protocol.json_frame(FeedFrameKind.END, upto=upto))

    # -- intake -----------------------------------------------------------------------------------

    async def _rows(self, request: dict[str, Any]) -> None:
        """Rows for the group, each multicast once even if repeated."""
        async with asyncio.timeout(REQUEST_S):
            start = await self._reader.readexactly(protocol.FRONT_BYTES)
        body = await self._body(start, FeedFrameKind.ROWS, protocol.ROWS_BYTES_MAX)
        query = request.get("query")
        if not isinstance(query, str) or not 0 < len(query) <= QUERY_MAX or not query.isprintable():
            raise Misuse(f"bad query name: give 1 to {QUERY_MAX} printable characters")
        partition = protocol.number(request, "partition", most=(1 << 32) - 1)
        epoch, first_row = protocol.number(request, "epoch"), protocol.number(request, "first_row")
        try:
            batch = read_batch(body, protocol.INTAKE, protocol.ROWS_BYTES_MAX)
        except BadRows as error:
            self._server.counts["drop.rows"] += 1
            raise Misuse(str(error)) from None
        if batch.num_rows > protocol.ROWS_COUNT_MAX or batch.column(0).null_count:
            self._server.counts["drop.rows"] += 1
            raise Misuse(f"give at most {protocol.ROWS_COUNT_MAX} rows at once, none of them null")
        payloads = batch.column(0).to_pylist()
        offset = await self._server._take(query, partition, epoch, first_row, payloads)
        with contextlib.suppress(ConnectionError):
            await self._reply(
                protocol.json_frame(FeedFrameKind.ANSWER, place=offset, rows=len(payloads))
            )


def page(
    log: LogReader, at: int, upto: int, columns: list[str] | None = None
) -> tuple[list[bytes], int]:
    """The next part of the range as frames, with these columns, and the offset after it."""
    frames: list[bytes] = []
    for batch in log.page(at, upto):
        blob = batch.blob
        if batch.first < at or batch.last > upto or columns is not None:
            some = rows.cut(rows.decoded(blob), at - 1, upto)
            blob = rows.encoded(some if columns is None else rows.without(some, columns))
        frames += (protocol.front(FeedFrameKind.ROWS, len(blob)), blob)
        at = batch.last + 1
    if not frames:
        raise BadRows(f"the log lacks offset {at}: it is damaged")
    return frames, at
