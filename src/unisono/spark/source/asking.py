"""The options of reading a feed, as users of Spark's Kafka source know them, checked."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from unisono.errors import Misuse
from unisono.feed.client import PATIENCE_S
from unisono.feed.protocol import addresses
from unisono.feed.rows import SCHEMA
from unisono.log.files import FILE

OPTIONS: Final = {
    name.lower(): name
    for name in """feed path startingOffsets endingOffsets maxOffsetsPerTrigger failOnDataLoss
    minPartitions includeViews feedTimeout columns""".split()
}
EARLIEST, LATEST = "earliest", "latest"
PARTITIONS_MAX: Final = 10_000
_TIME: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m)?")
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """What is read, and how."""

    feed: str
    """Where feeds listen; or nothing, and `directory` is a log."""
    directory: str
    starting: int | str
    """A place, or a word."""
    ending: int | str
    max_places: int | None
    """Of one trigger."""
    fail: bool
    """Whether something lost is an error, or a row that says so."""
    min_partitions: int
    views: bool
    patience_s: float
    columns: tuple[str, ...]
    """In this order."""


def is_feed(options: Mapping[str, str]) -> bool:
    """Whether these options are about a feed or a log, and not about a trace."""
    if options.get("feed"):
        return True
    return bool(options.get("path")) and (_directory(options["path"]) / FILE).exists()


def feed_options(options: Mapping[str, str], streaming: bool | None = None) -> FeedOptions:
    """Read once; `Misuse` says which option is wrong, and what it may be. Whether it is for a
    stream is not known when Spark asks for the columns."""
    for name in options:
        if name.lower() not in OPTIONS:
            known = ", ".join(sorted(OPTIONS.values()))
            raise Misuse(f"unknown option {name!r}: a feed is read with {known}")
    feed, path = options.get("feed", ""), options.get("path", "")
    if feed and path:
        raise Misuse('both .option("feed", …) and a path are given: keep the one to be read')
    if not feed and not path:
        raise Misuse('what is read? .option("feed", "HOST:PORT"), or .load("LOG DIRECTORY")')
    if feed:
        addresses(feed)
    if streaming is True and "endingOffsets" in options:
        raise Misuse("endingOffsets is for batch reads: a stream has no end")
    if streaming is False and "maxOffsetsPerTrigger" in options:
        raise Misuse("maxOffsetsPerTrigger is for streams: bound a batch by endingOffsets")
    starting = _offset(options, "startingOffsets", LATEST if streaming else EARLIEST)
    ending = _offset(options, "endingOffsets", LATEST)
    if ending == EARLIEST:
        raise Misuse("endingOffsets=earliest would read nothing: write latest, or a place")
    if streaming is False and starting == LATEST:
        raise Misuse("startingOffsets=latest would read nothing: write earliest, or a place")
    most = options.get("maxOffsetsPerTrigger")
    return FeedOptions(
        feed,
        str(_directory(path)) if path else "",
        starting,
        ending,
        None if most is None else _number("maxOffsetsPerTrigger", most, 1, 1 << 62),
        _yes("failOnDataLoss", options.get("failOnDataLoss", "true")),
        _number("minPartitions", options.get("minPartitions", "1"), 1, PARTITIONS_MAX),
        _yes("includeViews", options.get("includeViews", "false")),
        _seconds(options.get("feedTimeout")),
        _columns(options.get("columns")),
    )


def _columns(text: str | None) -> tuple[str, ...]:
    if text is None:
        return tuple(SCHEMA.names)
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in SCHEMA.names or names.count(name) > 1:
            raise Misuse(f"columns={text!r}: name some of {', '.join(SCHEMA.names)}, each once")
    return names


def _directory(path: str) -> Path:
    if path.startswith("file:"):
        path = "/" + path.removeprefix("file:").lstrip("/")
    if "://" in path:
        raise Misuse(f"{path}: a log is read from a directory that all machines see")
    return Path(os.path.abspath(path))


def _offset(options: Mapping[str, str], name: str, default: str) -> int | str:
    text = options.get(name, default).strip()
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    if not text.isdigit() or not 0 < int(text) < 1 << 62:
        raise Misuse(f"{name}={text!r}: write earliest, latest, or a place from 1 on")
    return int(text)


def _number(name: str, text: str, least: int, most: int) -> int:
    if not text.strip().isdigit() or not least <= int(text) <= most:
        raise Misuse(f"{name}={text!r}: write a whole number from {least} to {most}")
    return int(text)


def _yes(name: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise Misuse(f"{name}={text!r}: write true or false")
    return text.strip().lower() == "true"


def _seconds(text: str | None) -> float:
    if text is None:
        return PATIENCE_S
    match = _TIME.fullmatch(text.strip().lower())
    seconds = float(match[1]) * _UNIT_S[match[2] or "s"] if match else 0.0
    if not 0 < seconds <= 86_400:
        raise Misuse(f"feedTimeout={text!r}: write seconds, as 60 or 60s, at most a day")
    return seconds
