"""`unisono daemon`: one member per machine, for the applications that connect to it."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from unisono.cli import STOPPED, refuse
from unisono.cli.serving import ServerRun, request_go_on
from unisono.daemon import Daemon, SessionLimits
from unisono.errors import Misuse, Stopped

WATCH_S = 0.2
OTHER_FILES = 64
"""Descriptors for everything but clients."""


def daemon(
    listen: Sequence[str],
    ring: str | None,
    options: Mapping[str, Any],
    bounds: Mapping[str, int],
    mode: str,
    as_json: bool,
) -> int:
    if not listen:
        raise Misuse("no listen address is given: write --listen unix:/path or tcp:127.0.0.1:7401")
    logging.basicConfig(format="unisono: %(message)s")
    limits = SessionLimits(**bounds)
    _allow_files(limits.clients_count_max)
    made = Daemon(listen, ring, bounds=limits, mode=_mode(mode), **options)
    return asyncio.run(_DaemonRun(made, as_json, WATCH_S).run())


def _mode(text: str) -> int:
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o777:
        raise Misuse(f"--mode {text!r}: write permissions as 600 or 666")
    return mode


def _allow_files(clients: int) -> None:
    """Raise the limit of open files to one socket per client, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = clients + OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _DaemonRun(ServerRun):
    """From the start to a signal, or to the loss of the ring."""

    async def run(self) -> int:
        self._handle_signals()
        asyncio.get_running_loop().add_signal_handler(
            signal.SIGUSR1, lambda: request_go_on(self._server.ring)
        )
        serving = False
        try:
            async with self._server as server:
                serving = True
                at = [str(address) for address in server.at]
                self._print("listening", lambda: " ".join(at), at=at)
                await self._serve()
        except asyncio.CancelledError:
            counters = {"counters": self._server.counters()} if serving else {}
            self._print("ended", str, **counters)
        except Stopped as stop:
            if not serving:
                raise
            reason = stop.reason
            self._print("stopped", lambda: reason, reason=reason)
            return refuse(f"stopped: {reason}", STOPPED)
        return self._code

    def _report_changes(self) -> None:
        view = self._server.ring.view
        if (view,) != self._reported:
            self._reported = (view,)
            names = [member.name for member in view.members]
            self._print("ring", lambda: f"{view.id} {' '.join(names)}", view=view.id, daemons=names)
