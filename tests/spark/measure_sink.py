"""How fast a DataFrame goes into a group: `python -m tests.spark.measure_sink`.

Three members in one process, a feed in another, Spark in a third, all on this machine. Prints the
table of docs/SPARK.md.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from tests.spark.sinkstage import Stage, staged
from unisono.spark import register
from unisono.spark.session import open_session

ROWS = 200_000
SHAPES = {
    "100 B a row, 2 partitions, as they arrive": (100, 2, {"rowOrder": "arrival"}),
    "100 B a row, 2 partitions, sorted": (100, 2, {}),
    "100 B a row, 1 partition, sorted": (100, 1, {}),
    "1 kB a row, 2 partitions, sorted": (1000, 2, {}),
    "a row of two numbers as JSON, 2 partitions": (0, 2, {}),
}


def frame_of(session: Any, count: int, octets: int, partitions: int) -> Any:
    numbers = session.range(0, count, 1, partitions)
    if not octets:
        return numbers.select("id", (F.col("id") * 7).alias("price"))
    filled = F.rpad(F.col("id").cast("string"), octets, "x")
    return numbers.select(filled.alias("payload"))


def measured(session: Any, stage: Stage, shape: tuple[int, int, dict[str, str]], count: int) -> str:
    octets, partitions, options = shape
    before = min(stage.counts())
    start = time.monotonic()
    write = frame_of(session, count, octets, partitions).write.format("unisono")
    write.option("feed", stage.feed).options(**options).mode("append").save()
    took_s = time.monotonic() - start
    stage.until(before + count)
    return f"{count / took_s:,.0f} | {count * (octets or 25) / took_s / 1e6:.1f}"


def main(rows: int) -> None:
    session = open_session("local[2]", "unisono-measure")
    register(session)
    with tempfile.TemporaryDirectory() as place, staged(Path(place)) as stage:
        measured(session, stage, (100, 2, {}), 5000)  # Spark's first job is a slow one
        print("| what | rows a second | MB a second |\n|---|---|---|")
        for name, shape in SHAPES.items():
            count = rows // 4 if shape[0] > 500 else rows
            print(f"| {name} | {measured(session, stage, shape, count)} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
