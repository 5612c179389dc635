"""`unisono feed`: a member that keeps what its group says in a log, and serves it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unisono.cli.serving import Serving
from unisono.errors import Misuse

WATCH_S = 0.5


def feed(
    group: str | None,
    directory: Path | None,
    options: Mapping[str, Any],
    retain: Mapping[str, Any],
    as_json: bool,
) -> int:
    if group is None and "config" not in options:
        raise Misuse("no group is named: write unisono feed GROUP --log DIR, or --config FILE")
    if directory is None:
        raise Misuse("where does the log go? write --log DIR, the same each time")
    try:
        from unisono.feed.site import Feed
    except ImportError as missing:
        name = missing.name or "pyarrow"
        raise Misuse(f"a feed needs {name}: pip install 'unisono[feed]'") from None
    logging.basicConfig(format="unisono: %(message)s", level=logging.WARNING)
    return asyncio.run(_FeedRun(Feed(group, directory, **retain, **options), as_json).run())


class _FeedRun(Serving):
    """From the start to a signal, or to what the feed cannot go on from."""

    def __init__(self, feed: Any, as_json: bool) -> None:
        self._feed = feed
        super().__init__()
        self._as_json = as_json

    async def run(self) -> int:
        self._heed_signals()
        try:
            async with self._feed as feed:
                self._tell("listening", at=feed.at)
                watching = asyncio.create_task(self._watch())
                try:
                    await feed.serve()
                finally:
                    watching.cancel()
        except asyncio.CancelledError:
            self._tell("ended")
        return self._code

    async def _watch(self) -> None:
        """Who is in the group, when it changes."""
        told: tuple[Any, ...] = ()
        while True:
            status = self._feed.status()
            now = (status["members"], status["away"], status["life"])
            if now != told:
                told = now
                keys = ("members", "away", "life", "first", "end")
                self._tell("group", **{key: status[key] for key in keys})
            await asyncio.sleep(WATCH_S)

    def _tell(self, kind: str, **told: Any) -> None:
        with contextlib.suppress(BrokenPipeError):
            if self._as_json:
                print(json.dumps({"kind": kind, **told}), flush=True)
                return
            words = [
                f"{name} {' '.join(value) if isinstance(value, list) else value}"
                for name, value in told.items()
                if value not in (None, "", [])
            ]
            print(f"{kind}: {', '.join(words)}" if words else kind, flush=True)
