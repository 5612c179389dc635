"""A process that publishes batches of runs until it is killed: `python -m tests.spark.publisher
OUT parquet|delta FIRST [LAST]`. It prints the number of each batch that is done."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from tests.spark.test_partitioned import stage
from unisono.spark import delta, publishing
from unisono.spark.delta import DeltaTables
from unisono.spark.publishing import open_layout

RUNS = [f"r{n}" for n in range(10)]


def main(out: Path, kind: str, first: int, last: int) -> None:
    publishing.PARTS_MAX = delta.FILES_MAX = 3
    for number in range(first, last + 1):
        # The last has all runs.
        runs = RUNS if number == last else random.Random(number).sample(RUNS, 4)
        with open_layout(out) as layout:
            rows = stage(layout, runs, f"v{number}", number)
            if kind == "delta":
                DeltaTables(str(out / "delta")).publish(layout, rows)
            layout.publish(rows)
        print(number, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int([*sys.argv, "1000000"][4]))
