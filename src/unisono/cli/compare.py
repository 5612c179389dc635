"""`unisono bench all`: from options to a plan, from measurements to a table, JSON and a page."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from unisono.bench.checkout import extras
from unisono.bench.hosts import check
from unisono.bench.line_protocol import SIZE_MIN
from unisono.bench.measure import ALL, BenchPlan, BenchRun
from unisono.bench.own import PREFIX, VIAS, UnisonoSystem, ordered_protocols
from unisono.bench.results import PERCENTILES, RowKey, figure
from unisono.bench.system import System
from unisono.cli import OK, STOPPED, refuse, terminable
from unisono.cli.options import integer, options_of
from unisono.cli.show import err, out, print_json, status
from unisono.errors import Misuse
from unisono.model import Service, level_named

MEMBERS_MIN, MEMBERS_MAX = 2, 64
SIZE_MAX: Final = 16 << 20
SIZE = re.compile(r"(\d{1,9})([kKmM]?)")
UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20}
WIDTH: Final = 120
RESULTS, PAGE = "results.json", "bench.html"


def compare(given: Mapping[str, Any], as_json: bool) -> int:
    """Run the plan of these options; show, print or write what was measured."""
    plan = plan_of(given)
    systems = systems_of(given)
    check(plan.net)
    render = extras("--out").page if "out" in given else None
    directory = _directory(given.get("out"))
    console = err()
    about = about_here(plan)
    with status("the members start …") as spinner, terminable():

        def progress(text: str) -> None:
            if spinner is not None:
                spinner.update(f"{text} …")

        def warn(text: str) -> None:
            console.print(f"unisono: {text}", markup=False)

        found = BenchRun(plan, systems, progress, warn).run()
    results = found.as_json(about)
    if not results["results"]:
        why = found.troubles or [*found.skipped.values()] or ["no system was requested"]
        return refuse(f"nothing was measured: {why[0]}", STOPPED)
    if directory is not None and render is not None:
        (directory / RESULTS).write_text(json.dumps(results, indent=1) + "\n")
        (directory / PAGE).write_text(render(results))
    if as_json:
        print_json(results)
        return OK
    show(results)
    if directory is not None:
        out().print(f"written: {directory / RESULTS}, {directory / PAGE}", markup=False)
    return OK


def _directory(directory: Path | None) -> Path | None:
    if directory is None:
        return None
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Misuse(f"--out {str(directory)!r}: {error.strerror}") from None
    return directory


# -- options -------------------------------------------------------------------------------------


def plan_of(given: Mapping[str, Any]) -> BenchPlan:
    """The options given, checked; the others keep the plan's defaults."""
    fields = {name: given[name] for name in PLAIN if name in given}
    if "warm" in given:
        fields["warm_s"] = given["warm"]
    for name, (field, read) in LISTED.items():
        if name in given:
            fields[field] = tuple(map(read, _each(given[name])))
    if "state_bytes" in fields and not fields.get("recovery"):
        raise Misuse("--state-bytes is the state of a joiner: give --recovery too")
    plan = BenchPlan(**fields)
    if min(plan.senders, default=ALL) > max(plan.members):
        raise Misuse(f"--senders {min(plan.senders)}: the group has {max(plan.members)} members")
    return plan


def _each(texts: Sequence[str]) -> list[str]:
    """Values separated by commas, or the option repeated; duplicates dropped."""
    return list(dict.fromkeys(word.strip() for text in texts for word in text.split(",")))


def _members(text: str) -> int:
    count = integer(text, "--members")
    if not MEMBERS_MIN <= count <= MEMBERS_MAX:
        raise Misuse(f"--members {count}: from {MEMBERS_MIN} to {MEMBERS_MAX}")
    return count


def _size(text: str) -> int:
    found = SIZE.fullmatch(text)
    if not found:
        raise Misuse(f"--size {text!r}: write bytes, as 64, 1000, 64k or 1M")
    size = int(found[1]) * UNITS[found[2].lower()]
    if not SIZE_MIN <= size <= SIZE_MAX:
        raise Misuse(f"--size {text}: from {SIZE_MIN} bytes to {SIZE_MAX >> 20}M")
    return size


def _senders(text: str) -> int:
    if text == "all":
        return ALL
    count = integer(text, "--senders")
    if count < 1:
        raise Misuse(f"--senders {count}: at least 1, or all")
    return count


def _service(text: str) -> str:
    if level_named(text) is None:
        levels = ", ".join(each.name.lower() for each in Service)
        raise Misuse(f"--service {text!r}: write one of {levels}, resilient(2), resilient(all)")
    return text.lower()


