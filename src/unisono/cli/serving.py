"""What the commands share that serve until they are told to end."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from unisono.cli import INTERRUPTED, OK


class Serving:
    """From the start to a signal: the first ends it cleanly, a second one finds it ending."""

    def __init__(self) -> None:
        self._code = OK
        self._main: asyncio.Task[Any] | None = None

    def _heed_signals(self) -> None:
        """From now on, for the task that runs this."""
        self._main = asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._signalled, number)

    def _signalled(self, number: int) -> None:
        self._code = INTERRUPTED if number == signal.SIGINT else OK
        if self._main is not None:
            self._main.cancel()
            self._main = None
