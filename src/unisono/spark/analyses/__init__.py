"""SQL views over the tables: packets by link, messages, runs with their factors, capacity.

`analyses.sql` is Spark SQL and the documentation of each view: it may be read, changed and copied.
Nothing is computed until a view is used.
"""

from __future__ import annotations

import importlib.resources
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.pandas.types import from_arrow_schema

from unisono.errors import Misuse
from unisono.spark.layout import JOINT, MARK, TABLES
from unisono.spark.schemas import DATE, SCHEMAS, with_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VIEW: Final = re.compile(r"CREATE OR REPLACE TEMP VIEW (\w+)")


def statements() -> dict[str, str]:
    """The definition of each view, in an order in which they can be created."""
    text = (importlib.resources.files(__name__) / "analyses.sql").read_text(encoding="utf-8")
    found = {}
    for statement in text.split(";\n"):
        if match := _VIEW.search(statement):
            found[match[1]] = statement.strip()
    return found


def create_views(session: SparkSession, out: str | os.PathLike[str]) -> list[str]:
    """Create the tables of a result directory as temporary views, `silver_sends` and so on, and the
    analyses over them; returns their names."""
    top = Path(out).resolve()
    if not (top / MARK).is_file():
        raise Misuse(f"{top}: no tables of a pipeline; give the directory of --out")
    names = []
    for table in (*TABLES, *JOINT):
        if not any((top / table).glob("**/*.parquet")):
            raise Misuse(f"{top}: no {table}; run the pipeline with --tables all, as Parquet")
        name = table.replace("/", "_")
        # Reading the schema of each table from a file takes a job.
        schema = SCHEMAS[table] if table in JOINT else with_run(table).append(DATE)
        read = session.read.schema(from_arrow_schema(schema))
        read.parquet(str(top / table)).createOrReplaceTempView(name)
        names.append(name)
    for name, statement in statements().items():
        session.sql(statement)
        names.append(name)
    return names
