"""A streaming query in a process of its own, to be killed: lines of text files into a group.

Its plan is a hard one for a sink: rows are shuffled and come in another order whenever a partition
is computed again, and of each batch a task fails once in the middle of its rows.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import functions as F

from unisono.spark import register
from unisono.spark.session import open_session
from unisono.spark.source.sink import BATCH_ID

SETTINGS = {
    "spark.sql.shuffle.partitions": 3,
    "spark.sql.adaptive.enabled": False,
    "spark.sql.streaming.noDataMicroBatches.enabled": False,
    "spark.sql.execution.arrow.maxRecordsPerBatch": 100,
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
ATTEMPTS = 4
PIECE_ROWS = 100


def write_lines(place: Path, count: int, files: int, octets: int = 200) -> list[bytes]:
    """The input, each line another."""
    place.mkdir(parents=True)
    lines = [f"{n:08} ".ljust(octets, "abcdefgh"[n % 8]) for n in range(count)]
    for at in range(files):
        some = lines[at * count // files : (at + 1) * count // files]
        (place / f"{at:04}.txt").write_text("\n".join(some) + "\n")
    return [line.encode() for line in lines]


def unsteady(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, never in the same order twice; one task of a batch fails at first."""
    context = TaskContext.get()
    assert context is not None
    rows = pa.Table.from_batches(batches, schema=pa.schema([("payload", pa.string())]))
    order = list(range(rows.num_rows))
    random.Random(time.time_ns()).shuffle(order)
    batch = int(context.getLocalProperty(BATCH_ID) or 0)
    fails = context.attemptNumber() == 0 and context.partitionId() == batch % 3
    if order:
        rows = rows.take(order)
    for at, piece in enumerate(rows.to_batches(max_chunksize=PIECE_ROWS)):
        if fails and at * PIECE_ROWS >= rows.num_rows // 2:
            time.sleep(0.2)  # the sink has what came before
            raise RuntimeError("this task fails, to be tried again")
        yield piece


def run(orders: dict[str, Any]) -> None:
    session = open_session(f"local[2,{ATTEMPTS}]", "unisono-sink", **SETTINGS)
    session.sparkContext.setLogLevel("OFF")
    register(session)
    if orders.get("stands_by"):
        # Ready, until it is told where the feed is.
        orders = {**orders, "feed": sys.stdin.readline().strip()}
    lines = session.readStream.option("maxFilesPerTrigger", orders["files"]).text(orders["lines"])
    shuffled = lines.select(F.col("value").alias("payload")).repartition(3, "payload")
    if orders.get("unsteady", True):
        shuffled = shuffled.mapInArrow(unsteady, "payload string")
    query = (
        shuffled.writeStream.format("unisono")
        .option("feed", orders["feed"])
        .option("checkpointLocation", orders["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    print(json.dumps({"kind": "started", "query": query.id}), flush=True)
    start = time.monotonic()
    query.awaitTermination()
    took_s = time.monotonic() - start
    print(json.dumps({"kind": "done", "took_s": took_s}), flush=True)


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
