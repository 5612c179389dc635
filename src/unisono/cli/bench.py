"""`unisono bench`: throughput and delay on real sockets of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unisono.cli import OK
from unisono.cli.show import err, out, print_json
from unisono.errors import Misuse

OF_RAW = ("seconds", "rounds")
OF_PAPER = ("protocol", "option", "out", "quick")
KINDS = {"raw": OF_RAW, "paper": OF_PAPER}
"""The benchmarks, each with its own options."""
RAW_S, RAW_ROUNDS = 1.0, 3
PAPER_OUT = Path("unisono-paper")


def bench(what: str, given: Mapping[str, Any], as_json: bool) -> int:
    """Run the one asked for, with the options that were written."""
    if what not in KINDS:
        raise Misuse(f"no benchmark {what!r}: write one of {', '.join(KINDS)}")
    if misplaced := [name for name in given if name not in KINDS[what]]:
        other = next(kind for kind, known in KINDS.items() if misplaced[0] in known)
        raise Misuse(f"--{misplaced[0]} is for `unisono bench {other}`, not for {what}")
    if what == "raw":
        return raw(given.get("seconds", RAW_S), given.get("rounds", RAW_ROUNDS), as_json)
    from unisono.cli.paper import paper
    from unisono.cli.words import options_of

    options = options_of(given.get("option", ()))
    directory = given.get("out", PAPER_OUT)
    return paper(given.get("protocol", "ring"), options, directory, "quick" in given, as_json)


def raw(seconds: float, rounds: int, as_json: bool) -> int:
    from unisono.net.bench import raw as measure

    console = err()
    tell = None if as_json else (lambda words: console.print(f"[dim]{words}[/]"))
    found = measure(seconds, rounds, tell)
    if as_json:
        print_json(found)
        return OK
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for head in ("", "packets/s", "MB/s"):
        table.add_column(head, justify="right" if head else "left")
    for name, key in (("bare sockets", "bare_packets_s"), ("our driver", "driver_packets_s")):
        rate = found[key]
        table.add_row(name, f"{rate:,}", f"{rate * found['packet_octets'] / 1e6:,.0f}")
    screen = out()
    screen.print(
        f"[bold]raw[/]  one sender, {found['receivers']} receivers, packets of"
        f" {found['packet_octets']} bytes; each receiver got, as median of {found['rounds']} rounds"
    )
    screen.print(table)
    screen.print(f"the driver keeps {found['ratio']:.0%} of what bare sockets do")
    return OK
