"""The commands `daemon`, `feed` and `sql` with their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unisono.cli.app import app
from unisono.cli.options import (
    DAY_S,
    Advertise,
    Bind,
    ConfigFile,
    DaemonAt,
    GroupName,
    Insecure,
    Interface,
    Json,
    Key,
    MemberName,
    Options,
    Ordered,
    Peers,
    Port,
    Stable,
    TraceTo,
    duration,
    member_options,
)

YEAR_HOURS = 366 * DAY_S / 3600


@app.command()
def daemon(
    listen: Annotated[
        list[str] | None,
        typer.Option(metavar="WHERE", help="unix:/path or tcp:127.0.0.1:7401; may be repeated."),
    ] = None,
    ring: Annotated[str | None, typer.Option(help="The daemons' own group, or a URL.")] = None,
    name: MemberName = None,
    interface: Interface = None,
    port: Port = None,
    peers: Peers = None,
    bind: Bind = None,
    advertise: Advertise = None,
    protocol: Ordered = None,
    service: Annotated[str | None, typer.Option(help="The clients' default service.")] = None,
    option: Options = None,
    config: ConfigFile = None,
    clients: Annotated[
        int | None, typer.Option(min=1, max=60_000, help="The most clients; default: 1024.")
    ] = None,
    queue_bytes: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Queued for a client before it is disconnected."),
    ] = None,
    submit_bytes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Queued from a client before it waits.")
    ] = None,
    mode: Annotated[str, typer.Option(help="Permissions of a Unix socket.")] = "600",
    key: Key = None,
    insecure: Insecure = False,
    stable: Stable = None,
    trace: TraceTo = None,
    as_json: Json = False,
) -> None:
    """One member per machine: local applications join groups through it."""
    options = member_options(locals())
    limits = {
        "clients_count_max": clients,
        "queue_bytes_max": queue_bytes,
        "submit_bytes_max": submit_bytes,
    }
    from unisono.cli.daemon import daemon as run_daemon

    bounds = {name: value for name, value in limits.items() if value is not None}
    raise typer.Exit(run_daemon(listen or (), ring, options, bounds, mode, as_json))


@app.command()
def feed(
    group: GroupName = None,
    log: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The log, created if missing.", show_default=False),
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="For readers and writers.")
    ] = "127.0.0.1:7420",
    token: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Holds what clients must state.")
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate of the feed, for TLS.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key.")] = None,
    retain_mb: Annotated[int, typer.Option(min=1, max=1 << 30, help="Size of the log.")] = 1024,
    retain_hours: Annotated[float, duration("Age of the log.", 0.0001, YEAR_HOURS, None)] = 24.0,
    name: MemberName = None,
    interface: Interface = None,
    port: Port = None,
    peers: Peers = None,
    bind: Bind = None,
    advertise: Advertise = None,
    protocol: Ordered = None,
    daemon: DaemonAt = None,
    option: Options = None,
    config: ConfigFile = None,
    key: Key = None,
    insecure: Insecure = False,
    stable: Stable = None,
    trace: TraceTo = None,
    as_json: Json = False,
) -> None:
    """Keep a group's messages in a durable log and serve it to readers."""
    options = member_options(locals())
    from unisono.cli.feed import feed as run_feed

    retain = {
        "listen": listen,
        "retain_bytes": retain_mb << 20,
        "retain_s": retain_hours * 3600,
        "token": token,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
    }
    raise typer.Exit(run_feed(group, log, options, retain, as_json))


@app.command()
def sql(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="This replica's database file.")],
    group: Annotated[str, typer.Option(help="The group that keeps the database.")],
    name: Annotated[str, typer.Option(help="This replica's name, the same at each start.")],
    members: Annotated[
        str, typer.Option(metavar="A,B,…", help="The replicas with which the group began.")
    ],
    log: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Its log; default: FILE-replica.", show_default=False),
    ] = None,
    stay: Annotated[
        bool, typer.Option("--stay", help="Go on after the end of input, until a signal.")
    ] = False,
    interface: Interface = None,
    port: Port = None,
    peers: Peers = None,
    bind: Bind = None,
    advertise: Advertise = None,
    protocol: Ordered = None,
    option: Options = None,
    config: ConfigFile = None,
    key: Key = None,
    insecure: Insecure = False,
    trace: TraceTo = None,
    as_json: Json = False,
) -> None:
    """A replica of a database: statements of stdin, their rows on stdout."""
    options = member_options(locals()) | {"group": group, "members": members}
    from unisono.cli.sql import sql as run_sql

    raise typer.Exit(run_sql(path, options | ({"log": log} if log else {}), stay, as_json))
