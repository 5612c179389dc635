"""A real standalone cluster on the loopback interface: a master, two workers, and for their tasks a
Python that has what Unisono stands on, but not Unisono itself."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import sysconfig
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.net.recorder import free_port
from tests.waiting import LIMIT_S
from unisono.spark.java import find_java


class Cluster(NamedTuple):
    master: str
    python: Path
    """For the tasks."""


@contextlib.contextmanager
def started(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """The cluster; its processes end with the `with`, whatever happened."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    running: list[subprocess.Popen[bytes]] = []
    try:
        named = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        running.append(spark_class(folder / "master", "master.Master", *named))
        until_open(port, running[0])
        for number in range(workers):
            place = folder / f"worker-{number}"
            words = ("--host", "127.0.0.1", "--webui-port", "0", "-c", "1", "-m", "1g")
            running.append(spark_class(place, "worker.Worker", *words, "-d", str(place), master))
        yield Cluster(master, bare_python(folder))
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait(10)


def spark_class(place: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    """One of Spark's programs from the installed package, in a directory of its own."""
    import pyspark

    home = Path(pyspark.__file__).parent
    place.mkdir(parents=True)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PY", "SPARK"))
    }
    environment |= {
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    with (place / "log").open("wb") as log:
        return subprocess.Popen(
            [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            cwd=place,
            env=environment,
        )


def bare_python(folder: Path) -> Path:
    """A Python as on a machine where nobody installed Unisono: its packages are those of this
    environment, without what makes a checkout importable."""
    script = folder / "python"
    packages = sysconfig.get_paths()["platlib"]
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {base} "$@"\n')
    script.chmod(0o755)
    return script


def archive_of(python: Path) -> Path:
    """The same Python as `bin/python` of an archive, as venv-pack makes them."""
    place = python.parent / "env.tar.gz"
    with tarfile.open(place, "w:gz") as archive:
        archive.add(python, "bin/python")
    return place


def until_open(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise AssertionError(f"the master did not start: it ended with {process.poll()}")
