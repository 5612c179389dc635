"""The commands and their options. What a command does is in a module that it imports itself, so
that help is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unisono import __version__
from unisono.cli.options import (
    Advertise,
    AllowQuarantined,
    Bind,
    Conf,
    ConfigFile,
    DaemonAt,
    Detail,
    Faults,
    GroupName,
    Insecure,
    Interface,
    Json,
    Key,
    Master,
    MemberName,
    Options,
    Peers,
    Port,
    Protocol,
    Settings,
    Stable,
    Strongest,
    TraceDir,
    TraceTo,
    duration,
    given,
    member_options,
    options_of,
)
from unisono.core import DEFAULT_PROTOCOL

app = typer.Typer(
    help="Group communication for Python: the same messages, in the same order, to every member.",
    epilog="Exit codes: 0 success, 1 a law is broken, 2 bad input, 3 out of the group, 70 an"
    " internal error, 130 Ctrl-C.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
Words = list[str] | None


@app.callback(invoke_without_command=True)
def unisono(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"unisono {__version__}")
        raise typer.Exit


@app.command()
def demo(
    protocol: Annotated[str, typer.Option(help="The protocol.")] = DEFAULT_PROTOCOL,
    option: Options = None,
    out: Annotated[
        Path, typer.Option(help="For trace, tables and report; a former demo is replaced.")
    ] = Path("unisono-demo"),
    members: Annotated[int, typer.Option(min=3, max=9, help="The number of members.")] = 5,
    seconds: Annotated[float, duration("How long they send.", 4, 60, None)] = 6.0,
    spark: Annotated[bool, typer.Option(help="Verify and measure on Spark too.")] = True,
    stable: Annotated[
        bool, typer.Option("--stable", help="Members keep records that survive the kill.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Five real members on this machine, one killed and back; traced, verified, measured."""
    from unisono.cli.demo import show

    options = options_of(option or ())
    raise typer.Exit(show(protocol, options, out, members, seconds, spark, stable, as_json))


@app.command()
def cat(
    group: GroupName = None,
    name: MemberName = None,
    interface: Interface = None,
    port: Port = None,
    peers: Peers = None,
    bind: Bind = None,
    advertise: Advertise = None,
    protocol: Protocol = None,
    daemon: DaemonAt = None,
    service: Annotated[str | None, typer.Option(help="Of the lines: fifo, causal, …")] = None,
    option: Options = None,
    config: ConfigFile = None,
    rejoin: Annotated[
        bool | None,
        typer.Option("--rejoin/--no-rejoin", help="Rejoin when stopped.", show_default="rejoin"),
    ] = None,
    replayable: Annotated[
        bool | None,
        typer.Option(
            "--replayable", help="The group is replayable, for a feed.", show_default=False
        ),
    ] = None,
    key: Key = None,
    insecure: Insecure = False,
    stable: Stable = None,
    settings: Settings = None,
    trace: TraceTo = None,
    detail: Detail = False,
    as_json: Json = False,
    form: Annotated[
        str | None,
        typer.Option("--format", "-f", metavar="TEXT", help="Messages alone, as '%m %s\\n'."),
    ] = None,
    listen: Annotated[
        bool, typer.Option("--listen", "-L", help="Send nothing, and stay.", show_default=False)
    ] = False,
    expect: Annotated[
        int | None,
        typer.Option("--expect", "-c", min=0, metavar="N", help="Leave after N deliveries."),
    ] = None,
    linger: Annotated[float, duration("Seconds to stay before leaving.")] = 1.0,
    settle: Annotated[float, duration("Send nothing until no view has come for S seconds.")] = 1.0,
    patience: Annotated[
        float | None, duration("Leave, with exit code 4, once blocked for S seconds.")
    ] = None,
    go_on: Annotated[
        bool,
        typer.Option("--go-on", help="Whenever blocked, continue without a majority: you vouch."),
    ] = False,
) -> None:
    """Lines of stdin go to the group; its messages and views come to stdout."""
    options = member_options(locals())
    from unisono.cli.cat import CatOptions
    from unisono.cli.cat import cat as run_cat

    own = CatOptions(expect, linger, settle, patience, as_json, form, listen, go_on)
    raise typer.Exit(run_cat(group, options, own))


