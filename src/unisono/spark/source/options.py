"""The options of the data source. Those of feeds are named as in Spark's Kafka source."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa

from unisono.errors import Misuse
from unisono.feed.client import PATIENCE_S
from unisono.feed.protocol import addresses
from unisono.feed.rows import SCHEMA
from unisono.log.files import FILE
from unisono.services.replica_file import FILE as REPLICA_FILE

OPTIONS: Final = tuple(
    """feed path startingOffsets endingOffsets startingTimestamp endingTimestamp
    minOffsetsPerTrigger maxOffsetsPerTrigger maxTriggerDelay failOnDataLoss
    minPartitions includeViews feedTimeout columns
    feedToken feedCa""".split()
)
ONLY_BATCH: Final = ("endingOffsets", "endingTimestamp")
ONLY_STREAM: Final = ("minOffsetsPerTrigger", "maxOffsetsPerTrigger", "maxTriggerDelay")
EARLIEST, LATEST = "earliest", "latest"
TIMESTAMP: Final = pa.field("timestamp", pa.timestamp("us", "UTC"))
COLUMNS: Final = SCHEMA.append(TIMESTAMP)
"""Those of a feed, and the time of `t_us`."""
TRIGGER_DELAY_S: Final = 900.0
PARTITIONS_MAX: Final = 10_000
_TIME: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m)?")
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}


class Moment(NamedTuple):
    """A position by time: the first offset that was logged at it or later."""

    t_us: int


Position: TypeAlias = int | str | Moment
"""An offset, `earliest` or `latest`, or a moment."""


@dataclass(frozen=True, slots=True)
class FeedOptions:
    feed: str
    """The addresses of feeds; or empty, and `directory` is a log."""
    directory: str
    starting: Position
    ending: Position
    min_offsets: int
    max_offsets: int | None
    """Per trigger."""
    delay_s: float
    """The longest time to wait for `min_offsets`."""
    fail_on_loss: bool
    """Whether data loss is an error; else a gap row reports it."""
    min_partitions: int
    views: bool
    timeout_s: float
    columns: tuple[str, ...]
    token: str | None
    """Files, on each machine that runs tasks."""
    ca: str | None


def is_feed(options: Mapping[str, str]) -> bool:
    """Whether the options name a feed or a log, not a trace."""
    if options.get("feed"):
        return True
    path = options.get("path")
    return bool(path) and (Path(directory_of(path or "", "log")) / FILE).exists()


def is_replica_log(options: Mapping[str, str]) -> bool:
    """Whether the path is the directory of a replicated log."""
    path = options.get("path")
    return bool(path) and (Path(directory_of(path or "", "log")) / REPLICA_FILE).exists()


def feed_options(options: Mapping[str, str], streaming: bool | None = None) -> FeedOptions:
    """`Misuse` names the wrong option and its values. Spark asks for the schema before it is known
    whether the read is a stream."""
    check_names(options, OPTIONS, "a feed is read with")
    feed, path = options.get("feed", ""), options.get("path", "")
    if feed and path:
        raise Misuse('both .option("feed", …) and a path are given: keep one')
    if not feed and not path:
        raise Misuse('no source: give .option("feed", "HOST:PORT") or .load("LOG DIRECTORY")')
    if feed:
        addresses(feed)
    for name in ONLY_BATCH:
        if streaming is True and name in options:
            raise Misuse(f"{name} is for batch reads: a stream has no end")
    for name in ONLY_STREAM:
        if streaming is False and name in options:
            raise Misuse(f"{name} is for streams: bound a batch by endingOffsets")
    starting = _position(options, "starting", LATEST if streaming else EARLIEST)
    ending = _position(options, "ending", LATEST)
    if ending == EARLIEST:
        raise Misuse("endingOffsets=earliest would read nothing: give latest or an offset")
    if streaming is False and starting == LATEST:
        raise Misuse("startingOffsets=latest would read nothing: give earliest or an offset")
    most = options.get("maxOffsetsPerTrigger")
    least = integer_option(
        "minOffsetsPerTrigger", options.get("minOffsetsPerTrigger", "1"), 1 << 62
    )
    if most is not None and least > integer_option("maxOffsetsPerTrigger", most, 1 << 62):
        raise Misuse(f"minOffsetsPerTrigger={least} is above maxOffsetsPerTrigger={most}")
    names = options.get("columns")
    return FeedOptions(
        feed,
        directory_of(path, "log") if path else "",
        starting,
        ending,
        least,
        None if most is None else integer_option("maxOffsetsPerTrigger", most, 1 << 62),
        _duration(options, "maxTriggerDelay", TRIGGER_DELAY_S),
        boolean_option("failOnDataLoss", options.get("failOnDataLoss", "true")),
        integer_option("minPartitions", options.get("minPartitions", "1"), PARTITIONS_MAX),
        boolean_option("includeViews", options.get("includeViews", "false")),
        timeout_s(options),
        tuple(COLUMNS.names) if names is None else columns_of(names, COLUMNS.names),
        options.get("feedToken"),
        options.get("feedCa"),
    )


def check_names(options: Iterable[str], known: Sequence[str], use: str) -> None:
    lower = {name.lower() for name in known}
    for name in options:
        if name.lower() not in lower:
            raise Misuse(f"unknown option {name!r}: {use} {', '.join(sorted(known))}")


def columns_of(text: str, names: Sequence[str]) -> tuple[str, ...]:
    wanted = tuple(name.strip() for name in text.split(","))
    if len(set(wanted)) < len(wanted) or not set(wanted) <= set(names):
        raise Misuse(f"columns={text!r}: name some of {', '.join(names)}, each once")
    return wanted


def directory_of(path: str, what: str) -> str:
    if path.startswith("file:"):
        path = "/" + path.removeprefix("file:").lstrip("/")
    if "://" in path:
        raise Misuse(f"{path}: give a directory that all machines see; a {what} is read from one")
    return os.path.abspath(path)


def offset_option(options: Mapping[str, str], name: str, default: str) -> int | str:
    text = options.get(name, default).strip().lower()
    if text in (EARLIEST, LATEST):
        return text
    if not text.isdigit() or not 0 < int(text) < 1 << 62:
        raise Misuse(f"{name}={text!r}: give earliest, latest, or an offset from 1 on")
    return int(text)


def _position(options: Mapping[str, str], which: str, default: str) -> Position:
    moment = options.get(f"{which}Timestamp")
    if moment is None:
        return offset_option(options, f"{which}Offsets", default)
    if f"{which}Offsets" in options:
        raise Misuse(f"both {which}Offsets and {which}Timestamp are given: keep one")
    text = moment.strip()
    try:
        if text.isdigit():
            return Moment(1000 * integer_option(f"{which}Timestamp", text, 1 << 52))
        found = datetime.fromisoformat(text)
    except ValueError:
        found = datetime.min
    if found.tzinfo is None:
        raise Misuse(
            f"{which}Timestamp={moment!r}: give milliseconds of Unix time, or ISO 8601 with an"
            " offset, as 2026-05-01T12:00:00+00:00"
        )
    return Moment(round(found.timestamp() * 1e6))


def integer_option(name: str, text: str, most: int) -> int:
    if not text.strip().isdigit() or not 1 <= int(text) <= most:
        raise Misuse(f"{name}={text!r}: give an integer from 1 to {most}")
    return int(text)


def boolean_option(name: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise Misuse(f"{name}={text!r}: give true or false")
    return text.strip().lower() == "true"


def timeout_s(options: Mapping[str, str]) -> float:
    return _duration(options, "feedTimeout", PATIENCE_S)


def _duration(options: Mapping[str, str], name: str, default_s: float) -> float:
    text = options.get(name)
    if text is None:
        return default_s
    match = _TIME.fullmatch(text.strip().lower())
    seconds = float(match[1]) * _UNIT_S[match[2] or "s"] if match else 0.0
    if not 0 < seconds <= 86_400:
        raise Misuse(f"{name}={text!r}: give seconds, as 60 or 60s, at most a day")
    return seconds
