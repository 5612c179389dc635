"""What a change of the group costs: a member killed, a member come with the group's state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from unisono.bench.crew import Crew
from unisono.bench.ours import Ours
from unisono.bench.results import median, spread
from unisono.bench.system import Load, Stage, Troupe

RATE: Final = 200.0
"""Messages a second of each survivor, so that there is something to deliver."""


@dataclass
class Standing:
    """All rounds of one system of ours."""

    system: str
    service: str
    via: str
    members: int
    state_octets: int
    recovery_ms: list[float] = field(default_factory=list)
    join_ms: list[float] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {
            "system": self.system,
            "service": self.service,
            "via": self.via,
            "members": self.members,
            "recovery_ms": _summed(self.recovery_ms),
        }
        if self.join_ms:
            told |= {"state_octets": self.state_octets, "join_ms": _summed(self.join_ms)}
        return told


def _summed(values: Sequence[float]) -> dict[str, float]:
    low, high = spread(values)
    return {"median": median(values), "low": low, "high": high}


def recovery_ms(ours: Ours, here: Stage, load: Load) -> float:
    """From the kill of one to the first message that the last survivor has in the new view."""
    with ours.started(here, load) as troupe:
        crew = Crew(troupe, here)
        crew.wait_ready()
        killed_ns, answers = crew.mourn(len(here.seats) - 1, load.size, RATE)
        return float(max(each["first_ns"] for each in answers) - killed_ns) / 1e6


def joining_ms(ours: Ours, here: Stage, load: Load, state_octets: int) -> float:
    """From the call of `join` to a view with all, and the others' state, at one that comes after
    one has left: a group may begin only when all have come."""
    with ours.cast(here, load) as cast:
        *first, last = here.seats
        present = [cast.enter(seat, len(first), state_octets) for seat in first]
        present.append(cast.enter(last, len(here.seats), state_octets))
        crew = Crew(Troupe(present), here)
        crew.wait_ready()
        crew.dismiss(len(first))
        newcomer = cast.enter(last, len(here.seats), state_octets, newcomer=True)
        voice = Crew(Troupe([newcomer]), here)
        return float(voice.wait_ready()[0]["took_ns"]) / 1e6
