"""`unisono draw` as it is typed."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.cli.running import refused, unisono
from tests.draw.histories import Tale, parsed, repaired
from unisono.cli import run
from unisono.trace.files import TraceFile


def command(*arguments: str, cwd: Path | None = None) -> CompletedProcess[str]:
    """The command in this process, which is quicker."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.chdir(cwd or "."),
    ):
        code = run(arguments)
    return CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def draw(*arguments: str, cwd: Path | None = None) -> CompletedProcess[str]:
    return command("draw", *arguments, cwd=cwd)


def written(directory: Path, tale: Tale, run: str = "r") -> Path:
    for life in sorted({(row.node, row.incarnation) for row in tale.rows}):
        file = TraceFile(directory, run, *life)
        for row in tale.rows:
            if (row.node, row.incarnation) == life:
                file.write(row)
        file.close()
    return directory


def plain() -> Tale:
    return Tale().said("a", 1000, 1).delivered("b", 1500, "a", 1)


def test_a_trace_is_drawn(tmp_path: Path) -> None:
    traces, file = written(tmp_path / "t", repaired()), tmp_path / "x.svg"
    found = unisono("draw", str(traces), "--out", str(file))
    assert found.returncode == 0, found.stderr
    assert found.stdout == f"3 members, 4 packets (1 lost, 1 sent again), 0.0 to 9.9 ms: {file}\n"
    parsed(file.read_text(encoding="utf-8"))


def test_the_run_names_the_file(tmp_path: Path) -> None:
    written(tmp_path / "t", repaired(), "or/der")
    found = draw("t", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert [path.name for path in tmp_path.glob("*.svg")] == ["or%2Fder.svg"]


def test_it_prints_json(tmp_path: Path) -> None:
    traces, file = written(tmp_path / "t", repaired()), tmp_path / "x.svg"
    found = draw(str(traces), "--out", str(file), "--max", "2", "--without", "nak", "--json")
    assert json.loads(found.stdout) == {
        "out": str(file),
        "run": "r",
        "protocol": "p",
        "group": "g",
        "from_ms": 0.0,
        "to_ms": 9.399,
        "lives": 3,
        "traced": True,
        "packets": 2,
        "lost": 1,
        "repairs": 0,
        "left_out": {"unwanted": 1, "beyond the bound": 1},
        "notes": [
            "1 packet not drawn: nak.",
            "The drawing ends at 9.400 ms: 1 of 3 packets and 1 mark come later; at most 2 packets"
            " and 8 marks are drawn.",
        ],
    }


def test_the_drawing_goes_to_standard_output(tmp_path: Path) -> None:
    traces = written(tmp_path / "t", repaired())
    found = draw(str(traces), "--out", "-", cwd=tmp_path)
    parsed(found.stdout)
    assert not list(tmp_path.glob("*.svg"))


def test_one_folder_or_one_file_selects_its_run(tmp_path: Path) -> None:
    traces = written(tmp_path / "t", repaired())
    written(traces, plain(), "other")
    whole = draw(str(traces), "--run", "r", "--out", "-").stdout
    assert draw(str(traces / "run=r"), "--out", "-").stdout == whole
    assert draw(str(traces / "run=r" / "a-1.parquet"), "--out", "-").stdout == whole


def test_without_packets_it_names_the_option_to_trace_them(tmp_path: Path) -> None:
    traces = written(tmp_path / "t", plain())
    found = draw(str(traces), "--out", str(tmp_path / "x.svg"))
    assert "1 message, " in found.stdout
    assert "--detail" in found.stdout


def several_runs(traces: Path) -> None:
    written(traces, plain(), "other")


def several_groups(traces: Path) -> None:
    tale = plain()
    tale.rows = [row._replace(group="h", node="z", sender="z") for row in tale.rows]
    written(traces, tale)


@pytest.mark.parametrize(
    ("more", "line", "words"),
    [
        (several_runs, "", ("choose one with --run: other, r",)),
        (several_groups, "", ("choose one with --group: g, h",)),
        (None, "--run nope", ("no run 'nope'", "it has r")),
        (None, "--group nope", ("no group 'nope'", "it has g")),
        (None, "--nodes a,z", ("no node 'z'", "a, b, c")),
        (None, "--nodes a,,b", ("--nodes", "commas")),
        (None, "--from-ms 90", ("nothing happens after 90 ms",)),
        (None, "--from-ms 3 --to-ms 2", ("earlier time first",)),
        (None, "--from-ms soon", ("--from-ms",)),
        (None, "--to-ms inf", ("inf",)),
        (None, "--max 0", ("--max",)),
        (None, "--out nowhere/x.svg", ("cannot write nowhere/x.svg",)),
        (None, "--out - --json", ("--json and --out -",)),
    ],
)
def test_bad_input_gets_one_clear_line(
    tmp_path: Path, more: Callable[[Path], None] | None, line: str, words: tuple[str, ...]
) -> None:
    written(tmp_path / "t", repaired())
    if more is not None:
        more(tmp_path / "t")
    refused(draw("t", *line.split(), cwd=tmp_path), *words)
    assert not list(tmp_path.rglob("*.svg"))


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("x")
    refused(draw(str(tmp_path / "nowhere")), "no such directory")
    refused(draw(str(tmp_path / "x.txt")), "not a file of a trace")
    refused(draw(str(tmp_path)), "no trace in it")


def test_sim_traces_what_draw_shows(tmp_path: Path) -> None:
    line = "sim --nodes 3 --messages 6 --faults loss --trace t --detail"
    assert unisono(*line.split(), cwd=tmp_path).returncode == 0
    told = json.loads(draw("t", "--json", cwd=tmp_path).stdout)
    assert told["traced"] and told["lost"] and told["repairs"]
    refused(unisono("sim", "--detail"), "--trace DIR")
    refused(unisono("sim", "--seeds", "0:2", "--detail"), "--detail is for one run")


def test_it_has_help() -> None:
    found = unisono("draw", "--help")
    assert found.returncode == 0
    assert "--json" in found.stdout and "--from-ms" in found.stdout
    assert "draw" in unisono("--help").stdout
