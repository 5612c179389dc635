"""Sweeps: thousands of simulated runs as Spark tasks, judged by the pipeline."""

from __future__ import annotations

from unisono.spark.sweep.driver import KEEPS, Failure, SweepProgress, Swept, sweep
from unisono.spark.sweep.spec import Sweep

__all__ = ["KEEPS", "Failure", "Sweep", "SweepProgress", "Swept", "sweep"]
