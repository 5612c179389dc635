"""Your own program in the simulated world: unchanged, under faults, from a seed."""

from __future__ import annotations

from unisono.programs.program import Program, named_program
from unisono.programs.running import SimulatedMember
from unisono.programs.seeds import chaos

__all__ = ["Program", "SimulatedMember", "chaos", "named_program"]
