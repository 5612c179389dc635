"""Sweeps: thousands of simulated runs as Spark tasks, judged by the pipeline."""

from __future__ import annotations

from unisono.spark.sweep.ask import Sweep
from unisono.spark.sweep.whole import KEEPS, Failure, Standing, Swept, sweep

__all__ = ["KEEPS", "Failure", "Standing", "Sweep", "Swept", "sweep"]
