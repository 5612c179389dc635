"""A core under the tap, and the file its rows go to."""

from __future__ import annotations

import time

from unisono.config import Config
from unisono.core import Core, Offer
from unisono.errors import Misuse


class Traced:
    """A ledger: what a life is asked to trace."""

    def __init__(self, core: Core, offer: Offer, config: Config) -> None:
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
        self.core = Tap(
            core, offer.name, config.group, self._file, config.detail, label=offer.label
        )
        self.flush, self.close = self._file.flush, self._file.close

    def stopped(self, reason: str) -> None:
        self.core.note(time.monotonic_ns() // 1000, "leave", reason)
