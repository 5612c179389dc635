"""Options of the commands that are members of a group: each means the same in all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unisono.core import DEFAULT_PROTOCOL

GroupName = Annotated[
    str | None, typer.Argument(help="The group's name, or a URL.", show_default=False)
]
OwnName = Annotated[str | None, typer.Option(help="The member's own name.")]
Interface = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Of the interface that carries the group.")
]
Peers = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT,…", help="The members, where there is no multicast."),
]
Through = Annotated[
    str | None, typer.Option(metavar="WHERE", help="Join through the daemon there, as unix:/path.")
]
KeptIn = Annotated[
    Path | None,
    typer.Option(
        "--stable", metavar="FILE", help="Keep what must outlast a crash there; a file a member."
    ),
]
TraceTo = Annotated[Path | None, typer.Option(metavar="DIR", help="Write what happens as a trace.")]
Ordered = Annotated[
    str | None, typer.Option(help=f"By default {DEFAULT_PROTOCOL}; it needs a total order.")
]
