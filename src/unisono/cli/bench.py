"""`unisono bench`: throughput and delay on real sockets of this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unisono.cli import OK
from unisono.cli.show import err, out, print_json
from unisono.core import DEFAULT_PROTOCOL
from unisono.errors import Misuse

OF_ALL = tuple(
    """net members size senders protocol option service via load peer seconds warm rounds recovery
    state_bytes out""".split()
)
OF_RAW = ("seconds", "rounds")
OF_PAPER = ("protocol", "option", "out", "quick")
KINDS = {"all": OF_ALL, "raw": OF_RAW, "paper": OF_PAPER}
"""The benchmarks, each with its own options."""
RAW_S, RAW_ROUNDS = 1.0, 3
PAPER_OUT = Path("unisono-paper")


def bench(what: str, given: Mapping[str, Any], as_json: bool) -> int:
    """Run this benchmark with the given options."""
    if what not in KINDS:
        raise Misuse(f"no benchmark {what!r}: write one of {', '.join(KINDS)}")
    if misplaced := [name for name in given if name not in KINDS[what]]:
        others = [f"`unisono bench {kind}`" for kind in KINDS if misplaced[0] in KINDS[kind]]
        option = "--" + misplaced[0].replace("_", "-")
        raise Misuse(f"{option} is for {' and '.join(others)}, not for {what}")
    if what == "raw":
        return raw(given.get("seconds", RAW_S), given.get("rounds", RAW_ROUNDS), as_json)
    if what == "paper":
        return _paper(given, as_json)
    from unisono.cli.compare import compare

    return compare(given, as_json)


def _paper(given: Mapping[str, Any], as_json: bool) -> int:
    from unisono.bench.checkout import extras
    from unisono.cli.options import options_of

    protocols: Sequence[str] = given.get("protocol", (DEFAULT_PROTOCOL,))
    if len(protocols) > 1:
        raise Misuse("--protocol: the paper's curves take one protocol at a time")
    options = options_of(given.get("option", ()))
    directory = given.get("out", PAPER_OUT)
    quick = "quick" in given
    return extras("bench paper").paper(protocols[0], options, directory, quick, as_json)


def raw(seconds: float, rounds: int, as_json: bool) -> int:
    from unisono.net.bench import raw as measure

    console = err()
    report = None if as_json else (lambda text: console.print(f"[dim]{text}[/]"))
    found = measure(seconds, rounds, report)
    if as_json:
        print_json(found)
        return OK
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for head in ("", "packets/s", "MB/s"):
        table.add_column(head, justify="right" if head else "left")
    for name, key in (("bare sockets", "bare_packets_s"), ("our driver", "driver_packets_s")):
        rate = found[key]
        table.add_row(name, f"{rate:,}", f"{rate * found['packet_bytes'] / 1e6:,.0f}")
    screen = out()
    screen.print(
        f"[bold]raw[/]  one sender, {found['receivers']} receivers, packets of"
        f" {found['packet_bytes']} bytes; each receiver got, as median of {found['rounds']} rounds"
    )
    screen.print(table)
    screen.print(f"the driver reaches {found['ratio']:.0%} of bare sockets")
    return OK
