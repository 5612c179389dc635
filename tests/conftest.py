"""What all tests share: marks, skips with reasons, one Spark session. What tests show, by their
marks, is gathered in `tests/rules`."""

from __future__ import annotations

import inspect
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.net.recorder import free_port
from tests.waiting import run_story

pytest_plugins = ("tests.rules.plugin",)

MARKS = {
    "slow": "takes more than a few seconds",
    "spark": "needs Spark; all of these share one session",
    "real": "real sockets and real processes",
    "soak": "a long campaign; runs only when asked for with -m soak",
    "root": "builds network namespaces: needs root, ip and nft",
}

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
"""Compile quickly rather than well. The small cache that goes with it would be full within a minute
of these tests, and Java would compile nothing from then on."""

# For the Spark of commands that tests start, too.
os.environ.setdefault("SPARK_SUBMIT_OPTS", JAVA_OPTIONS)

# Machines that run tests are busy: how long an example takes says nothing about the code.
settings.register_profile(
    "unisono", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("unisono")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write what happened into the scenario files"
    )


def pytest_configure(config: pytest.Config) -> None:
    for mark, meaning in MARKS.items():
        config.addinivalue_line("markers", f"{mark}: {meaning}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    without_root = why_not_root()
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("spark"):
            # One process, so one session; those that start Spark elsewhere need not wait for it.
            shares = "spark" in getattr(item, "fixturenames", ())
            item.add_marker(pytest.mark.xdist_group("spark" if shares else "spark apart"))
        if without_root and item.get_closest_marker("root"):
            item.add_marker(pytest.mark.skip(reason=without_root))

    if "soak" not in config.option.markexpr:
        soak = [item for item in items if item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=soak)
        items[:] = [item for item in items if not item.get_closest_marker("soak")]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs in an event loop of its own, or of its `world`."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    getattr(given.get("world"), "run_story", run_story)(test(**given))
    return True


@pytest.fixture
def port() -> int:
    """A port for a group of the test's own."""
    return free_port()


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory for sockets: a short one, since their paths are bounded."""
    with tempfile.TemporaryDirectory(prefix="uni") as found:
        yield Path(found)


def why_not_root() -> str:
    """Why tests marked `root` cannot run here; empty when they can."""
    if os.geteuid() != 0:
        return "needs root, to build network namespaces"
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    missing = [name for name in ("ip", "nft") if not shutil.which(name, path=path)]
    if missing:
        return f"needs {' and '.join(missing)} (packages iproute2 and nftables)"
    return ""


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether scenarios are to be written instead of compared."""
    return bool(request.config.getoption("--rewrite"))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The one Spark session, set for many small jobs rather than a few large ones."""
    pytest.importorskip("pyspark", reason="needs pip install 'unisono[spark]'")
    from unisono.spark.session import open_session

    session = open_session(
        "local[2]",
        "unisono-tests",
        **{
            "spark.sql.shuffle.partitions": 2,
            "spark.default.parallelism": 2,
            "spark.sql.adaptive.enabled": False,
            "spark.sql.streaming.noDataMicroBatches.enabled": False,
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        },
    )
    yield session
    session.stop()
