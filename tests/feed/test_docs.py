"""What the page about the feed shows is run, and what it claims is checked."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.documents import blocks, page, section
from tests.feed.stage import Served, messages, view
from tests.harness import output_of
from tests.net.recorder import free_port
from unisono.feed import keeper, protocol, rows, server, site

PAGE = page("OPERATIONS")
READING = section("SPARK", "Reading a group")
IN_A_GROUP, PLAIN = blocks(section("OPERATIONS", "The feed"), "python")
STREAM, BATCH, BEHIND = blocks(READING, "python")


@pytest.mark.real
def test_the_program_with_a_feed_runs(tmp_path: Path) -> None:
    body = IN_A_GROUP.replace('"orders-log",', f'"orders-log", port={free_port()},')
    source = "import asyncio\nasync def main():\n"
    source += textwrap.indent(body, "    ") + "asyncio.run(main())\n"
    assert "0 places so far" in output_of("-c", source, cwd=tmp_path)


def test_the_program_without_spark_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Served(tmp_path) as served:
        served.say([view(0), *messages(1, 9)])
        exec(PLAIN.replace("127.0.0.1:7420", served.at), {})
        assert served.taken == [("nightly", 0, 1, 0, [b"first row", b"second row"])]
    assert "10 rows" in capsys.readouterr().out


def test_the_programs_with_spark_run(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("unisono.spark.session.open_session", lambda master: spark)
    with Served(tmp_path / "orders-log") as served:

        def here(program: str) -> str:
            # Java has a working directory of its own.
            moved = re.sub(r'"(orders-\w+)"', rf'"{tmp_path}/\1"', program)
            return moved.replace("127.0.0.1:7420", served.at)

        served.say([view(0), *messages(1, 9)])
        names: dict[str, Any] = {}
        exec(here(STREAM), names)
        exec(BEHIND, names)
        told = capsys.readouterr().out.splitlines()
        assert told == ["m1", "0 places behind"]
        exec(here(BATCH), names)
        assert names["counted"].collect()[0]["count"] == 9
        assert names["views"].count() == 1


def test_the_columns_and_the_options_are_on_the_page() -> None:
    from unisono.spark.source.options import OPTIONS

    for name in (*rows.SCHEMA.names, *protocol.FeedFrameKind.__members__):
        assert f"`{name}`" in PAGE, name
    for name in OPTIONS:
        assert f"`{name}`" in READING or name == "path", name


def test_the_bounds_are_those_of_the_page() -> None:
    for text, bound in {
        "1 GiB, 24 h": (site.RETAIN_BYTES, site.RETAIN_S) == (1 << 30, 86_400),
        "| connections | 256 |": server.READERS_COUNT_MAX == 256,
        "| 10 min |": server.IDLE_S == 600,
        "| 2 min |": server.SILENT_S == 120,
        "| 64 KiB |": protocol.REQUEST_BYTES_MAX == 64 << 10,
        "| 65,536, or 128 MiB |": (protocol.ROWS_COUNT_MAX, protocol.ROWS_BYTES_MAX)
        == (65_536, 1 << 27),
        "when it joins | 2 s |": site.ALONE_S == 2,
        "| 8 MiB |": site.IN_FLIGHT_BYTES_MAX == 8 << 20,
        "| 3, or 10, a second apart |": (site.FORGOTTEN_TRIES, site.RECALL_TRIES) == (3, 10),
        "remembered | 256 |": keeper.STRETCHES_COUNT_MAX == 256,
        "| 1,024 |": keeper.VIEWS_COUNT_MAX == 1024,
    }.items():
        assert text in PAGE
        assert bound, text
