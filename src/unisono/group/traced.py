"""A core under the tap, and the file its rows go to."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from unisono.config import Config
from unisono.core import Core
from unisono.errors import Misuse
from unisono.spec import ProtocolSpec

FLUSH_S: Final = 0.25
"""A process that is killed loses at most this much of its trace."""


class Traced:
    """The trace of one incarnation."""

    def __init__(self, core: Core, spec: ProtocolSpec, config: Config) -> None:
        try:
            from unisono.trace.files import TraceFile
            from unisono.trace.parquet import warm_up
            from unisono.trace.tap import Tap
        except ImportError as error:
            missing = error.name or "pyarrow"
            raise Misuse(f"trace= needs {missing}: pip install 'unisono[trace]'") from None
        warm_up()
        run, me = config.run or config.group, core.me
        self._file = TraceFile(config.trace, run, me.name, me.incarnation)
        self._flushing: asyncio.TimerHandle | None = None
        least = spec.quorum(config.options)
        self.core = Tap(core, spec.name, config.group, self._file, config.detail, spec.label, least)

    def start(self) -> None:
        """Flush periodically."""
        self._file.flush()
        self._flushing = asyncio.get_running_loop().call_later(FLUSH_S, self.start)

    def stopped(self, reason: str) -> None:
        """The world ended this incarnation, so the core could not report it."""
        self.core.note(time.monotonic_ns() // 1000, "leave", reason)

    def close(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
        self._file.close()
