"""Sweeps: thousands of simulated runs as Spark tasks, judged by the pipeline."""

from __future__ import annotations

from unisono.spark.sweep.ask import Sweep
from unisono.spark.sweep.driver import KEEPS, Failure, SweepProgress, Swept, sweep

__all__ = ["KEEPS", "Failure", "Sweep", "SweepProgress", "Swept", "sweep"]
