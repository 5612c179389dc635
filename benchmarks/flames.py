"""Where the time of a sender and of a receiver goes: flame graphs of a lone message, of 1,000 bytes
and of 1 MiB, of this tree below those of an earlier one.

    python -m benchmarks.flames                        a minute and a half; needs py-spy
    python -m benchmarks.flames --before SRC           also sample the tree whose `src` this is

Samples are folded stacks; those of the earlier tree are kept in docs/figures/flames.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from unisono.bench.checkout import ROOT
from unisono.draw.labels import DATA, JOIN, OTHER, QUIET, STATE, TOKEN
from unisono.draw.svg import COLOURS, document, tag, text_of, words

OUT: Final = ROOT / "docs" / "figures"
SECONDS: Final = 8.0
"""Of each measurement of the bench: messages as fast as they go, then lone ones."""
SAMPLED_S: Final = 5
RATE: Final = 400
START_S: Final = 30.0
LOOK_S: Final = 0.25
STEADY: Final = 6
"""Looks in a row that find the sender busy, or not."""
BUSY: Final = 0.3
MEMBER: Final = "unisono.bench.member"
ROLES: Final = {"sender": "m0", "receiver": "m1"}
WIDTH, ROW, LEFT, TOP = 1080.0, 15.0, 10.0, 62.0
NARROW: Final = 0.004
"""Of all: narrower frames are not drawn."""
CHARACTER: Final = 6.2
ROOMS: Final = {
    "protocols": (DATA, "protocol"),
    "parts": (JOIN, "parts, codec"),
    "net": (TOKEN, "sockets, stream"),
    "group": (STATE, "group"),
    "bench": (OTHER, "the bench's own"),
}
ELSEWHERE: Final = (QUIET, "asyncio, Python")
LOOP: Final = ("_run_once", "run_forever", "_run")
"""Frames below these are the same for all."""

Stacks = Mapping[str, int]


class FlamesPicture(NamedTuple):
    """A load."""

    name: str
    title: str
    size: str
    is_lone: bool = False
    """Sampled when the sender has sent as fast as it can, and sends now and then."""


PICTURES: Final = (
    FlamesPicture("lone", "A lone message of 64 bytes", "64", is_lone=True),
    FlamesPicture("1000", "Messages of 1,000 bytes", "1000"),
    FlamesPicture("1M", "Messages of 1 MiB", "1M"),
)


def sampled(src: Path, picture: FlamesPicture) -> dict[str, Stacks]:
    """By role, folded stacks of a member while the bench of this tree runs."""
    loads = ("--members", "3", "--senders", "1", "--protocol", "ring", "--size", picture.size)
    times = ("--seconds", f"{SECONDS:g}", "--rounds", "1", "--warm", "0.5")
    process = subprocess.Popen(
        [sys.executable, "-m", "unisono", "bench", *loads, *times, "--json"],
        env={**os.environ, "PYTHONPATH": str(src)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=src.parent,
    )
    try:
        found = members(process.pid)
        sender = found[ROLES["sender"]]
        wait_until(sender, is_busy=True)
        if picture.is_lone:
            wait_until(sender, is_busy=False)
        with tempfile.TemporaryDirectory() as scratch:
            files = {role: Path(scratch, role) for role in ROLES}
            spies = [spy(found[name], files[role]) for role, name in ROLES.items()]
            for each in spies:
                each.wait()
            return {role: folded(file.read_text()) for role, file in files.items()}
    finally:
        process.terminate()
        process.wait()


def members(parent: int) -> dict[str, int]:
    """By name, the members' processes, once all are there."""
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        found: dict[str, int] = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                command = (entry / "cmdline").read_bytes().decode()
                inside = f"\nPPid:\t{parent}\n" in (entry / "status").read_text()
            except OSError:
                continue
            if MEMBER in command and inside:
                found |= {
                    name: int(entry.name) for name in ROLES.values() if f'"{name}"' in command
                }
        if len(found) == len(ROLES):
            return found
        time.sleep(0.05)
    raise SystemExit("the bench started no members: run `unisono bench` to see why")


def wait_until(pid: int, is_busy: bool) -> None:
    """It has used the processor for a while, as it does under load and not while it starts; or it
    has not."""
    fields = Path("/proc", str(pid), "stat")
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    times = [cpu_s(fields, tick_s)]
    while True:
        time.sleep(LOOK_S)
        times = [*times[-STEADY:], cpu_s(fields, tick_s)]
        busy = [after - before > BUSY * LOOK_S for before, after in pairwise(times)]
        if len(busy) == STEADY and set(busy) == {is_busy}:
            return


def cpu_s(stat: Path, tick_s: float) -> float:
    user, system = stat.read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) * tick_s


