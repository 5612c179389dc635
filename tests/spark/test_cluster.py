"""The same commands on a real cluster, with the package shipped to machines that lack it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.running import refused, unisono
from tests.conftest import JAVA_OPTIONS
from tests.documents import blocks, section
from tests.harness import ROOT, UNISONO
from tests.net.recorder import free_port
from tests.spark.cluster import Cluster, archive_of, bare_python, started
from tests.spark.sweeping import told_by_tables, told_by_verify
from tests.waiting import LIMIT_S
from unisono.cli import sparking
from unisono.errors import Misuse
from unisono.spark.session import in_words, is_interrupted
from unisono.spark.shipping import packed

SWEEP = "sweep --protocol ring,mtp --seeds 0:3 --nodes 3 --messages 10 --faults loss".split()
QUICKLY = ("--conf", f"spark.executor.extraJavaOptions={JAVA_OPTIONS}")


def command(cluster: Cluster, cwd: Path, *arguments: str, python: str = "") -> dict[str, Any]:
    """What the command says as JSON; its tasks run on the cluster, by a Python of the workers."""
    run = subprocess.run(
        [*UNISONO, *arguments, "--master", cluster.master, "--json", *QUICKLY],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYSPARK_PYTHON": python or str(cluster.python)},
        timeout=LIMIT_S,
    )
    assert run.returncode == 0, (run.stderr, logs(cwd))
    said: dict[str, Any] = json.loads(run.stdout)
    return said


def logs(folder: Path) -> str:
    """The last that the machines of the cluster said."""
    return "\n".join(path.read_text()[-2000:] for path in folder.rglob("log"))


@pytest.mark.slow
@pytest.mark.spark
def test_a_sweep_runs_on_a_cluster_and_gives_the_same_verdicts(tmp_path: Path) -> None:
    with started(tmp_path / "cluster", workers=1) as cluster:
        # Its Python comes in an archive.
        shipped = ("--conf", f"spark.archives={archive_of(cluster.python)}#env")
        arguments = (*SWEEP, "--out", "swept", *shipped)
        swept = command(cluster, tmp_path, *arguments, python="./env/bin/python")
    assert (swept["runs"], swept["simulated"], swept["failed"]) == (6, 6, 0)
    assert told_by_tables(tmp_path / "swept") == dict(told_by_verify(tmp_path / "swept/traces"))
    assert executors_of(tmp_path / "cluster") == {"worker-0"}


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(0)
def test_a_pipeline_on_a_cluster_judges_as_this_process_does(tmp_path: Path) -> None:
    with started(tmp_path / "cluster") as cluster:
        # Its Python is on the machines.
        command(cluster, tmp_path, *SWEEP, "--out", "swept")
        # What the sweep judged is not judged again, only told.
        again = ("pipeline", "swept/traces", "--out", "swept", "--conf", "spark.cores.max=1")
        told = command(cluster, tmp_path, *again)
        judged = command(cluster, tmp_path, "pipeline", "swept/traces", "--out", "judged")
    machines = executors_of(tmp_path / "cluster")
    assert machines == {"worker-0", "worker-1"}, "both workers had a part"
    assert judged["runs"] == told["runs"] == verified(tmp_path / "swept" / "traces")


def verified(traces: Path) -> dict[str, Any]:
    run = unisono("verify", str(traces), "--json")
    found: dict[str, Any] = json.loads(run.stdout)["runs"]
    assert len(found) == 6
    return found


def executors_of(folder: Path) -> set[str]:
    """The workers that were asked to run something, by what they keep of it."""
    return {path.parts[-3] for path in folder.glob("worker-*/app-*/*") if path.is_dir()}


def test_a_python_of_the_workers_lacks_the_package_until_it_is_shipped(tmp_path: Path) -> None:
    python = bare_python(tmp_path)

    def imports(name: str, path: str = "") -> bool:
        run = subprocess.run(
            [python, "-c", f"import {name}"],
            capture_output=True,
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": path},
        )
        return run.returncode == 0

    assert imports("pyarrow") and not imports("unisono")
    assert imports("unisono.spark.sweep.tasks", str(packed()))


def test_what_is_shipped_is_all_of_the_package() -> None:
    archive = packed()
    assert archive is not None
    with zipfile.ZipFile(archive) as zipped:
        names = set(zipped.namelist())
    package = ROOT / "src"
    assert names == {
        path.relative_to(package).as_posix()
        for path in (package / "unisono").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_a_missing_package_is_named_with_the_page_that_helps() -> None:
    error = RuntimeError(
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "worker.py", line 1, in main\n    import it\n'
        "ModuleNotFoundError: No module named 'pyarrow'\n"
    )
    assert in_words(error) == "the tasks' Python has no pyarrow; see docs/SPARK.md for what to ship"
    assert in_words(RuntimeError("all masters are unresponsive!\n\tat org.apache.X")) == (
        "all masters are unresponsive!"
    )
    bridge = (
        "An error occurred while calling o71.getResult.\n: org.apache.spark.SparkException: Job 3"
    )
    assert in_words(RuntimeError(bridge)) == "org.apache.spark.SparkException: Job 3"
    assert in_words(RuntimeError()) == "RuntimeError"
    gone = "unisono.feed.client.FeedGone: no feed answered\nUnboundLocalError: reader\n\tat org"
    assert (
        in_words(RuntimeError(f"Traceback (most recent call last)\n{gone}")) == "no feed answered"
    )


def test_ctrl_c_is_seen_behind_what_spark_makes_of_it() -> None:
    def interrupted() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("the job was cancelled")

    with pytest.raises(RuntimeError) as hiding:
        interrupted()
    assert is_interrupted(hiding.value)
    assert is_interrupted(KeyboardInterrupt())
    assert not is_interrupted(RuntimeError("the job was cancelled"))


def test_settings_are_read_as_spark_submit_has_them() -> None:
    texts = ["spark.executor.memory=2g", "spark.x=a=b", "spark.x=c"]
    assert sparking.conf_of(texts) == {"spark.executor.memory": "2g", "spark.x": "c"}
    for text in ("spark.x", "=1", "executor.memory=2g", "spark.a b=1"):
        with pytest.raises(Misuse, match=r"spark\.name=value"):
            sparking.conf_of([text])


@pytest.mark.parametrize("master", ["spark://127.0.0.1:{}", "spark://[::1]:{0},127.0.0.1:{0}"])
def test_a_cluster_that_is_not_there_gets_one_line(tmp_path: Path, master: str) -> None:
    nobody = master.format(free_port())
    run = unisono("sweep", "--seeds", "0:1", "--out", str(tmp_path / "out"), "--master", nobody)
    refused(run, nobody, "nothing listens there")
    assert not (tmp_path / "out").exists()


def test_the_commands_of_the_pages_are_accepted() -> None:
    """Each is parsed as it stands there; the test above runs such lines."""
    import typer.main

    from unisono.cli.app import app

    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    found = [line for title in ("Sweeps", "Clusters") for line in lines_of(title)]
    assert len(found) >= 9
    for line in found:
        words = shlex.split(line)
        start = words.index("unisono")
        name, *arguments = words[start + 1 :]
        asked = commands[name].make_context(name, list(arguments)).params
        sparking.check_master(asked["master"])
        sparking.conf_of(asked.get("conf") or ())


def lines_of(title: str) -> list[str]:
    """The commands of ours that a section shows, continued lines as one."""
    shown = "".join(blocks(section("SPARK", title), "sh"))
    lines = shown.replace("\\\n", " ").splitlines()
    return [line for line in lines if re.match(r"(\w+=\S+ )?unisono ", line)]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("OSError: [Errno 28] No space left on device", "no space left on the disk"),
        ("java.lang.OutOfMemoryError: Java heap space", "memory ran short"),
        ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate", "memory ran short"),
        ("SparkException: Python worker exited unexpectedly (crashed)", "memory ran short"),
    ],
)
def test_a_shortage_is_one_line(monkeypatch: pytest.MonkeyPatch, error: str, said: str) -> None:
    """Also out of the pages that Spark makes of a task's error."""
    stopped = SimpleNamespace(stop=lambda: None)
    monkeypatch.setattr("unisono.spark.session.open_session", lambda *_, **__: stopped)
    with pytest.raises(Misuse, match=said), sparking.session_on("local[1]", "test", {}, 0):
        raise RuntimeError(f"Job aborted\n  {error}\n  at …")
