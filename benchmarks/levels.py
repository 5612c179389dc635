"""What each level of service costs, as curves: delay over the group and the load, and throughput.

    python -m benchmarks.levels             seven minutes: pictures in docs/figures, and the table
    python -m benchmarks.levels --quick     half a minute, only to see that it works

Every level of `rmp` beside those of `ring` and `mtp`, and a packet between bare sockets: all in one
run, by `unisono.bench`.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.marks import fill
from benchmarks.peers import peers
from unisono.bench.checkout import ROOT
from unisono.bench.measure import BenchPlan, BenchRun
from unisono.bench.own import UnisonoSystem
from unisono.bench.results import figure as shown
from unisono.bench.system import System
from unisono.cli.compare import about_here
from unisono.draw.labels import CATEGORIES, OTHER, QUIET
from unisono.draw.svg import document, path, tag, text_of, words
from unisono.spark.plots import Axis, logarithmic

LEVELS: Final[Mapping[str, str]] = {
    "rmp": "unreliable reliable fifo agreed resilient(2) resilient(majority) resilient(all)",
    "ring": "fifo agreed safe",
    "mtp": "fifo agreed",
}
FULL: Final = BenchPlan(
    members=(3, 5, 8), sizes=(64,), senders=(1,), loads=(0.1, 0.25, 0.75), seconds=0.5, rounds=1
)
QUICK: Final = BenchPlan(
    members=(2, 3), sizes=(64,), senders=(1,), loads=(0.25,), seconds=0.1, warm_s=0.0, rounds=1
)
OUT: Final = ROOT / "docs" / "figures"
BEGIN: Final = "<!-- python -m benchmarks.levels: begin; what follows is written by the command -->"
END: Final = "<!-- python -m benchmarks.levels: end -->"
WIDTH, HEIGHT = 720.0, 420.0
LEFT, RIGHT, TOP, BOTTOM = 70.0, 210.0, 84.0, 60.0
INKS: Final = tuple(each for each in CATEGORIES if each not in (OTHER, QUIET))

Row = Mapping[str, Any]
Point = tuple[float, float]


class LevelsPicture(NamedTuple):
    """A picture: lines over the group's size, or over the load of its smallest group."""

    name: str
    title: str
    across: str
    unit: str
    points: Callable[[Row], list[Point]]


def _lone(row: Row) -> list[Point]:
    return [(row["members"], row["latency_us"]["p50"])]


def _loaded(row: Row) -> list[Point]:
    return [(float(share), each["p50"]) for share, each in row["latency_by_load_us"].items()]


def _rate(row: Row) -> list[Point]:
    return [(row["members"], row["messages_per_s"])]


PICTURES: Final = (
    LevelsPicture("levels-group", "Delay of a lone message", "members", "µs, median", _lone),
    LevelsPicture(
        "levels-load", "Delay under load", "share of the level's own peak", "µs, median", _loaded
    ),
    LevelsPicture("levels-rate", "Throughput of one sender", "members", "messages a second", _rate),
)


def systems() -> list[System]:
    found: list[System] = [peers()["raw"]]
    for protocol, levels in LEVELS.items():
        system = UnisonoSystem(protocol)
        system.services = tuple(levels.split())
        found.append(system)
    return found


def label(row: Row) -> str:
    return f"{row['system'].removeprefix('unisono-')} {row['service']}"


def lines_of(rows: Sequence[Row], picture: LevelsPicture) -> dict[str, list[Point]]:
    """A line for each level; over the load, of the smallest group."""
    least = min(row["members"] for row in rows)
    found: dict[str, list[Point]] = {}
    for row in rows:
        is_raw = row["system"] == "raw"  # Its small messages share packets: no throughput to show.
        if not (is_raw and picture.points is not _lone) and (
            picture.points is not _loaded or row["members"] == least
        ):
            found.setdefault(label(row), []).extend(picture.points(row))
    return {name: sorted(points) for name, points in found.items()}


# -- pictures --------------------------------------------------------------------------------------


def drawn(rows: Sequence[Row], picture: LevelsPicture, subtitle: str) -> str:
    lines = lines_of(rows, picture)
    points = [point for line in lines.values() for point in line]
    ticks = sorted({x for x, _ in points})
    low, wide = math.log(ticks[0]), math.log(ticks[-1] / ticks[0]) or 1.0
    across = Axis([(x, f"{x:g}") for x in ticks], lambda x: (math.log(x) - low) / wide, "")
    up = logarithmic(min(y for _, y in points), max(y for _, y in points), picture.unit)
    # The legend is in the order of the lines' ends.
    order = sorted(lines, key=lambda name: -lines[name][-1][1])
    parts = [
        words(24, 30, picture.title, "head"),
        words(24, 49, subtitle, "faint small"),
        *_grid(across, up, picture.across),
    ]
    for at, name in enumerate(order):
        places = [_place(across, up, point) for point in lines[name]]
        dash = {"ring": "dash", "mtp": "dots"}.get(name.split()[0], "")
        dots = [tag("circle", cx=x, cy=y, r=3.0, class_="tip") for x, y in places]
        y = TOP + 8 + at * 19
        key = path((WIDTH - RIGHT + 24, y - 4), (WIDTH - RIGHT + 48, y - 4), kind=dash)
        key += words(WIDTH - RIGHT + 54, y, name, "small")
        line = path(*places, kind=dash) + "".join(dots) + key
        parts.append(tag("g", tag("title", text_of(name)) + line, class_=f"packet {ink_of(name)}"))
    return document(picture.title, WIDTH, HEIGHT, parts)


