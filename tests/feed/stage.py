"""Messages, views and logs for tests of the feed, and a feed with its group in one process."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unisono.feed import rows
from unisono.feed.keeper import Append, Keeper
from unisono.feed.server import Server
from unisono.log import Log, LogReader
from unisono.model import Address, Member, Message, Service, View

A = Member("a", Address("127.0.0.1", 1), 7)
F = Member("f", Address("127.0.0.1", 2), 8)


def message(seq: int | None, payload: bytes | None = None) -> Message:
    found = payload if payload is not None else b"m%d" % (seq or 0)
    return Message(A, found, seq or 0, "v1", seq, Service.AGREED)


def messages(first: int, last: int) -> list[Message]:
    return [message(seq) for seq in range(first, last + 1)]


def view(seq: int, *members: Member, name: str = "v1") -> View:
    return View(members or (A, F), name, seq=seq)


def put(log: Log, made: Append) -> None:
    log.append(made.batches, made.meta)


def filled(
    directory: Path, count: int, *, batch: int = 1000, octets: int = 10, incarnation: str = "x"
) -> None:
    """A log as a feed writes it, with a view at its begin."""
    with Log(directory, durable=False) as log:
        keeper = Keeper(log, "g")
        put(log, keeper.enter(incarnation, 0, 1))
        put(log, keeper.deliver([view(0)], 1))
        for first in range(1, count + 1, batch):
            run = range(first, min(first + batch, count + 1))
            payloads = [message(seq, b"%0*d" % (octets, seq)) for seq in run]
            put(log, keeper.deliver(payloads, 1))


def everything(directory: Path) -> list[dict[str, Any]]:
    """All rows up to the contiguous end, without what is null."""
    reader = LogReader(directory)
    try:
        first, end, _ = reader.bounds()
        return [
            {name: cell for name, cell in row.items() if cell is not None}
            for batch in reader.read(first, end)
            for row in rows.cut(rows.decoded(batch.blob), first - 1, end).to_pylist()
        ]
    finally:
        reader.close()


def shape(found: Sequence[dict[str, Any]]) -> str:
    """`1m 2v 2m 3g`: the places and kinds of rows."""
    return " ".join(f"{row['place']}{row['kind'][0]}" for row in found)


class Served:
    """A log and its server in a thread: a feed without a group, to which a test appends."""

    def __init__(
        self,
        directory: Path,
        port: int = 0,
        incarnation: str = "x",
        group: str = "g",
        access: tuple[str, ssl.SSLContext | None] = ("", None),
    ) -> None:
        self.log = Log(directory, durable=False)
        self.keeper = Keeper(self.log, group)
        held = self.log.last - self.keeper.base
        put(self.log, self.keeper.enter(incarnation, held, 1))
        self.taken: list[tuple[Any, ...]] = []
        self._loop = asyncio.new_event_loop()
        self._server = Server(
            str(directory),
            lambda: self.log.bounds,
            self._status,
            self._take,
            self._set_aside,
            *access,
        )
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port = self._await(self._server.open("127.0.0.1", port))
        self.at = f"127.0.0.1:{self.port}"

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        if self._thread.is_alive():
            self._await(self._server.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self.log.close()

    @property
    def counts(self) -> dict[str, int]:
        return dict(self._server.counts)

    def say(self, items: Sequence[object]) -> None:
        put(self.log, self.keeper.deliver(items, 1))

    def _status(self) -> dict[str, Any]:
        stretches = [list(each) for each in self.keeper.stretches]
        found = {
            "group": self.keeper.group,
            "life": self.keeper.incarnation,
            "stretches": stretches,
        }
        return {**found, "opening": self.keeper.opening, "counts": self.counts}

    async def _take(
        self, query: str, partition: int, epoch: int, first_row: int, payloads: list[bytes]
    ) -> int:
        self.taken.append((query, partition, epoch, first_row, payloads))
        return self.log.end

    async def _set_aside(self, first: int) -> None:
        self.log.set_aside(first)

    def _await(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)
