"""A command that serves until a signal: `daemon` and `feed`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
from collections.abc import Callable
from typing import Any

from unisono.cli import INTERRUPTED, OK
from unisono.errors import UnisonoError
from unisono.group import Group
from unisono.requests import GoOn


class ServerRun:
    """Runs a server from its start to a signal, and prints what changes meanwhile."""

    def __init__(self, server: Any, as_json: bool, watch_s: float) -> None:
        self._server = server
        self._as_json = as_json
        self._watch_s = watch_s
        self._code = OK
        self._main: asyncio.Task[Any] | None = None
        self._reported: tuple[Any, ...] = ()

    def _handle_signals(self) -> None:
        """From now on, for the current task: the first signal cancels it."""
        self._main = asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._signalled, number)

    def _signalled(self, number: int) -> None:
        self._code = INTERRUPTED if number == signal.SIGINT else OK
        if self._main is not None:
            self._main.cancel()
            self._main = None

    async def _serve(self) -> None:
        watching = asyncio.create_task(self._watch())
        try:
            await self._server.serve()
        finally:
            watching.cancel()

    async def _watch(self) -> None:
        while True:
            self._report_changes()
            await asyncio.sleep(self._watch_s)

    def _report_changes(self) -> None:
        """Print what changed since the last call."""
        raise NotImplementedError

    def _print(self, kind: str, text: Callable[[], str], **facts: Any) -> None:
        with contextlib.suppress(BrokenPipeError):
            if self._as_json:
                print(json.dumps({"kind": kind, **facts}), flush=True)
            else:
                shown = text()
                print(f"{kind}: {shown}" if shown else kind, flush=True)


def request_go_on(group: Group) -> None:
    """On SIGUSR1: let this part of a split group continue without a majority."""
    try:
        group.request(GoOn())
    except UnisonoError as error:
        logging.warning("%s", error)