def ink_of(name: str) -> str:
    """The same for a level in each picture; protocols differ by their dashes."""
    protocol, level = name.split()
    levels = LEVELS.get(protocol, "").split()
    return INKS[levels.index(level)] if level in levels else OTHER


def _place(across: Axis, up: Axis, point: Point) -> Point:
    x = LEFT + 12 + across.position(point[0]) * (WIDTH - LEFT - RIGHT - 24)
    return x, HEIGHT - BOTTOM - up.position(point[1]) * (HEIGHT - TOP - BOTTOM)


def _grid(across: Axis, up: Axis, title: str) -> Iterator[str]:
    floor = HEIGHT - BOTTOM
    for value, text in up.ticks:
        _, y = _place(across, up, (across.ticks[0][0], value))
        yield tag("g", path((LEFT, y), (WIDTH - RIGHT, y)), class_="hair")
        yield words(LEFT - 8, y + 4, text, "faint small", "end")
    for value, text in across.ticks:
        x, _ = _place(across, up, (value, up.ticks[0][0]))
        yield words(x, floor + 19, text, "faint small", "middle")
    yield words((LEFT + WIDTH - RIGHT) / 2, floor + 40, title, "small", "middle")
    yield words(24, TOP - 14, up.title, "small")


# -- the page --------------------------------------------------------------------------------------


def table(rows: Sequence[Row]) -> Iterator[str]:
    counts = sorted({row["members"] for row in rows})
    shares = sorted({float(share) for row in rows for share in row["latency_by_load_us"]})
    head = [f"alone, {count}" for count in counts]
    head += [f"at {share:g} of the peak, {counts[0]}" for share in shares]
    yield (
        "| µs, median; members | "
        + " | ".join([*head, *(f"messages/s, {n}" for n in counts)])
        + " |"
    )
    yield "|---|" + "---:|" * (len(head) + len(counts))
    pictures = [lines_of(rows, each) for each in PICTURES]
    for name in dict.fromkeys(map(label, rows)):
        lone, loaded, rate = (dict(lines.get(name, ())) for lines in pictures)
        cells = [lone.get(n) for n in counts] + [loaded.get(share) for share in shares]
        cells += [rate.get(n) for n in counts]
        yield f"| {name} | " + " | ".join(shown(each) if each else "" for each in cells) + " |"


def compared(rows: Sequence[Row]) -> Iterator[str]:
    """What the levels are measured against."""
    lone, rate = (lines_of(rows, PICTURES[at]) for at in (0, 2))
    for count, _ in lone.get("raw unreliable", ()):
        floor, found = (
            dict(lone["raw unreliable"])[count],
            dict(lone.get("rmp fifo", ())).get(count),
        )
        if found:
            yield (
                f"Of {count:g} members, a lone `fifo` message takes {found / floor:.1f} times as"
                " long as a packet between bare sockets."
            )
    for count, theirs in rate.get("ring agreed", ()):
        ours = dict(rate.get("rmp agreed", ())).get(count)
        if ours:
            yield f"Of {count:g} members, `rmp` orders {ours / theirs:.2f} times as much as `ring`."


def keep(out: Path, results: Mapping[str, Any]) -> list[Path]:
    """Write the pictures and the figures, and fill in the page beside or above them."""
    rows, about = results["results"], results["about"]
    subtitle = (
        f"64 bytes, one sender; {about['cores']} cores, load {about['load_before']:g} before,"
        f" Python {about['python']}, {about['date']}"
    )
    out.mkdir(parents=True, exist_ok=True)
    written = [out / "levels.json"]
    written[0].write_text(json.dumps(results, separators=(",", ":")) + "\n", encoding="utf-8")
    for each in PICTURES:
        written.append(out / f"{each.name}.svg")
        written[-1].write_text(drawn(rows, each, subtitle), encoding="utf-8")
    parts = [f"{subtitle}.", *(f"![{p.title}](figures/{p.name}.svg)" for p in PICTURES)]
    parts += ["\n".join(table(rows)), "\n".join(f"- {line}" for line in compared(rows))]
    page = out.parent / "BENCHMARKS.md"
    if page.is_file() and fill(page, BEGIN, END, parts):
        written.append(page)
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    plan = QUICK if asked.quick else FULL
    about = about_here(plan)
    found = BenchRun(plan, systems(), lambda text: print(text, flush=True), print).run()
    print("written:", *keep(asked.out, found.as_json(about)))


if __name__ == "__main__":
    main()
