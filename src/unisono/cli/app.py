"""The commands and their options: what may be written, and the module that does it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from unisono import __version__
from unisono.cli.membership import (
    GroupName,
    Interface,
    KeptIn,
    Ordered,
    OwnName,
    Peers,
    Through,
    TraceTo,
)
from unisono.core import DEFAULT_PROTOCOL

app = typer.Typer(
    help="Group communication for Python: the same messages, in the same order, to every member.",
    epilog="Exit codes: 0 well, 1 a law is broken, 2 bad input, 3 out of the group, 70 our own"
    " mistake, 130 Ctrl-C.",
    add_completion=False,
    pretty_exceptions_enable=False,
)

DAY_S = 86_400


def finite(value: float | None) -> float | None:
    """A range of the parser's lets pass what is no number at all."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a number of seconds")
    return value


Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Protocol = Annotated[str, typer.Option(help="Which protocol.")]
Options = Annotated[
    list[str] | None, typer.Option(metavar="K=V", help="Of the protocol; may be repeated.")
]
Detail = Annotated[bool, typer.Option("--detail", help="Trace packets too, for draw.")]
Port = Annotated[int | None, typer.Option(help="Of the multicast address; with peers, the own.")]
Bind = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Of the own socket.")]
Advertise = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="What others are told instead.")
]
ConfigFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="TOML with a table \\[group], or a URL.")
]
Conf = Annotated[
    list[str] | None, typer.Option(metavar="K=V", help="A Spark setting; may be repeated.")
]
TraceDir = Annotated[Path, typer.Argument(help="The directory that --trace wrote.")]
AllowQuarantined = Annotated[
    bool, typer.Option("--allow-quarantined", help="End well though rows could not be judged.")
]


@app.callback(invoke_without_command=True)
def unisono(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"unisono {__version__}")
        raise typer.Exit


def given(**options: Any) -> dict[str, Any]:
    """Those that were written: what was not keeps its default where it belongs."""
    return {name: value for name, value in options.items() if value is not None}