def spy(pid: int, out: Path) -> subprocess.Popen[bytes]:
    tool = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if tool is None:
        raise SystemExit("py-spy is not installed: make bench-peers")
    return subprocess.Popen(
        [
            *(tool, "record", "--pid", str(pid), "--function", "--format", "raw"),
            *("--duration", str(SAMPLED_S), "--rate", str(RATE), "--output", str(out)),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def folded(raw: str) -> Stacks:
    """Stacks from the event loop's turn on, by their frames as `function room`."""
    found: Counter[str] = Counter()
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [frame_of(each) for each in stack.split(";")]
        below = max((at for at, each in enumerate(frames) if is_loop(each)), default=-1) + 1
        frames = frames[below:] or frames[-1:]
        found[";".join(frames)] += int(count)
    return found


def is_loop(frame: str) -> bool:
    return frame.split()[0].rpartition(".")[2] in LOOP


def frame_of(text: str) -> str:
    """`step (unisono/core.py:1)` as `step core`; the room is empty for what is not ours."""
    function, _, place = text.partition(" (")
    _, ours, path = place.partition("unisono/")
    room = path.split("/")[0].partition(".py")[0] if ours else ""
    return f"{function} {room}"


# -- drawing ---------------------------------------------------------------------------------------


class Frame(NamedTuple):
    """A frame with what it calls; width in samples."""

    name: str
    samples: int
    start: int
    depth: int


def frames(stacks: Stacks) -> list[Frame]:
    """From the top; what one function calls stands side by side, by name."""
    found: list[Frame] = []

    def lay(rows: Sequence[tuple[Sequence[str], int]], start: int, depth: int) -> None:
        by_name: dict[str, list[tuple[Sequence[str], int]]] = {}
        for names, count in rows:
            if names:
                by_name.setdefault(names[0], []).append((names[1:], count))
        for name in sorted(by_name):
            inner = by_name[name]
            count = sum(each for _, each in inner)
            found.append(Frame(name, count, start, depth))
            lay(inner, start, depth + 1)
            start += count

    lay([(stack.split(";"), count) for stack, count in stacks.items()], 0, 0)
    return found


def panel(title: str, stacks: Stacks, top: float) -> tuple[list[str], float]:
    """Its parts, and where the next one begins."""
    total = sum(stacks.values()) or 1
    wide = [each for each in frames(stacks) if each.samples >= NARROW * total]
    parts = [words(LEFT, top + 12, title, "name")]
    across = (WIDTH - 2 * LEFT) / total
    for each in wide:
        function, _, room = each.name.partition(" ")
        kind, _ = ROOMS.get(room, ROOMS["parts"] if room else ELSEWHERE)
        x, y, width = LEFT + each.start * across, top + 20 + each.depth * ROW, each.samples * across
        share = f"{function}, {room or 'Python'}: {100 * each.samples / total:.1f} %"
        rect = tag("rect", x=x, y=y, width=max(0.5, width - 0.6), height=ROW - 1, fill=light(kind))
        label = ""
        if (letters := int(width / CHARACTER)) > 3:
            text = function if len(function) <= letters else function[: letters - 1] + "…"
            label = tag("text", text_of(text), x=x + 3, y=y + 11, class_="small plain", fill=DARK)
        parts.append(tag("g", tag("title", text_of(share)) + rect + label))
    depth = max((each.depth for each in wide), default=0) + 1
    return parts, top + 20 + depth * ROW + 18


DARK: Final = "#14181d"
PALE: Final = 0.55


def light(kind: str) -> str:
    """The colour of its packets, paler, so that dark words can be read on it in both themes."""
    colour = COLOURS[kind][1]
    parts = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(255 - PALE * (255 - each)):02x}" for each in parts)


def drawn(picture: FlamesPicture, found: Mapping[str, Mapping[str, Stacks]], names: str) -> str:
    parts = [words(LEFT, 24, f"{picture.title}: where the processor's time goes", "head")]
    parts += list(legend())
    top = TOP
    for which, label in (("before", "before"), ("after", "now")):
        for role in ROLES:
            if stacks := found.get(which, {}).get(role):
                more, top = panel(f"{role}, {label}", stacks, top)
                parts += more
    parts.append(words(LEFT, top + 4, names, "small faint"))
    return document(picture.title, WIDTH, top + 16, parts)


def legend() -> Iterator[str]:
    x = LEFT
    for kind, text in (*ROOMS.values(), ELSEWHERE):
        yield tag("rect", x=x, y=36.0, width=12.0, height=12.0, fill=light(kind))
        yield words(x + 17, 46, text, "small")
        x += 17 + CHARACTER * len(text) + 22


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", type=Path, help="the src of an earlier tree")
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    kept = asked.out / "flames.json"
    known = json.loads(kept.read_text()) if kept.is_file() else {}
    for picture in PICTURES:
        found = known.setdefault(picture.name, {})
        if asked.before is not None:
            found["before"] = sampled(asked.before.resolve(), picture)
        elif "before" not in found:
            parser.error(f"{kept} has no earlier samples: give --before")
        found["after"] = sampled(ROOT / "src", picture)
        names = f"Samples of {SAMPLED_S} s each; frames below {100 * NARROW:g} % are left out."
        (asked.out / f"flames-{picture.name}.svg").write_text(drawn(picture, found, names))
        print("written:", asked.out / f"flames-{picture.name}.svg", flush=True)
    before = {name: {"before": found["before"]} for name, found in known.items()}
    kept.write_text(json.dumps(before, separators=(",", ":"), sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
