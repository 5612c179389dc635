"""Opens a quiet Spark session without manual set-up."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from unisono.errors import Misuse
from unisono.spark.java import find_java
from unisono.spark.shipping import ship

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGGING = Path(__file__).parent / "conf" / "log4j2.properties"
RAISED = re.compile(
    r"(?!py4j|org|java|pyspark)[A-Za-z_][\w.]*(?:Error|Exception|Misuse|BadTrace): "
)
"""The last line of a Python traceback."""
OURS = re.compile(r"unisono(?:\.\w+)+: ")
"""The same, of an error of this package: Spark may raise another while it reports it."""
MESSAGE_MAX = 300
CALLING = "An error occurred while calling "
"""The beginning of messages of Py4J, which carry no information."""

QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Otherwise each column reference makes several calls to Java to find its line of code.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Otherwise Spark 4.3 computes the size of a batch for Python row by row.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
}
HEAP_SHARE = 16
HEAP_MIB_MIN, HEAP_MIB_MAX = 1024, 8192
"""The heap of a local session, as part of the machine's memory: tasks keep rows in Python."""

LOOPBACK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def open_session(
    master: str = "local[*]", app: str = "unisono", **conf: str | int | bool
) -> SparkSession:
    """A session on this master. `conf` are Spark settings, which override ours.

    >>> spark = open_session("local[2]", **{"spark.sql.shuffle.partitions": 2})
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as missing:
        raise Misuse("the Spark pipeline needs pip install 'unisono[spark]'") from missing

    os.environ["JAVA_HOME"] = str(find_java().home)
    _set_python(conf)
    if "SPARK_CONF_DIR" not in os.environ and not _is_set_up(os.environ.get("SPARK_HOME")):
        # By file: a configuration directory on the class path would disable the class archive.
        os.environ.setdefault("LOG4J_CONFIGURATION_FILE", str(LOGGING))

    settings: dict[str, str | int | bool] = dict(QUIET)
    if on_this_machine(master):
        # A cluster cannot reach a driver on loopback.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= LOOPBACK
    if is_local(master):
        settings["spark.driver.memory"] = f"{_heap_mib()}m"
    settings |= conf

    builder = SparkSession.builder.master(master).appName(app)
    for name, value in settings.items():
        builder = builder.config(name, as_text(value))
    session = builder.getOrCreate()
    if not is_local(master):
        ship(session)
    return session


def _heap_mib() -> int:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return max(HEAP_MIB_MIN, min(machine // HEAP_SHARE, HEAP_MIB_MAX))


def _is_set_up(home: str | None) -> bool:
    """Whether this Spark installation has its own settings, which ours would hide."""
    return bool(home) and (Path(str(home)) / "conf" / "spark-defaults.conf").is_file()


def _set_python(conf: Mapping[str, str | int | bool]) -> None:
    """Otherwise workers take the python3 on PATH, without our packages."""
    if chosen := conf.get("spark.pyspark.python"):
        # Spark reads this setting only in programs that it starts itself.
        os.environ["PYSPARK_PYTHON"] = str(chosen)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def in_words(error: BaseException) -> str:
    """Spark's error, which is pages long, as one line: the exception of a task if there is one."""
    lines = [line.strip(" \t:") for line in str(error).splitlines()]
    lines = [line for line in lines if line and not line.startswith(CALLING)]
    raised = [line for line in lines if OURS.match(line)]
    raised = raised or [line for line in lines if RAISED.match(line)]
    said = (raised or lines or [type(error).__name__])[-1 if raised else 0]
    if match := re.match(r"ModuleNotFoundError: No module named '([\w.]+)'", said):
        return f"the tasks' Python has no {match[1]}; see docs/SPARK.md for what to ship"
    ours = OURS.match(said)
    return said[ours.end() if ours else 0 :][:MESSAGE_MAX]


def is_interrupted(error: BaseException) -> bool:
    """Whether the cause was Ctrl-C: Spark may fail while stopping and hide it."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, KeyboardInterrupt):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def on_this_machine(master: str) -> bool:
    """Whether every process of this master runs here."""
    return master.startswith(("local", "spark://127.0.0.1", "spark://localhost"))


def is_local(master: str) -> bool:
    """Whether the tasks run in the driver's JVM."""
    return master == "local" or master.startswith("local[")


def as_text(value: str | int | bool) -> str:
    """A setting in Spark's spelling: true, not True."""
    return str(value).lower() if isinstance(value, bool) else str(value)
