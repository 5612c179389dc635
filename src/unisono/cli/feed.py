"""`unisono feed`: a member that keeps a group's messages in a log and serves it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unisono.cli.serving import ServerRun
from unisono.errors import Misuse

WATCH_S = 0.5
SHOWN = ("members", "away", "life", "first", "end")


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
        raise Misuse("no directory for the log: write --log DIR, the same each time")
    try:
        from unisono.feed.site import Feed
    except ImportError as missing:
        name = missing.name or "pyarrow"
        raise Misuse(f"a feed needs {name}: pip install 'unisono[feed]'") from None
    logging.basicConfig(format="unisono: %(message)s", level=logging.WARNING)
    made = Feed(group, directory, **retain, **options)
    return asyncio.run(_FeedRun(made, as_json, WATCH_S).run())


class _FeedRun(ServerRun):
    """From the start to a signal, or to an error that the feed cannot recover from."""

    async def run(self) -> int:
        self._handle_signals()
        try:
            async with self._server as server:
                self._print("listening", lambda: f"at {server.at}", at=server.at)
                await self._serve()
        except asyncio.CancelledError:
            self._print("ended", str)
        return self._code

    def _report_changes(self) -> None:
        status = self._server.status()
        now = (status["members"], status["away"], status["life"])
        if now != self._reported:
            self._reported = now
            facts = {key: status[key] for key in SHOWN}
            self._print("group", lambda: _text(facts), **facts)


def _text(facts: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {' '.join(value) if isinstance(value, list) else value}"
        for name, value in facts.items()
        if value not in (None, "", [])
    )
