"""The simulator: a world with a seed, in which any protocol meets every fault and must heal."""

from __future__ import annotations

from unisono.sim.applications import (
    ApplicationContext,
    ApplicationEnd,
    ApplicationSpec,
    SimApplication,
)
from unisono.sim.campaign import Summary, campaign
from unisono.sim.plan import KINDS, PROFILES, Clock, FaultEvent, LinkPlan, Plan, Router, Weather
from unisono.sim.planfile import plan_from_json, plan_to_json, read_plan, write_plan
from unisono.sim.run import Outcome, outcome_json, run
from unisono.sim.shrink import Shrunk, shrink, shrunk
from unisono.sim.swarm import drawn

__all__ = [
    "KINDS",
    "PROFILES",
    "ApplicationContext",
    "ApplicationEnd",
    "ApplicationSpec",
    "Clock",
    "FaultEvent",
    "LinkPlan",
    "Outcome",
    "Plan",
    "Router",
    "Shrunk",
    "SimApplication",
    "Summary",
    "Weather",
    "campaign",
    "drawn",
    "outcome_json",
    "plan_from_json",
    "plan_to_json",
    "read_plan",
    "run",
    "shrink",
    "shrunk",
    "write_plan",
]
