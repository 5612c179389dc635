"""The command `feed` and its options; what it does is in `unisono.cli.feed`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unisono.cli.app import (
    DAY_S,
    Advertise,
    Bind,
    ConfigFile,
    Json,
    Options,
    Port,
    app,
    finite,
    given,
)
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

YEAR_HOURS = 366 * DAY_S / 3600


@app.command()
def feed(
    group: GroupName = None,
    log: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the log is, or will be.", show_default=False),
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where readers and writers connect.")
    ] = "127.0.0.1:7420",
    retain_mb: Annotated[
        int, typer.Option(min=1, max=1 << 30, help="How much the log keeps at most.")
    ] = 1024,
    retain_hours: Annotated[
        float,
        typer.Option(min=0.0001, max=YEAR_HOURS, callback=finite, help="How long, at most."),
    ] = 24.0,
    name: OwnName = None,
    interface: Interface = None,
    port: Port = None,
    peers: Peers = None,
    bind: Bind = None,
    advertise: Advertise = None,
    protocol: Ordered = None,
    daemon: Through = None,
    option: Options = None,
    config: ConfigFile = None,
    stable: KeptIn = None,
    trace: TraceTo = None,
    as_json: Json = False,
) -> None:
    """A member that keeps what its group says in a log, and serves it to readers."""
    from unisono.cli.feed import feed as run_feed
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
        options=options_of(option) if option else None,
        config=config,
        stable=stable,
        trace=trace,
    )
    retain = {
        "listen": listen,
        "retain_bytes": retain_mb << 20,
        "retain_s": retain_hours * 3600,
    }
    raise typer.Exit(run_feed(group, log, options, retain, as_json))
