"""Simulated runs compared by their factors, and runs over days: the tables `factors` and `trends`.

The factors of a run are in the command that makes it again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from itertools import groupby
from statistics import fmean, median, stdev
from typing import Any, Final

from unisono.spark.schemas import COMPARED

FACTORS: Final = ("protocol", "faults", "nodes", "messages", "options")
# fmt: off
T_95: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
)
# fmt: on
"""Student's t for a confidence of 95 %, by degrees of freedom from 1."""
T_MANY: Final = 1.96
DAYS: Final = 7
DAYS_MIN: Final = 3
"""Of the days before one, whose mean shows whether it has changed."""
DEVIATIONS: Final = 3
DEVIATION_MIN: Final = 0.01
"""As a part of the mean: days that are all alike do not make a small difference a change."""

_NUMBER: Final = {name: re.compile(rf"--{name} (\d+)") for name in ("nodes", "messages")}
_FAULTS: Final = re.compile(r"--faults (\S+)")
_OPTION: Final = re.compile(r"--option (\S+)")

Row = Mapping[str, Any]


def factors_of(runs: Iterable[Row], measures: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """Means over equal runs, with confidence intervals of 95 % (`…_ci`: half their width; null of
    one run)."""
    known = {row["run"]: row for row in runs if row["replay"]}
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in measures:
        if row["run"] in known:
            found.setdefault(_factors(row, known[row["run"]]["replay"]), []).append(row)
    for key, mine in sorted(found.items(), key=lambda each: str(each[0])):
        row = dict(zip(FACTORS, key, strict=True))
        row |= {"runs": len(mine), "kept": sum(known[each["run"]]["kept"] is True for each in mine)}
        for name in COMPARED:
            values = [each[name] for each in mine if each[name] is not None]
            row[name] = fmean(values) if values else None
            row[f"{name}_ci"] = interval(values)
        yield row


def _factors(measure: Row, replay: str) -> tuple[Any, ...]:
    numbers = (_NUMBER[name].search(replay) for name in ("nodes", "messages"))
    faults = _FAULTS.search(replay)
    return (
        measure["protocol"],
        faults[1] if faults else "",
        *(int(each[1]) if each else None for each in numbers),
        " ".join(sorted(_OPTION.findall(replay))),
    )


def interval(values: Sequence[float]) -> float | None:
    """Half the width of the confidence interval of the mean."""
    count = len(values)
    if count < 2:
        return None
    t = T_95[count - 2] if count - 2 < len(T_95) else T_MANY
    return float(t * stdev(values) / count**0.5)


def trends_of(runs: Iterable[Row], measures: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """By protocol, members and day. `changed`: the latency is far from that of the days before."""
    known = {row["run"]: row for row in runs}

    def key(row: Row) -> tuple[str, int, date]:
        return row["protocol"], row["members"] or 0, known[row["run"]]["recorded"].date()

    ordered = sorted((row for row in measures if row["run"] in known), key=key)
    for (protocol, members), mine in groupby(ordered, lambda row: key(row)[:2]):
        before: list[float] = []
        for day, of_day in groupby(mine, lambda row: key(row)[2]):
            rows = list(of_day)
            p50_us = _median(rows, "p50_us")
            mean_us = fmean(before[-DAYS:]) if before else None
            yield {
                "protocol": protocol,
                "members": members,
                "day": day,
                "runs": len(rows),
                "kept": sum(known[row["run"]]["kept"] is True for row in rows),
                "p50_us": p50_us,
                "messages_per_s": _median(rows, "messages_per_s"),
                "mean_us": mean_us,
                "changed": p50_us is not None and _is_far(p50_us, before[-DAYS:]),
            }
            if p50_us is not None:
                before.append(p50_us)


def _is_far(value: float, before: Sequence[float]) -> bool:
    if len(before) < DAYS_MIN:
        return False
    mean = fmean(before)
    return abs(value - mean) > DEVIATIONS * max(stdev(before), DEVIATION_MIN * mean)


def _median(rows: Sequence[Row], name: str) -> float | None:
    values = [row[name] for row in rows if row[name] is not None]
    return float(median(values)) if values else None
