"""Figures of the feed, a table of docs/OPERATIONS.md: `python -m tests.feed.measure [--rows N]`.

Alone on the machine. Each line is the best of its rounds; sizes are of what is stored.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import unisono
from tests.feed.stage import A
from tests.harness import ENVIRONMENT, UNISONO
from tests.net.recorder import free_port
from unisono.feed import FeedClient
from unisono.feed.keeper import Keeper
from unisono.log import Log, LogBatch, LogReader
from unisono.model import Message, Service

PAYLOAD_BYTES = 100
BATCH = 4096
LATENCY_S = 20.0
FLOOD_S = 10.0


def tell(name: str, figure: str) -> None:
    print(f"| {name} | {figure} |", flush=True)


def rate(rows: int, seconds: float, octets: int = 0) -> str:
    found = f"{rows / seconds:,.0f} rows/s"
    return found + (f", {octets / seconds / 1e6:,.0f} MB/s" if octets else "")


def messages(first: int, count: int) -> list[Message]:
    """Payloads that a codec cannot make small."""
    noise = os.urandom(count * PAYLOAD_BYTES)
    return [
        Message(
            A,
            noise[n * PAYLOAD_BYTES :][:PAYLOAD_BYTES],
            first + n,
            "v1",
            first + n,
            Service.AGREED,
        )
        for n in range(count)
    ]


# -- writing --------------------------------------------------------------------------------------


def blobs(rows: int, batch: int, offset: Path) -> tuple[list[LogBatch], float]:
    """Batches as a feed makes them, and how long that took."""
    made: list[LogBatch] = []
    with Log(offset, durable=False) as log:
        keeper = Keeper(log, "g")
        keeper.enter("x", 0, 1)
        sent = [messages(first, batch) for first in range(1, rows + 1, batch)]
        began = time.perf_counter()
        for each in sent:
            made += keeper.deliver(each, 1).batches
        return made, time.perf_counter() - began


def writing(offset: Path, rows: int) -> None:
    made, seconds = blobs(rows, BATCH, offset / "none")
    tell(f"rows into Arrow batches of {BATCH:,}, no log", rate(rows, seconds))
    octets = sum(len(batch.blob) for batch in made)
    for durable in (True, False):
        seconds = min(_appended(offset / f"log-{durable}-{n}", made, durable) for n in range(3))
        found = "synchronous=FULL" if durable else "synchronous=NORMAL"
        tell(f"SQLite, a batch of {BATCH:,} a commit, {found}", rate(rows, seconds, octets))
    seconds = min(_plain(offset / f"plain-{n}", made) for n in range(3))
    tell("the same bytes to a plain file, fsync each", rate(rows, seconds, octets))
    few = min(rows, 2000)
    single, _ = blobs(few, 1, offset / "none-1")
    seconds = min(_appended(offset / f"one-{n}", single, True) for n in range(2))
    tell("SQLite, one row a commit, synchronous=FULL", f"{few / seconds:,.0f} commits/s")


def _appended(offset: Path, made: list[LogBatch], durable: bool) -> float:
    with Log(offset, durable=durable) as log:
        began = time.perf_counter()
        for batch in made:
            log.append([batch], {"feed": "x"})
        return time.perf_counter() - began


def _plain(path: Path, made: list[LogBatch]) -> float:
    with path.open("wb", buffering=0) as file:
        began = time.perf_counter()
        for batch in made:
            file.write(batch.blob)
            os.fsync(file.fileno())
        return time.perf_counter() - began


# -- reading --------------------------------------------------------------------------------------


def fill(offset: Path, rows: int) -> None:
    """A large log of small rows, one run of messages many times over."""
    with Log(offset, durable=False) as log:
        keeper = Keeper(log, "g")
        keeper.enter("x", 0, 1)
        for first in range(1, rows + 1, BATCH):
            upto = min(rows + 1, first + BATCH)
            run = [
                Message(A, b"%020d" % seq, seq, "v1", seq, Service.AGREED)
                for seq in range(first, upto)
            ]
            made = keeper.deliver(run, time.time_ns() // 1000)
            log.append(made.batches, made.meta)


@contextmanager
def feed_process(log: Path, port: int) -> Iterator[str]:
    words = ["feed", "g", "--log", str(log), "--listen", "127.0.0.1:0", "--port", str(port)]
    process = subprocess.Popen(
        [*UNISONO, *words, "--json"], stdout=subprocess.PIPE, env=ENVIRONMENT
    )
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["at"]
    finally:
        process.terminate()
        process.wait(20)


def timed(work: Callable[[], int], rounds: int = 3) -> tuple[int, float]:
    best = float("inf")
    for _ in range(rounds):
        began = time.perf_counter()
        rows = work()
        best = min(best, time.perf_counter() - began)
    return rows, best


def reading(offset: Path, rows: int, spark: Any) -> None:
    log = offset / "large"
    fill(log, rows)

    def from_log() -> int:
        return sum(batch.rows for batch in LogReader(log).read(1, rows))

    tell(f"the log read alone, {rows / 1e6:g} M rows of 20 bytes", rate(*timed(from_log)))
    with feed_process(log, free_port()) as at:

        def from_feed() -> int:
            with FeedClient(at) as client:
                return sum(batch.num_rows for batch in client.read(0, rows))

        tell("one client of the feed, decoded", rate(*timed(from_feed)))
        for name, sink in (("nothing (noop)", "noop"), ("Parquet", "parquet")):
            seconds = min(_queried(spark, at, offset, sink, n) for n in range(2))
            tell(f"Spark stream on local[2], feed to {name}", rate(rows, seconds))


def _queried(spark: Any, at: str, offset: Path, sink: str, n: int) -> float:
    frame = spark.readStream.format("unisono").option("feed", at)
    frame = frame.option("startingOffsets", "earliest").load()
    query = frame.writeStream.format(sink).option("checkpointLocation", f"{offset}/c-{sink}-{n}")
    if sink == "parquet":
        query = query.option("path", f"{offset}/out-{n}")
    began = time.perf_counter()
    query.trigger(availableNow=True).start().awaitTermination()
    return time.perf_counter() - began


# -- a whole feed ---------------------------------------------------------------------------------


def flood(offset: Path) -> None:
    """A member that sends what it can, and how much of that is in the log of a feed beside it."""
    port = free_port()
    with feed_process(offset / "flood", port) as at, FeedClient(at) as client:
        sent, seconds = asyncio.run(_flood(port))
        while client.bounds().end < sent:
            time.sleep(0.05)
        status = client.status()
        tell(
            f"a group of two, one a feed: sent, ordered and logged, {PAYLOAD_BYTES} bytes each",
            rate(sent, seconds) + f", {sent / status['commits']:,.0f} rows a commit",
        )


async def _flood(port: int) -> tuple[int, float]:
    async with unisono.join("g", name="a", replayable=True, port=port, join_s=40) as group:
        async for items in group.batches():
            if any(len(item.members) == 2 for item in items if isinstance(item, unisono.View)):
                break
        sent, payload = 0, os.urandom(PAYLOAD_BYTES)
        began = time.perf_counter()

        async def talk() -> None:
            nonlocal sent
            while time.perf_counter() < began + FLOOD_S:
                await group.multicast_many([payload] * 100)
                sent += 100

        talking = asyncio.create_task(talk())
        delivered = 0
        async for items in group.batches():
            delivered += sum(isinstance(item, unisono.Message) for item in items)
            if talking.done() and delivered >= sent:
                return sent, time.perf_counter() - began
    raise AssertionError("the stream ended")


# -- latency --------------------------------------------------------------------------------------


def latency(offset: Path, spark: Any) -> None:
    """From a member's multicast, and from the feed's append, to the row in a running query."""
    port = free_port()
    found: list[tuple[float, float]] = []

    def take(frame: Any, epoch: int) -> None:
        rows = frame.select("payload", "t_us").collect()
        now = time.time()
        found.extend((now - float(row.payload), now - row.t_us / 1e6) for row in rows)

    with feed_process(offset / "live", port) as at:
        frame = spark.readStream.format("unisono").option("feed", at).load()
        query = frame.writeStream.foreachBatch(take)
        query = query.option("checkpointLocation", f"{offset}/c-live").start()
        asyncio.run(_talk(port))
        query.processAllAvailable()
        query.stop()
    half = found[len(found) // 5 :]  # the first batches warm Spark up
    for at_, name in ((0, "said"), (1, "in the log")):
        values = sorted(each[at_] for each in half)
        p50, p90, p99 = (values[int(len(values) * q)] for q in (0.5, 0.9, 0.99))
        tell(
            f"from {name} to the row in foreachBatch, 100 messages/s",
            f"p50 {p50 * 1e3:.0f} ms, p90 {p90 * 1e3:.0f} ms, p99 {p99 * 1e3:.0f} ms",
        )


async def _talk(port: int) -> None:
    async with unisono.join("g", name="a", replayable=True, port=port, join_s=40) as group:

        async def listen() -> None:
            async for _ in group.batches():
                pass

        listening = asyncio.create_task(listen())
        end = time.monotonic() + LATENCY_S
        while time.monotonic() < end:
            await group.multicast(b"%.6f" % time.time())
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        listening.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    rows = parser.parse_args().rows
    from unisono.spark import register
    from unisono.spark.session import open_session

    print("| what | figure |\n|---|---|")
    with tempfile.TemporaryDirectory(prefix="unisono-feed") as made:
        offset = Path(made)
        writing(offset, min(rows, 100 * BATCH))
        flood(offset)
        spark = open_session("local[2]", "measure", **{"spark.driver.memory": "2g"})
        register(spark)
        try:
            reading(offset, rows, spark)
            latency(offset, spark)
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
