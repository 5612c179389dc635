"""What the page is made of: small data, whoever found it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from unisono.laws import Verdict


class RunAbout(NamedTuple):
    """What is known of a run besides its verdict."""

    protocol: str
    whole: bool = True
    """Every file of it has its end; else it goes on, or was cut short, and is judged so far."""
    replay: str | None = None
    """The command that makes it again."""


class Picture(NamedTuple):
    """The space-time diagram around the first violation of a run, or why there is none."""

    svg: str
    """Empty where there is none."""
    told: str
    """What is to be seen, or why there is nothing."""
    command: str = ""
    """What draws it in a file of its own."""


@dataclass(frozen=True)
class Findings:
    """What the pipeline found out, small enough to be read."""

    verdicts: dict[str, Verdict]
    measures: list[dict[str, Any]]
    events: int
    quarantined: int
    quarantine: Sequence[tuple[str, int | None, str]]
    """Path, row and reason: the first of them."""
    contradicted: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By run, the lives that two files tell in different ways."""
    about: Mapping[str, RunAbout] = field(default_factory=dict)
    """By run."""
    summary: Sequence[Mapping[str, Any]] = ()
    """Rows of `gold/summary`: by protocol, members and size."""
    recoveries: Mapping[tuple[str, str], Sequence[tuple[int, int]]] = field(default_factory=dict)
    """By protocol and how the lost life ended: microseconds until the others had gone on, and how
    often; in their order."""
    pictures: Mapping[str, Picture] = field(default_factory=dict)
    """By run."""
    version: str = ""
    """Of what made the page."""

    @property
    def broken(self) -> list[str]:
        """The runs that broke a law. Each kind (protocol and laws broken) has its first run before
        any has its second, so that the first few show as much as can be shown."""
        seen: dict[tuple[str, ...], int] = {}
        ranked = []
        for run, verdict in sorted(self.verdicts.items()):
            if verdict.kept:
                continue
            laws = (law for law, word in verdict.laws.items() if word == "broken")
            kind = (self.protocol_of(run), *laws)
            seen[kind] = seen.get(kind, 0) + 1
            ranked.append((seen[kind], run))
        return [run for _, run in sorted(ranked)]

    def protocol_of(self, run: str) -> str:
        about = self.about.get(run)
        return (about.protocol if about else "") or "unknown"


@dataclass(frozen=True)
class Curves:
    """What is plotted: a series a run, or a protocol where there are many runs."""

    by: str
    latency: Mapping[str, Sequence[int]]
    """In microseconds, at the quantiles of `CURVE`."""
    rates: Mapping[str, Sequence[tuple[float, float]]]
    """Seconds since the run's first delivery, and deliveries a second at a member."""
