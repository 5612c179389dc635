"""`unisono bench`: throughput on real sockets of this machine."""

from __future__ import annotations

from unisono.cli import OK
from unisono.cli.show import err, out, print_json
from unisono.errors import Misuse

KINDS = ("raw",)


def bench(what: str, seconds: float, rounds: int, as_json: bool) -> int:
    if what not in KINDS:
        raise Misuse(f"no benchmark {what!r}: write one of {', '.join(KINDS)}")
    from unisono.net.bench import raw

    console = err()
    tell = None if as_json else (lambda words: console.print(f"[dim]{words}[/]"))
    found = raw(seconds, rounds, tell)
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
