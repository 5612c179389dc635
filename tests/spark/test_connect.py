"""The format `unisono` in a session of Spark Connect, with a server of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="needs pip install 'pyspark[connect]'")

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from tests.feed.stage import Served, messages
from tests.laws.stories import story, write_trace
from unisono.spark import register

top = Path(sys.argv[1])
spark = SparkSession.builder.remote("local[1]").getOrCreate()
register(spark)
write_trace(story("a: view 1 a | send | a:1"), top / "traces")
assert spark.read.format("unisono").load(str(top / "traces")).count() == 3
with Served(top / "log") as feed:
    feed.say(messages(1, 10))
    read = spark.readStream.format("unisono").option("feed", feed.at)
    query = (
        read.option("startingOffsets", "earliest").load().writeStream.format("parquet")
        .option("path", str(top / "out")).option("checkpointLocation", str(top / "checkpoint"))
        .trigger(availableNow=True).start()
    )
    query.awaitTermination()
    assert spark.read.parquet(str(top / "out")).count() == 10
    rows = spark.range(5).selectExpr("concat('n ', id) AS payload")
    rows.write.format("unisono").option("feed", feed.at).mode("append").save()
    assert sum(len(taken[4]) for taken in feed.taken) == 5
spark.stop()
print("all three")
"""


@pytest.mark.soak
def test_a_session_of_connect_reads_and_writes(tmp_path: Path) -> None:
    """Half a minute: a server is started."""
    path = os.pathsep.join((str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")))
    names = {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": path}
    names |= dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env=os.environ | names,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.endswith("all three\n"), done.stderr[-2000:]
