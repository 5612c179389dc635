"""How long tests wait: for an event, up to a limit that only what never happens reaches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

LIMIT_S: Final = 240.0
"""Far more than a busy machine needs, and less than pytest allows a test (`pyproject.toml`), so
that the test itself says what it waited for."""


def run_story(story: Coroutine[Any, Any, Any]) -> Any:
    """Run it to its end, in an event loop of its own."""
    return asyncio.run(asyncio.wait_for(story, LIMIT_S))


async def eventually(done: Callable[[], Any], pause_s: float = 0.005) -> None:
    """Wait in an event loop until it is so."""
    async with asyncio.timeout(LIMIT_S):
        while not done():
            await asyncio.sleep(pause_s)


def until(done: Callable[[], Any], what: str = "it", instead: Callable[[], str] = str) -> None:
    """Wait until it is so; if it never is, say what was there `instead`."""
    end = time.monotonic() + LIMIT_S
    while not done():
        late = time.monotonic() >= end
        assert not late, f"{what} did not happen within {LIMIT_S:g} s: {instead()}"
        time.sleep(0.02)
