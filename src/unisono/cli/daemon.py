"""`unisono daemon`: the member of its machine, for the applications that connect to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from unisono.cli import STOPPED, refuse
from unisono.cli.serving import Serving
from unisono.core import GO_ON
from unisono.daemon import Daemon, SessionLimits
from unisono.errors import Misuse, Stopped, UnisonoError
from unisono.model import View

WATCH_S = 0.2
FILES_BESIDES = 64
"""Descriptors for all that is not a client."""


def daemon(
    listen: Sequence[str],
    ring: str | None,
    options: Mapping[str, Any],
    bounds: Mapping[str, int],
    mode: str,
    as_json: bool,
) -> int:
    if not listen:
        raise Misuse("the daemon listens nowhere: write --listen unix:/path or tcp:127.0.0.1:7401")
    logging.basicConfig(format="unisono: %(message)s")
    made = Daemon(listen, ring, bounds=SessionLimits(**bounds), mode=_mode(mode), **options)
    return asyncio.run(_DaemonRun(made, as_json).run())


def _mode(text: str) -> int:
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o777:
        raise Misuse(f"--mode {text!r}: write permissions as 600 or 666")
    return mode


def _allow_files(clients: int) -> None:
    """A socket for each client, where the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = clients + FILES_BESIDES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _DaemonRun(Serving):
    """From the start to a signal, or to the end of the ring."""

    def __init__(self, daemon: Daemon, as_json: bool) -> None:
        self._daemon = daemon
        super().__init__()
        self._as_json = as_json

    async def run(self) -> int:
        self._heed_signals()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._go_on)
        serving = False
        try:
            async with self._daemon as site:
                serving = True
                self._tell("listening", {"at": [str(door) for door in site.at]})
                watching = asyncio.create_task(self._watch())
                try:
                    await site.serve()
                finally:
                    watching.cancel()
        except asyncio.CancelledError:
            self._tell("ended", {"counters": self._daemon.counters()} if serving else {})
            return self._code
        except Stopped as stop:
            if not serving:
                raise
            self._tell("stopped", {"reason": stop.reason})
            return refuse(f"stopped: {stop.reason}", STOPPED)
        return self._code

    def _go_on(self) -> None:
        """The operator's word that this part of a split ring may go on."""
        try:
            self._daemon.ring.request(GO_ON)
        except UnisonoError as error:
            logging.warning("%s", error)

    async def _watch(self) -> None:
        """Who is in the ring, when it changes."""
        told: View | None = None
        while True:
            view = self._daemon.ring.view
            if view is not told:
                told = view
                self._tell("ring", {"view": view.id, "daemons": [who.name for who in view.members]})
            await asyncio.sleep(WATCH_S)

    def _tell(self, kind: str, told: Mapping[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):
            if self._as_json:
                print(json.dumps({"kind": kind, **told}), flush=True)
                return
            words = " ".join(
                " ".join(value) if isinstance(value, list) else str(value)
                for name, value in told.items()
                if name != "counters"
            )
            print(f"{kind}: {words}" if words else kind, flush=True)
            sys.stdout.flush()
