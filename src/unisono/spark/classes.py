"""A class data sharing (CDS) archive of Spark's classes, with which Java starts in half the time.

`python -m unisono.spark.classes` makes it once, for the Java and the Spark in use. Java checks
whether the archive fits, and ignores it if it does not.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from unisono.errors import Misuse
from unisono.spark.java import ARCHIVE, JavaHome, find_java

TIMEOUT_S: Final = 300

# Loads the classes of a usual session: plan, shuffle, call Python, write and read tables, stream.
WORK: Final = """
import sys
from unisono.spark.session import open_session
draft, folder = sys.argv[1:]
spark = open_session("local[2]", "unisono-classes", **{
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": 2,
    "spark.driver.extraJavaOptions":
        f"-XX:ArchiveClassesAtExit={draft} -Xlog:disable -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
})
rows = spark.range(1000).selectExpr("id", "id % 7 kind", "cast(id as string) payload")
rows = rows.mapInArrow(lambda batches: batches, rows.schema)
rows.repartition(2, "kind").write.partitionBy("kind").parquet(f"{folder}/rows")
kept = spark.read.parquet(f"{folder}/rows").filter("id > 10")
kept.groupBy("kind").count().orderBy("kind").toPandas()
query = (
    spark.readStream.schema(kept.schema).parquet(f"{folder}/rows").writeStream.format("parquet")
    .option("path", f"{folder}/out").option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True).start()
)
query.awaitTermination()
java = spark.sparkContext._gateway.proc
spark.stop()
# Java writes the archive when it exits, which it does when its input ends.
java.stdin.close()
java.wait()
"""


def make_archive() -> Path:
    """The path of the archive; making it takes a minute."""
    java = find_java()
    archive, made_for = java.home / ARCHIVE, java.home / f"{ARCHIVE}.for"
    versions = _versions(java)
    if archive.is_file() and made_for.is_file() and made_for.read_text() == versions:
        return archive
    # An archive in use would be included in the new one.
    archive.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="classes-", dir=java.home) as folder:
        draft = Path(folder) / ARCHIVE
        command = [sys.executable, "-c", WORK, str(draft), folder]
        environment = {**os.environ, "JAVA_HOME": str(java.home)}
        run = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        if run.returncode or not draft.is_file():
            lines = run.stderr.strip().splitlines() or ["Java wrote nothing"]
            raise Misuse(f"cannot make the class archive: {lines[-1]}")
        draft.replace(archive)
        made_for.write_text(versions)
    return archive


def _versions(java: JavaHome) -> str:
    """The Java and the Spark that the archive is for, by path and time."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    files = (java.runtime / "bin" / "java", jars)
    return "".join(f"{path} {path.stat().st_mtime_ns}\n" for path in files)


def main() -> int:
    try:
        archive = make_archive()
    except (Misuse, ImportError, OSError, subprocess.TimeoutExpired) as wrong:
        print(wrong, file=sys.stderr)
        return 1
    print(f"{archive}: {archive.stat().st_size >> 20} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
