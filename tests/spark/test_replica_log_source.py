"""A replicated log through Spark: a table by place, and a stream from any place."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pip install 'unisono[spark]'")

from unisono.errors import Misuse
from unisono.services.replica_file import ReplicaFile
from unisono.services.replication.records import (
    CheckpointRecord,
    GreenRecord,
    GreenRunsRecord,
    IdRun,
    KeptRecord,
    Line,
    LogCheckpoint,
    RedRecord,
    Update,
    UpdateKind,
    record_bytes,
)
from unisono.spark import register
from unisono.spark.source.feed import DataLoss
from unisono.spark.source.replica_log import Places, ReplicaLog, ReplicaLogStreamReader


def updates(submitter: str, first: int, last: int) -> tuple[Update, ...]:
    return tuple(
        Update(submitter, number, UpdateKind.APPLICATION, b"%d" % number)
        for number in range(first, last + 1)
    )


def written(path: Path) -> ReplicaFile:
    """Three of a and two of b are green, in this order; one of a is red. It stays open."""
    file = ReplicaFile(path, "orders", "a", ["a", "b"])
    write(file, RedRecord(updates("a", 1, 4)), GreenRunsRecord((IdRun("a", 1, 2),)))
    write(file, GreenRecord(updates("b", 1, 2)), GreenRunsRecord((IdRun("a", 3, 3),)))
    return file


def write(file: ReplicaFile, *records: Any) -> None:
    encoded = [record_bytes(record) for record in records]
    file.index(file.write(encoded), encoded)


ORDER = [(1, "a", 1), (2, "a", 2), (3, "b", 1), (4, "b", 2), (5, "a", 3)]


def placed(options: dict[str, str], after: int, upto: int) -> list[tuple[int, str, int]]:
    log = ReplicaLog(options, streaming=False)
    return [
        (row["place"], row["submitter"], row["number"])
        for batch in log.batches(Places(after, upto))
        for row in batch.to_pylist()
    ]


def test_a_log_in_use_is_a_table_and_a_stream(spark: Any, tmp_path: Path) -> None:
    register(spark)
    file = written(tmp_path / "log")
    table = spark.read.format("unisono").load(str(tmp_path / "log"))
    rows = table.orderBy("place").collect()
    assert [(row.place, row.submitter, row.number) for row in rows] == ORDER
    assert bytes(rows[4].payload) == b"3" and rows[4].kind == "application"

    def follow() -> list[tuple[int, str, int]]:
        stream = spark.readStream.format("unisono").option("startingOffsets", "3")
        query = (
            stream.option("maxOffsetsPerTrigger", "2")
            .load(str(tmp_path / "log"))
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "table"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        found = spark.read.parquet(str(tmp_path / "table")).orderBy("place").collect()
        return [(row.place, row.submitter, row.number) for row in found]

    assert follow() == ORDER[2:]
    write(file, GreenRunsRecord((IdRun("a", 4, 4),)))
    assert follow() == [*ORDER[2:], (6, "a", 4)]
    file.close()


def test_a_stream_takes_so_many_at_a_time_and_ends_where_the_log_ended(tmp_path: Path) -> None:
    file = written(tmp_path)
    options = {"path": str(tmp_path), "startingOffsets": "2", "maxOffsetsPerTrigger": "3"}
    reader = pickle.loads(pickle.dumps(ReplicaLogStreamReader(options)))
    start, limit = reader.initialOffset(), reader.getDefaultReadLimit()
    reader.prepareForTriggerAvailableNow()
    write(file, GreenRunsRecord((IdRun("a", 4, 4),)))
    file.close()
    read = []
    while (end := reader.latestOffset(start, limit)) != start:
        (places,) = reader.partitions(start, end)
        read.append([row["place"] for batch in reader.read(places) for row in batch.to_pylist()])
        start = end
    assert read == [[2, 3, 4], [5]]
    with pytest.raises(DataLoss, match="it is another log"):
        reader.latestOffset({"place": 9}, limit)


def test_a_checkpoint_keeps_places(tmp_path: Path) -> None:
    file = written(tmp_path)
    checkpoint = LogCheckpoint(5, (Line("a", 3), Line("b", 2)), ("a", "b"), b"state")
    kept = KeptRecord((*updates("b", 2, 2), *updates("a", 3, 3)))
    file.replace(record_bytes(each) for each in (kept, CheckpointRecord(checkpoint)))
    write(file, GreenRecord(updates("b", 3, 3)))
    file.close()
    options = {"path": str(tmp_path)}
    assert ReplicaLog(options, streaming=False).bounds() == (4, 6)
    assert placed(options, 3, 6) == [*ORDER[3:], (6, "b", 3)]
    with pytest.raises(DataLoss, match="places 2 to 3 are not in this log"):
        placed(options, 1, 6)
    assert placed({**options, "failOnDataLoss": "false"}, 1, 6) == [*ORDER[3:], (6, "b", 3)]
    with pytest.raises(DataLoss, match="places 7 to 9"):
        placed(options, 5, 9)


@pytest.mark.parametrize(
    ("more", "streaming", "told"),
    [
        ({"endingOffsets": "9"}, False, "ends at place 5"),
        ({"endingOffsets": "9"}, True, "for batches"),
        ({"maxOffsetsPerTrigger": "9"}, False, "for streams"),
        ({"startingOffsets": "soon"}, False, "startingOffsets='soon'"),
        ({"columns": "place"}, False, "unknown option 'columns'"),
    ],
)
def test_a_wrong_option_is_told(
    more: dict[str, str], streaming: bool, told: str, tmp_path: Path
) -> None:
    written(tmp_path).close()
    with pytest.raises(Misuse, match=told):
        ReplicaLog({"path": str(tmp_path), **more}, streaming).end()
