"""Keeps Spark's classes as Java has them once they are loaded, so that it starts in half the time.

`python -m unisono.spark.classes` does it once, for the Java and the Spark that would be used. Java
itself sees whether what was kept still fits, and does without it where it does not.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from unisono.errors import Misuse
from unisono.spark.java import KEPT, JavaHome, find_java

TIMEOUT_S: Final = 300

# What most sessions do: plan, shuffle, call Python, write and read tables, run a stream.
WORK: Final = """
import sys
from unisono.spark.session import open_session
draft, place = sys.argv[1:]
spark = open_session("local[2]", "unisono-classes", **{
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": 2,
    "spark.driver.extraJavaOptions":
        f"-XX:ArchiveClassesAtExit={draft} -Xlog:disable -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
})
rows = spark.range(1000).selectExpr("id", "id % 7 kind", "cast(id as string) payload")
rows = rows.mapInArrow(lambda batches: batches, rows.schema)
rows.repartition(2, "kind").write.partitionBy("kind").parquet(f"{place}/rows")
kept = spark.read.parquet(f"{place}/rows").filter("id > 10")
kept.groupBy("kind").count().orderBy("kind").toPandas()
query = (
    spark.readStream.schema(kept.schema).parquet(f"{place}/rows").writeStream.format("parquet")
    .option("path", f"{place}/out").option("checkpointLocation", f"{place}/checkpoint")
    .trigger(availableNow=True).start()
)
query.awaitTermination()
java = spark.sparkContext._gateway.proc
spark.stop()
# Java writes them down as it ends, which it does when nobody has more to say.
java.stdin.close()
java.wait()
"""


def keep() -> Path:
    """Where Spark's classes are kept; a minute's work when they are not, or are of others."""
    java = find_java()
    kept, made_for = java.home / KEPT, java.home / f"{KEPT}.for"
    fits = _what_it_is_for(java)
    if kept.is_file() and made_for.is_file() and made_for.read_text() == fits:
        return kept
    # What is used while others are made would be written into them.
    kept.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="classes-", dir=java.home) as folder:
        draft = Path(folder) / KEPT
        command = [sys.executable, "-c", WORK, str(draft), folder]
        environment = {**os.environ, "JAVA_HOME": str(java.home)}
        run = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        if run.returncode or not draft.is_file():
            said = run.stderr.strip().splitlines() or ["Java wrote nothing"]
            raise Misuse(f"Spark's classes cannot be kept: {said[-1]}")
        # Who starts meanwhile finds all of it, or none.
        draft.replace(kept)
        made_for.write_text(fits)
    return kept


def _what_it_is_for(java: JavaHome) -> str:
    """The Java and the Spark, by place and time: a change of either makes others of them."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    files = (java.runtime / "bin" / "java", jars)
    return "".join(f"{path} {path.stat().st_mtime_ns}\n" for path in files)


def main() -> int:
    try:
        kept = keep()
    except (Misuse, ImportError, OSError, subprocess.TimeoutExpired) as wrong:
        print(wrong, file=sys.stderr)
        return 1
    print(f"{kept}: {kept.stat().st_size >> 20} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