@app.command()
def demo(
    protocol: Protocol = DEFAULT_PROTOCOL,
    option: Options = None,
    out: Annotated[
        Path, typer.Option(help="Where trace, tables and report go; a former demo is replaced.")
    ] = Path("unisono-demo"),
    members: Annotated[int, typer.Option(min=3, max=9, help="How many.")] = 5,
    seconds: Annotated[
        float, typer.Option(min=4, max=60, callback=finite, help="How long they talk.")
    ] = 6.0,
    spark: Annotated[bool, typer.Option(help="Verify and measure on Spark too.")] = True,
    stable: Annotated[
        bool, typer.Option("--stable", help="Members keep records that outlast the kill.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Five real members on this machine, one killed and back; traced, verified, measured."""
    from unisono.cli.demo import show
    from unisono.cli.numbers import options_of

    options = options_of(option or ())
    raise typer.Exit(show(protocol, options, out, members, seconds, spark, stable, as_json))


@app.command()
def cat(
    group: GroupName = None,
    name: OwnName = None,
    interface: Interface = None,
    port: Port = None,
    peers: Peers = None,
    bind: Bind = None,
    advertise: Advertise = None,
    protocol: Annotated[str | None, typer.Option(help=f"By default {DEFAULT_PROTOCOL}.")] = None,
    daemon: Through = None,
    service: Annotated[str | None, typer.Option(help="Of the lines: fifo, causal, …")] = None,
    option: Options = None,
    config: ConfigFile = None,
    rejoin: Annotated[
        bool | None,
        typer.Option("--rejoin/--no-rejoin", help="Come back when stopped.", show_default="rejoin"),
    ] = None,
    fed: Annotated[
        bool | None,
        typer.Option("--fed", help="The group has a feed; all members say so.", show_default=False),
    ] = None,
    stable: KeptIn = None,
    trace: TraceTo = None,
    detail: Detail = False,
    as_json: Json = False,
    expect: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Leave after N messages were delivered.")
    ] = None,
    linger: Annotated[
        float,
        typer.Option(
            min=0,
            max=DAY_S,
            callback=finite,
            metavar="S",
            help="Stay so many seconds before leaving.",
        ),
    ] = 1.0,
    settle: Annotated[
        float,
        typer.Option(
            min=0,
            max=DAY_S,
            callback=finite,
            metavar="S",
            help="Say nothing until no view came for S seconds.",
        ),
    ] = 1.0,
) -> None:
    """Lines of stdin go to the group; its messages and views come to stdout."""
    from unisono.cli.cat import cat as run_cat
    from unisono.cli.numbers import options_of

    options = given(
        name=name,
        interface=interface,
        port=port,
        peers=peers,
        bind=bind,
        advertise=advertise,
        protocol=protocol,
        daemon=daemon,
        service=service,
        options=options_of(option) if option else None,
        config=config,
        rejoin=rejoin,
        fed=fed,
        stable=stable,
        trace=trace,
        detail=detail or None,
    )
    raise typer.Exit(run_cat(group, options, expect, linger, settle, as_json))


@app.command()
def sim(
    protocol: Annotated[str | None, typer.Option(help=f"By default {DEFAULT_PROTOCOL}.")] = None,
    nodes: Annotated[
        str | None, typer.Option(metavar="N", help="By default 5; with --seeds also a range, 3:7.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Decides everything; by default 1.")] = None,
    faults: Annotated[
        str | None, typer.Option(help="none, loss, crash, partition, mild or chaos, the default.")
    ] = None,
    messages: Annotated[int | None, typer.Option(help="By default 200.")] = None,
    service: Annotated[str | None, typer.Option(help="By default the strongest on offer.")] = None,
    option: Options = None,
    plan: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Run this plan instead; see --shrink.")
    ] = None,
    trace: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the trace.")] = None,
    detail: Detail = False,
    shrink: Annotated[bool, typer.Option("--shrink", help="Make a failing run small.")] = False,
    seeds: Annotated[
        str | None, typer.Option(metavar="A:B", help="A campaign: each seed from A to B - 1.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, max=256, help="Processes of a campaign.")] = 2,
    as_json: Json = False,
) -> None:
    """One simulated run, or a campaign of many: do the laws hold under faults?"""
    from unisono.cli.simulate import campaign, single

    wanted = given(
        protocol=protocol,
        nodes=nodes,
        seed=seed,
        faults=faults,
        messages=messages,
        service=service,
        options=option,
    )
    if seeds is not None:
        misplaced = given(plan=plan, trace=trace, detail=detail or None, shrink=shrink or None)
        raise typer.Exit(campaign(seeds, wanted, misplaced, jobs, as_json))
    raise typer.Exit(single(wanted, plan, trace, detail, shrink, as_json))


@app.command()
def verify(
    directory: TraceDir,
    allow_quarantined: AllowQuarantined = False,
    as_json: Json = False,
) -> None:
    """The laws on a trace, in this process."""
    from unisono.cli.verify import verify as run_verify

    raise typer.Exit(run_verify(directory, as_json, allow_quarantined))


@app.command()
def draw(
    trace: Annotated[Path, typer.Argument(help="What --trace wrote; with --detail, best.")],
    run: Annotated[str | None, typer.Option(help="Which, where there are several.")] = None,
    group: Annotated[str | None, typer.Option(help="Which, where a run has several.")] = None,
    from_ms: Annotated[float, typer.Option(min=0, help="After the run's begin.")] = 0.0,
    to_ms: Annotated[float | None, typer.Option(min=0, help="By default, its end.")] = None,
    nodes: Annotated[
        str | None, typer.Option(metavar="A,B,…", help="The columns, from left to right.")
    ] = None,
    without: Annotated[
        str | None, typer.Option(metavar="KIND,…", help="Packets to leave out, as beat.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Heartbeats too where nothing else happens.")
    ] = False,
    packets_max: Annotated[
        int, typer.Option("--max", min=1, max=100_000, help="Packets drawn.")
    ] = 1500,
    title: Annotated[str, typer.Option(help="By default the run.", show_default=False)] = "",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="By default RUN.svg; - to stdout.")
    ] = None,
    as_json: Json = False,
) -> None:
    """A trace as a space-time diagram: who sent what to whom, and what became of it."""
    from unisono.cli.draw import ask_for, show

    ask = ask_for(from_ms, to_ms, nodes, without, every, packets_max, title)
    raise typer.Exit(show(trace, run, group, ask, out, as_json))


@app.command()
def pipeline(
    directory: TraceDir,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where tables and report go.")],
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[*]",
    every_run: Annotated[
        bool, typer.Option("--all", help="Do all runs anew, not only those that changed.")
    ] = False,
    run: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this run; may be repeated.")
    ] = None,
    tables: Annotated[str, typer.Option(help="all; or gold, without events and messages.")] = "all",
    follow: Annotated[
        bool, typer.Option("--follow", help="Judge each run as it grows, until Ctrl-C.")
    ] = False,
    every: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="With --follow: how often to look; by default 5s."),
    ] = None,
    until_idle: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=DAY_S,
            callback=finite,
            metavar="S",
            help="With --follow: end when nothing changed for S seconds.",
        ),
    ] = None,
    allow_quarantined: AllowQuarantined = False,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """The laws and the measures of a trace on Spark: tables, and a report to open."""
    from unisono.cli.pipeline import ask_for
    from unisono.cli.pipeline import pipeline as run_pipeline

    ask = ask_for(
        every_run, run or (), tables, follow, every, until_idle, allow_quarantined, conf or ()
    )
    raise typer.Exit(run_pipeline(directory, out, master, ask, as_json))