def _load_share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise Misuse(f"--load {text!r}: give shares of the peak between 0 and 1, as 0.25,0.75")
    return share


def _via(text: str) -> str:
    if text not in VIAS:
        raise Misuse(f"--via {text!r}: write {' or '.join(VIAS)}")
    return text


PLAIN: Final = ("net", "seconds", "rounds", "recovery", "state_bytes")
LISTED: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "members": ("members", _members),
    "size": ("sizes", _size),
    "senders": ("senders", _senders),
    "service": ("services", _service),
    "via": ("vias", _via),
    "load": ("loads", _load_share),
}
"""Options of several values: the field of the plan, and how a value is read."""


def systems_of(given: Mapping[str, Any]) -> list[System]:
    """Our protocols first, then the peers in the order given."""
    options = options_of(given.get("option", ()))
    ours: list[System] = [
        UnisonoSystem(protocol, options)
        for protocol in _each(given.get("protocol", ordered_protocols()))
    ]
    names = _each(given.get("peer", ()))
    known = extras("--peer").peers() if names else {}
    if "all" in names:
        return ours + list(known.values())
    if unknown := [name for name in names if name not in known]:
        raise Misuse(f"no peer {unknown[0]!r}: there is {', '.join(known)}, or all")
    return ours + [known[name] for name in names]


def about_here(plan: BenchPlan) -> dict[str, Any]:
    """What the figures depend on."""
    from datetime import UTC, datetime

    return {
        "net": plan.net,
        "seconds": plan.seconds,
        "warm_s": plan.warm_s,
        "rounds": plan.rounds,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0,
        "load_before": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "date": datetime.now(UTC).date().isoformat(),
    }


# -- results -------------------------------------------------------------------------------------


def show(results: Mapping[str, Any]) -> None:
    screen, about = out(), results["about"]
    rounds = "one round" if about["rounds"] == 1 else f"medians of {about['rounds']} rounds"
    screen.print(
        f"[bold]bench[/]  {about['net']}, {rounds}, {about['seconds']:g} s each. A message counts"
        " when every member has it; delays in µs, of a lone message and at half of the peak; CPU in"
        " µs a message, all processes; memory in MB, the largest"
    )
    # At its full width: wrapped cells cannot be read.
    screen.width = max(screen.width, WIDTH)
    screen.print(_table(results["results"]))
    for line in _ratios(results["results"]):
        screen.print(line, markup=False)
    for each in results["recovery"]:
        line = f"{_label(each)}: a killed member costs {each['recovery_ms']['median']:,.0f} ms"
        if "join_ms" in each:
            line += (
                f", one that joins with {each['state_octets']:,} bytes of state"
                f" {each['join_ms']['median']:,.0f} ms"
            )
        screen.print(line, markup=False)
    if about["load_before"] > about["cores"] / 2:
        screen.print(f"[yellow]the machine was busy: load {about['load_before']}[/]")


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    for name in ("messages/s", "MB/s", "p50", "p99", "half: p50", "p99", "CPU", "memory"):
        table.add_column(name, justify="right", no_wrap=True)
    for load, group in groupby(rows, key=_load):
        table.add_row(f"[bold]{load}[/]")
        for row in group:
            table.add_row(
                f"  {_label(row)}",
                figure(row["messages_per_s"]),
                figure(row["megabytes_per_s"]),
                *_delays(row["latency_us"]),
                *_delays(row["loaded_latency_us"]),
                figure(row["cpu_us_per_message"]),
                figure(row["rss_mb_max"]),
            )
    return table


def _load(row: Mapping[str, Any]) -> str:
    return f"{row['size']:,} B, {row['senders']} of {row['members']} send"


def _label(row: Mapping[str, Any]) -> str:
    return RowKey(row["system"], row["service"], row["via"], 0, 0, 0).label


def _delays(delays: Mapping[str, float] | None) -> list[str]:
    return [figure(delays[name]) if delays else "–" for name in PERCENTILES]


def _ratios(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Our throughput as a multiple of each peer's, one line per workload."""
    for row in rows:
        if row["system"].startswith(PREFIX):
            peers = {
                name: ratio for name, ratio in row["against"].items() if not name.startswith(PREFIX)
            }
            if peers:
                ratios = ", ".join(f"{figure(ratio)} × {name}" for name, ratio in peers.items())
                yield f"{_label(row)}, {_load(row)}: {ratios}"
