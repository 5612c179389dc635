"""What is shared with Spark means the same there: row checks and levels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.trace.test_files import BAD_ROWS, GOOD, VIEW
from unisono.trace.checks import LEVEL_SQL, ROW_CHECKS, level_of, reason_against
from unisono.trace.parquet import batch_of, writer_to

SERVICES = ("unreliable", "reliable", "fifo", "causal", "agreed", "safe")
ODD_SERVICES = (
    "resilient(3)",
    "resilient(2)\n",
    "resilient(all)",
    "resilient(majority)",
    "resilient()",
    "SAFE",
    "",
)

ROWS = [
    *(row for row, _ in BAD_ROWS),
    GOOD,
    VIEW,
    VIEW._replace(members=("a\nb#1", "c#1#2")),
    VIEW._replace(members=("#1",)),
    VIEW._replace(members=("a#1\n",)),
    *(GOOD._replace(service=service) for service in SERVICES + ODD_SERVICES),
]


def test_a_row_check_says_the_same_in_sql(spark: Any, tmp_path: Path) -> None:
    with writer_to(tmp_path / "rows.parquet") as writer:
        writer.write_batch(batch_of([row._replace(seq=place) for place, row in enumerate(ROWS)]))
    reason = " ".join(f"WHEN {check.sql} THEN '{check.reason}'" for check in ROW_CHECKS)
    rows = (
        spark.read.parquet(str(tmp_path / "rows.parquet"))
        .orderBy("seq")
        .selectExpr(f"CASE {reason} END AS reason", f"{LEVEL_SQL} AS level")
        .collect()
    )
    assert [row.reason for row in rows] == [reason_against(row) for row in ROWS]
    assert [row.level for row in rows] == [level_of(row.service) for row in ROWS]