@app.command()
def sweep(
    seeds: Annotated[str, typer.Option(metavar="A:B", help="Each seed from A to B - 1.")],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where traces, tables and report go; or are.")
    ],
    protocol: Annotated[
        str, typer.Option(metavar="NAME,…", help="Or all of the catalogue.")
    ] = "all",
    nodes: Annotated[
        str | None, typer.Option(metavar="A-B", help="Drawn by seed; by default 3-7.")
    ] = None,
    faults: Annotated[
        str | None, typer.Option(help="none, loss, crash, partition, mild or chaos, the default.")
    ] = None,
    messages: Annotated[int | None, typer.Option(help="Of each run; by default 200.")] = None,
    service: Annotated[str | None, typer.Option(help="By default the strongest on offer.")] = None,
    option: Options = None,
    detail: Detail = False,
    keep: Annotated[
        str, typer.Option(help="Traces: all, or failed for those of failed runs alone.")
    ] = "all",
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[*]",
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Thousands of simulated runs on Spark, judged there; failed seeds with their replay lines."""
    from unisono.cli.sweep import sweep as run_sweep

    words = given(
        protocol=protocol,
        seeds=seeds,
        nodes=nodes,
        faults=faults,
        messages=messages,
        service=service,
        options=option,
        detail=detail or None,
    )
    raise typer.Exit(run_sweep(words, out, keep, master, conf or (), as_json))


@app.command()
def daemon(
    listen: Annotated[
        list[str] | None,
        typer.Option(metavar="WHERE", help="unix:/path or tcp:127.0.0.1:7401; may be repeated."),
    ] = None,
    ring: Annotated[
        str | None, typer.Option(help="The name of the daemons' own group, or a URL.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The daemon's own name.")] = None,
    interface: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Of the interface that carries the ring."),
    ] = None,
    port: Port = None,
    peers: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT,…", help="The daemons, where there is no multicast."),
    ] = None,
    bind: Bind = None,
    advertise: Advertise = None,
    protocol: Ordered = None,
    service: Annotated[str | None, typer.Option(help="Of messages that ask for none.")] = None,
    option: Options = None,
    config: ConfigFile = None,
    clients: Annotated[
        int | None, typer.Option(min=1, max=60_000, help="How many at most; by default 1024.")
    ] = None,
    queue_bytes: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Bytes that wait for a client before it is cut off."),
    ] = None,
    submit_bytes: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Bytes of a client that wait before it must."),
    ] = None,
    mode: Annotated[str, typer.Option(help="Permissions of a Unix socket.")] = "600",
    stable: KeptIn = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write what the ring does as a trace.")
    ] = None,
    as_json: Json = False,
) -> None:
    """The member of its machine: local applications join groups through it."""
    from unisono.cli.daemon import daemon as run_daemon
    from unisono.cli.numbers import options_of

    options = given(
        name=name,
        interface=interface,
        port=port,
        peers=peers,
        bind=bind,
        advertise=advertise,
        protocol=protocol,
        service=service,
        options=options_of(option) if option else None,
        config=config,
        stable=stable,
        trace=trace,
    )
    bounds = given(
        clients_count_max=clients,
        queue_bytes_max=queue_bytes,
        submit_bytes_max=submit_bytes,
    )
    raise typer.Exit(run_daemon(listen or (), ring, options, bounds, mode, as_json))


# Commands with so many options that they stand in files of their own.
from unisono.cli import benching as benching  # noqa: E402
from unisono.cli import feeding as feeding  # noqa: E402
