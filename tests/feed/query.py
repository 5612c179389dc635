"""A Spark query as a process: a feed into Parquet, until `finish`.
`python -m tests.feed.query '{"feed": …, "out": …}'`"""

from __future__ import annotations

import json
import sys
import threading

from unisono.spark import register
from unisono.spark.session import open_session


def main(feed: str, out: str) -> None:
    spark = open_session(
        "local[2]",
        "kills",
        **{
            "spark.sql.shuffle.partitions": 2,
            "spark.sql.adaptive.enabled": False,
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )
    register(spark)
    frame = (
        spark.readStream.format("unisono")
        .option("feed", feed)
        .option("startingOffsets", "earliest")
        .option("minPartitions", 2)
        .load()
    )
    query = (
        frame.writeStream.format("parquet")
        .option("path", out)
        .option("checkpointLocation", f"{out}.checkpoint")
        .trigger(processingTime="1 second")
        .start()
    )
    print(json.dumps({"kind": "started"}), flush=True)
    finish = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), finish.set()), daemon=True).start()
    while not finish.wait(0.2) and query.isActive:
        pass
    if query.exception() is None:
        query.processAllAvailable()
    error = query.exception()
    query.stop()
    print(json.dumps({"kind": "finished", "error": str(error) if error else None}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