@app.command()
def sim(
    protocol: Protocol = None,
    nodes: Annotated[
        str | None, typer.Option(metavar="N", help="Default: 5; with --seeds a range, 3:7.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Determines the run; default: 1.")] = None,
    faults: Faults = None,
    messages: Annotated[int | None, typer.Option(help="Default: 200.")] = None,
    service: Strongest = None,
    option: Options = None,
    program: Annotated[
        str | None,
        typer.Option(
            "--app", metavar="MODULE:MAIN", help="Run `async def main(group)`, unchanged."
        ),
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Run this plan, as --shrink writes.")
    ] = None,
    trace: TraceTo = None,
    detail: Detail = False,
    sealed: Annotated[bool, typer.Option("--sealed", help="Seal all packets with a key.")] = False,
    clusters: Annotated[
        int | None, typer.Option(help="So many clusters, with wide links between them.")
    ] = None,
    shrink: Annotated[bool, typer.Option("--shrink", help="Reduce a failing run.")] = False,
    seeds: Annotated[
        str | None, typer.Option(metavar="A:B", help="A campaign: each seed from A to B - 1.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, max=256, help="Processes of a campaign. [default: one a core]"),
    ] = None,
    as_json: Json = False,
) -> None:
    """One simulated run, or a campaign of many: do the laws hold under faults?"""
    names = ("protocol", "nodes", "seed", "faults", "messages", "service", "sealed", "clusters")
    fields = given(locals(), names)
    fields |= {"options": option} if option else {}
    misplaced = given(locals(), ("plan", "trace", "detail", "shrink"))
    from unisono.cli.simulate import campaign, single, with_program

    fields = with_program(fields, program)
    if seeds is not None:
        raise typer.Exit(campaign(seeds, fields, misplaced, jobs, as_json))
    raise typer.Exit(single(fields, plan, trace, detail, shrink, as_json))


@app.command()
def verify(
    directory: TraceDir, allow_quarantined: AllowQuarantined = False, as_json: Json = False
) -> None:
    """Check a trace against the laws, in this process."""
    from unisono.cli.verify import verify as run_verify

    raise typer.Exit(run_verify(directory, as_json, allow_quarantined))


@app.command()
def draw(
    trace: Annotated[Path, typer.Argument(help="What --trace wrote, best with --detail.")],
    run: Annotated[str | None, typer.Option(help="Which of several runs.")] = None,
    group: Annotated[str | None, typer.Option(help="Which of several groups of a run.")] = None,
    from_ms: Annotated[float, typer.Option(min=0, help="From the start of the run.")] = 0.0,
    to_ms: Annotated[float | None, typer.Option(min=0, help="Default: the end.")] = None,
    message: Annotated[
        str,
        typer.Option(metavar="NAME:N", help="Only around this message.", show_default=False),
    ] = "",
    nodes: Annotated[
        str | None, typer.Option(metavar="A,B,…", help="The columns, from left to right.")
    ] = None,
    without: Annotated[
        str | None, typer.Option(metavar="KIND,…", help="Packets to omit, as beat.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All heartbeats, also where nothing else happens.")
    ] = False,
    packets_max: Annotated[
        int, typer.Option("--max", min=1, max=100_000, help="The most packets drawn.")
    ] = 1500,
    title: Annotated[str, typer.Option(help="Default: the run.", show_default=False)] = "",
    graph: Annotated[
        bool, typer.Option("--graph", help="The causal graph instead, of a trace of transis.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.svg", help="Default: RUN.svg; - is stdout; .txt is a text."),
    ] = None,
    as_json: Json = False,
) -> None:
    """A trace as a space-time diagram: packets, losses, repairs, views, deliveries."""
    from unisono.cli.draw import requested, show

    request = requested(from_ms, to_ms, nodes, without, every, packets_max, title, message)
    raise typer.Exit(show(trace, run, group, request, out, as_json, graph))


@app.command()
def pipeline(
    directory: TraceDir,
    out: Annotated[Path, typer.Option(metavar="DIR", help="For tables and report.")],
    master: Master = "local[*]",
    every_run: Annotated[
        bool, typer.Option("--all", help="Process all runs, not only changed ones.")
    ] = False,
    run: Annotated[Words, typer.Option(metavar="NAME", help="Only this run; repeatable.")] = None,
    tables: Annotated[str, typer.Option(help="all; or gold, without events and messages.")] = "all",
    table_format: Annotated[
        str, typer.Option("--format", help="parquet; or delta, or delta:URI in an object store.")
    ] = "parquet",
    follow: Annotated[
        bool, typer.Option("--follow", help="Judge runs as they grow, until Ctrl-C.")
    ] = False,
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="With --follow: interval; default: 5s.")
    ] = None,
    until_idle: Annotated[
        float | None, duration("With --follow: end after S seconds without a change.")
    ] = None,
    allow_quarantined: AllowQuarantined = False,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """The laws and the measures of a trace on Spark: tables and a report."""
    from unisono.cli.pipeline import pipeline as run_pipeline
    from unisono.cli.pipeline import requested

    request = requested(
        every_run,
        run or (),
        tables,
        table_format,
        follow,
        every,
        until_idle,
        allow_quarantined,
        conf or (),
    )
    raise typer.Exit(run_pipeline(directory, out, master, request, as_json))


