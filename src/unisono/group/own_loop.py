"""The event loop that a group belongs to: another thread or loop would send amid a step."""

from __future__ import annotations

import asyncio
from asyncio import events

from unisono.errors import Misuse


class OwnLoop:
    """Known from the join on. Checked at every call, so it is cheap."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def bind(self) -> None:
        self._loop = asyncio.get_running_loop()

    def check(self) -> None:
        if events._get_running_loop() is not self._loop and self._loop is not None:
            raise Misuse(
                "a group belongs to the event loop it was joined in, and this is another thread or"
                " loop: hand the call over, as asyncio.run_coroutine_threadsafe does, or use"
                " unisono.sync, which is for threads"
            )
