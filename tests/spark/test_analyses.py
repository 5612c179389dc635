"""The views say of a simulated group what its trace says, and the notebook runs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from unisono.errors import Misuse
from unisono.sim.plan import Plan
from unisono.sim.run import run
from unisono.spark.analyses import create_views
from unisono.spark.pipeline import run_pipeline
from unisono.trace.reading import read_trace

ROOT = Path(__file__).parents[2]
AHEAD_US = 50_000


@pytest.fixture(scope="module")
def results(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which the clock of b is ahead."""
    top = tmp_path_factory.mktemp("analyses")
    plan = {"nodes": 4, "seed": 7, "faults": "mild", "messages": 60, "detail": True}
    run(Plan(protocol="ring", trace=top / "traces", **plan))
    for path in (top / "traces").glob("run=*/b-*.parquet"):
        table = pq.read_table(path, partitioning=None)
        ahead = pc.add(table.column("t_us"), pa.scalar(AHEAD_US))
        at = table.schema.get_field_index("t_us")
        pq.write_table(table.set_column(at, "t_us", ahead), path)
    replay = "unisono sim --protocol ring --nodes 4 --seed 7 --faults mild --messages 60"
    next((top / "traces").glob("run=*")).joinpath("replay.txt").write_text(replay)
    run_pipeline(spark, top / "traces", top / "results", {"ring": ["fifo"]})
    create_views(spark, top / "results")
    return top


def gold(results: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(results / "results" / "gold" / name).to_pylist()
    return rows


def test_links_are_between_nodes(spark: Any, results: Path) -> None:
    (rows,) = read_trace(results / "traces").runs.values()
    addresses = {f"10.0.0.{n}:7000": name for n, name in enumerate("abcd", 1)}
    received = Counter(
        (addresses[row.peer or ""], row.node) for row in rows if row.kind == "packet_in"
    )
    links = {(row["sender"], row["receiver"]): row for row in gold(results, "links")}
    assert set(links) == {(a, b) for a in "abcd" for b in "abcd" if a != b}
    for pair, link in links.items():
        assert link["received"] == received[pair]
        assert 0 <= link["lost"] < 1 and link["sent"] > link["again"]
    assert any(link["lost"] > 0 < link["again"] for link in links.values())
    hops = Counter((row.sender, row.receiver) for row in spark.table("hops").collect())
    assert hops == received


def test_a_clock_that_is_ahead_is_found(results: Path) -> None:
    for row in gold(results, "links"):
        expected = AHEAD_US * ((row["receiver"] == "b") - (row["sender"] == "b"))
        assert abs(row["ahead_us"] - expected) < 5_000, row


def test_causes_and_messages_are_those_of_the_trace(spark: Any, results: Path) -> None:
    (rows,) = read_trace(results / "traces").runs.values()
    naks = sum(row.number or 0 for row in rows if row.kind == "nak")
    causes = gold(results, "causes")
    assert sum(row["count"] for row in causes if row["kind"] == "nak") == naks > 0
    delivered = {
        (row.sender, row.sender_incarnation, row.number) for row in rows if row.kind == "deliver"
    }
    assert spark.table("message_times").count() == len(delivered)
    views = {row.view for row in rows if row.kind == "view"}
    assert {row["view"] for row in gold(results, "components")} == views
    (factors,) = spark.table("run_factors").collect()
    assert (factors.faults, factors.nodes, factors.seed, factors.messages) == ("mild", 4, 7, 60)


def test_the_notebook_runs(spark: Any, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = json.loads((ROOT / "examples" / "analyses.ipynb").read_text(encoding="utf-8"))
    monkeypatch.chdir(results)
    monkeypatch.setattr("unisono.spark.session.open_session", lambda master: spark)
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert not any(cell.get("outputs") for cell in notebook["cells"])


def test_a_directory_without_tables_is_named(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="no tables of a pipeline"):
        create_views(spark, tmp_path)