@app.command()
def sweep(
    seeds: Annotated[str, typer.Option(metavar="A:B", help="Each seed from A to B - 1.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="For traces, tables and report.")],
    protocol: Annotated[str, typer.Option(metavar="NAME,…", help="Or all.")] = "all",
    nodes: Annotated[
        str | None, typer.Option(metavar="A-B", help="Drawn by seed; default: 3-7.")
    ] = None,
    faults: Faults = None,
    messages: Annotated[int | None, typer.Option(help="Of each run; default: 200.")] = None,
    service: Strongest = None,
    option: Options = None,
    detail: Detail = False,
    keep: Annotated[str, typer.Option(help="Traces to keep: all, or failed.")] = "all",
    master: Master = "local[*]",
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Thousands of simulated runs on Spark; failed seeds with their replay commands."""
    names = ("protocol", "seeds", "nodes", "faults", "messages", "service", "detail")
    fields = given(locals(), names) | ({"options": option} if option else {})
    from unisono.cli.sweep import sweep as run_sweep

    raise typer.Exit(run_sweep(fields, out, keep, master, conf or (), as_json))


@app.command()
def bench(
    what: Annotated[
        str,
        typer.Argument(
            metavar="[all|raw|paper]",
            help="all: groups of real members, and peers; raw: our driver and bare sockets,"
            " without ordering; paper: the curves of the ring's paper.",
        ),
    ] = "all",
    net: Annotated[
        str | None,
        typer.Option(help="loopback, or namespaces: one per member, on a bridge; needs root."),
    ] = None,
    members: Annotated[
        Words, typer.Option(metavar="N,…", help="Group sizes, 2 to 64; default: 3.")
    ] = None,
    size: Annotated[
        Words, typer.Option(metavar="BYTES,…", help="Message sizes, as 64,1000,1M; 16 to 16M.")
    ] = None,
    senders: Annotated[
        Words, typer.Option(metavar="N|all,…", help="Members that send; default: 1,all.")
    ] = None,
    protocol: Annotated[
        Words,
        typer.Option(help="Our protocols; default: those with a total order. paper: one of them."),
    ] = None,
    option: Options = None,
    service: Annotated[
        Words,
        typer.Option(help="As fifo,agreed,resilient(all); default: that of each protocol."),
    ] = None,
    via: Annotated[
        Words,
        typer.Option(
            metavar="WAY,…",
            help="How they join and send: library, daemon: bursts; each: message by message;"
            " mixed: bursts of many lengths. Default: library.",
        ),
    ] = None,
    load: Annotated[
        Words,
        typer.Option(metavar="SHARE,…", help="Delays at these shares of the peak too, as 0.25."),
    ] = None,
    peer: Annotated[
        Words, typer.Option(metavar="NAME|all,…", help="Other systems; from a checkout.")
    ] = None,
    seconds: Annotated[
        float | None, duration("Per measurement; default: 0.3, raw: 1.", 0.1, 60, None)
    ] = None,
    warm: Annotated[
        float | None, duration("Seconds of warm-up; default: 0.2.", 0, 60, None)
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, max=100, help="Repetitions; default: 3.")
    ] = None,
    recovery: Annotated[
        bool, typer.Option("--recovery", help="Also measure the crash and the join of a member.")
    ] = False,
    state_bytes: Annotated[
        int | None,
        typer.Option(min=1, max=1 << 26, metavar="N", help="With --recovery: state of a joiner."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="For results.json and bench.html; paper: drawings."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="paper: small groups, half a minute.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Throughput and delay on real sockets of this machine."""
    options = given(locals(), (name for name in locals() if name not in ("what", "as_json")))
    from unisono.cli.bench import bench as run_bench

    raise typer.Exit(run_bench(what, options, as_json))


# They register themselves.
from unisono.cli import key as key  # noqa: E402
from unisono.cli import servers as servers  # noqa: E402
