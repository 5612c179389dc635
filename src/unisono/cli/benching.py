"""The command `bench` and its options; what it does is in `unisono.cli.bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unisono.cli.app import Json, Options, app, finite, given

Words = list[str] | None
MANY = "several with commas, or the option again"


@app.command()
def bench(
    what: Annotated[
        str,
        typer.Argument(
            metavar="[all|raw|paper]",
            help="all: groups of real members, and peers; raw: our driver against bare sockets,"
            " without ordering; paper: the curves of the ring's paper.",
        ),
    ] = "all",
    net: Annotated[
        str | None,
        typer.Option(help="loopback, or namespaces: one a member, on a bridge; needs root."),
    ] = None,
    members: Annotated[
        Words, typer.Option(metavar="N", help=f"Of a group: 2 to 64, by default 3; {MANY}.")
    ] = None,
    size: Annotated[
        Words, typer.Option(metavar="BYTES", help="Of a message, as 64,1000,1M; from 16 to 16M.")
    ] = None,
    senders: Annotated[
        Words, typer.Option(metavar="N|all", help="How many members send; by default 1,all.")
    ] = None,
    protocol: Annotated[
        Words,
        typer.Option(
            help="Our protocols; by default those with a total order, of which `paper` takes one."
        ),
    ] = None,
    option: Options = None,
    service: Annotated[
        Words, typer.Option(help="As agreed or safe; by default that of each protocol.")
    ] = None,
    via: Annotated[
        Words,
        typer.Option(
            metavar="library|daemon", help="How an application joins; by default library."
        ),
    ] = None,
    peer: Annotated[
        Words,
        typer.Option(
            metavar="NAME|all", help="Other systems to measure in the same run, from a checkout."
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=0.1, max=60, callback=finite, help="Of each measurement; by default 0.3, raw: 1."
        ),
    ] = None,
    warm: Annotated[
        float | None,
        typer.Option(
            min=0, max=60, callback=finite, help="Seconds before the first; by default 0.2."
        ),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, max=100, help="Repetitions of the whole; by default 3.")
    ] = None,
    recovery: Annotated[
        bool,
        typer.Option(
            "--recovery", help="Also measure the crash of a member and the join of a new one."
        ),
    ] = False,
    state_bytes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1 << 26,
            metavar="N",
            help="With --recovery: bytes of state for a new member.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write results.json and bench.html here; paper: drawings."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="paper: small groups, half a minute.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Throughput and delay on real sockets of this machine."""
    from unisono.cli.bench import bench as run_bench

    options = given(
        net=net,
        members=members or None,
        size=size or None,
        senders=senders or None,
        protocol=protocol or None,
        option=option or None,
        service=service or None,
        via=via or None,
        peer=peer or None,
        seconds=seconds,
        warm=warm,
        rounds=rounds,
        recovery=recovery or None,
        state_bytes=state_bytes,
        out=out,
        quick=quick or None,
    )
    raise typer.Exit(run_bench(what, options, as_json))
