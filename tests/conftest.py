"""What all tests share: marks, skips with reasons, one Spark session, and what was shown."""

from __future__ import annotations

import os
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

MARKS = {
    "rule(id, ...)": "shows that a numbered rule of a paper holds, as RMC-3",
    "catches(law, ...)": "shows that a law fails on something planted",
    "slow": "takes more than a few seconds",
    "spark": "needs Spark; all of these share one session",
    "real": "real sockets and real processes",
    "soak": "a long campaign; runs only when asked for with -m soak",
    "root": "builds network namespaces: needs root, ip and nft",
}
NAMES_SHOWN_MAX = 3

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
            # One process, so one session.
            item.add_marker(pytest.mark.xdist_group("spark"))
        if without_root and item.get_closest_marker("root"):
            item.add_marker(pytest.mark.skip(reason=without_root))
        for name in ("rule", "catches"):
            for mark in item.iter_markers(name):
                # Properties travel with the report, also from another process.
                item.user_properties.extend((name, str(shown)) for shown in mark.args)

    if "soak" not in config.option.markexpr:
        kept = [item for item in items if not item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
        items[:] = kept


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
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )
    yield session
    session.stop()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    passed = [
        (report.nodeid, name, value)
        for report in terminalreporter.stats.get("passed", ())
        if report.when == "call"
        for name, value in report.user_properties
    ]
    caught: dict[str, set[str]] = defaultdict(set)
    shown: dict[str, set[str]] = defaultdict(set)
    for nodeid, name, value in passed:
        if name == "catches":
            caught[value].add(claim(nodeid))
        elif name == "rule":
            shown[paper_of(value)].add(value)

    if caught:
        terminalreporter.section("laws seen to fail on something planted")
        width = max(map(len, caught))
        for law, tests in sorted(caught.items()):
            terminalreporter.line(f"{law:<{width}}  {len(tests):>3}  {a_few(tests)}")
    if shown:
        terminalreporter.section("rules shown")
        for paper, rules in sorted(shown.items()):
            terminalreporter.line(
                f"{paper} {len(rules):>3}  {' '.join(sorted(rules, key=by_number))}"
            )


def claim(nodeid: str) -> str:
    """The test's own name, without its path and the group xdist appends."""
    return re.sub(r"@\w+$", "", nodeid.partition("::")[2])


def paper_of(rule: str) -> str:
    """The letters before the number: RMC of RMC-3."""
    return re.split(r"[\W\d]", rule, maxsplit=1)[0]


def by_number(rule: str) -> list[int | str]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", rule)]


def a_few(tests: Iterable[str]) -> str:
    names = sorted(tests)
    more = f", and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
    return ", ".join(names[:NAMES_SHOWN_MAX]) + more
