"""The Spark session of a command: master, settings."""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from unisono.errors import Misuse, UnisonoError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER: Final = re.compile(
    r"local(\[(\*|[1-9]\d{0,3})(,\d+)?\])?|local-cluster\[.+\]|spark://.+:\d+|yarn|k8s://.+"
)
SMALL_BYTES: Final = 64 << 20
JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
"""The quick compiler's default code cache is small; `--follow` and a sweep would fill it."""
QUICK: Final[Mapping[str, str | int | bool]] = {
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.sql.adaptive.enabled": False,
    "spark.sql.shuffle.partitions": 2,
    "spark.default.parallelism": 2,
}
"""For a small trace, which never earns back good compilation and planning."""
CONNECT_S: Final = 10
NO_SPACE: Final = (
    "no space left on the disk of --out, of TMPDIR or of Spark's scratch directory: free some, or"
    " choose others"
)
NO_MEMORY: Final = (
    "memory ran short: run fewer tasks at once, as with --master local[1], or give Java more, with"
    " --conf spark.driver.memory=4g"
)
SHORTAGES: Final = {
    re.escape(os.strerror(errno.ENOSPC)): NO_SPACE,
    "OutOfMemoryError|MemoryError|Python worker exited unexpectedly": NO_MEMORY,
}
"""By what Spark's error has in it, what to say instead of its pages."""


def check_master(master: str) -> None:
    if not MASTER.fullmatch(master):
        raise Misuse(f"--master {master!r}: write local[*], spark://HOST:PORT, yarn or k8s://URL")


def check_reachable(master: str) -> None:
    """Spark itself would retry a missing master for a minute."""
    if not master.startswith("spark://"):
        return
    where = master.removeprefix("spark://").split(",")
    for each in where:
        host, _, port = each.rpartition(":")
        with suppress(OSError, ValueError, OverflowError):
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
            return
    raise Misuse(f"--master {master!r}: nothing listens there; start the master, or try local[*]")


def conf_of(texts: Iterable[str]) -> dict[str, str]:
    """Spark settings from `--conf NAME=VALUE`; the last of a name counts."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not re.fullmatch(r"spark\.[\w.-]+", name):
            raise Misuse(f"--conf {text!r}: write it as spark.name=value")
        found[name] = value
    return found


@contextmanager
def session_on(
    master: str, app: str, conf: Mapping[str, str], nbytes: int
) -> Iterator[SparkSession]:
    """A session for this much data, stopped afterwards. `conf` overrides our settings."""
    from unisono.spark.session import in_words, is_interrupted, is_local, open_session

    check_master(master)
    check_reachable(master)
    ours = QUICK if nbytes < SMALL_BYTES and is_local(master) else {}
    try:
        session = open_session(master, app, **{**ours, **conf})
    except UnisonoError:
        raise
    except Exception as error:
        remedy = "look at --conf" if conf else "try local[*]"
        raise Misuse(
            f"no Spark session on --master {master!r} ({in_words(error)}): {remedy}"
        ) from None
    try:
        yield session
    except Exception as error:
        if is_interrupted(error):
            raise KeyboardInterrupt from None
        for pattern, said in SHORTAGES.items():
            if re.search(pattern, f"{type(error).__name__}: {error}"):
                raise Misuse(f"{said}; the runs that were complete are kept") from None
        raise
    finally:
        session.stop()
