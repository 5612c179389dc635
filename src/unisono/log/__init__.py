"""A durable log of batches by offset: one writer, many readers, SQLite underneath.

Blobs are opaque here.
"""

from __future__ import annotations

from unisono.log.reader import LogReader
from unisono.log.record import BadBatch, BadLog, Dropped, LogBatch, LogBounds, Trimmed
from unisono.log.writer import Log

__all__ = ["BadBatch", "BadLog", "Dropped", "Log", "LogBatch", "LogBounds", "LogReader", "Trimmed"]
