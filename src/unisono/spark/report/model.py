"""The data of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from unisono.laws import Verdict


class RunInfo(NamedTuple):
    """What is known of a run besides its verdict."""

    protocol: str
    complete: bool = True
    """Every file has its end; else the run goes on, or was cut short, and is judged so far."""
    replay: str | None = None
    """The command that reproduces it."""


class Diagram(NamedTuple):
    """The space-time diagram around the first violation of a run, or why there is none."""

    svg: str
    """Empty for none."""
    caption: str
    """What it shows, or why there is none."""
    command: str = ""
    """Draws it into a file."""


def broken_laws(verdict: Verdict) -> list[str]:
    return [law for law, outcome in verdict.laws.items() if outcome == "broken"]


@dataclass(frozen=True)
class Findings:
    """The results of the pipeline, as far as the page shows them."""

    verdicts: dict[str, Verdict]
    measures: list[dict[str, Any]]
    events: int
    quarantined: int
    quarantine: Sequence[tuple[str, int | None, str]]
    """Path, row and reason: the first of them."""
    contradicted: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By run, the incarnations whose rows differ between two files."""
    info: Mapping[str, RunInfo] = field(default_factory=dict)
    """By run."""
    summary: Sequence[Mapping[str, Any]] = ()
    """Rows of `gold/summary`: by protocol, members and size."""
    recoveries: Mapping[tuple[str, str], Sequence[tuple[int, int]]] = field(default_factory=dict)
    """By protocol and end of the lost incarnation: ascending recovery times in microseconds, with
    the count of each."""
    stabilities: Mapping[tuple[str, str], Sequence[tuple[int, int]]] = field(default_factory=dict)
    """By protocol and service: ascending times from delivery to stability in microseconds, with the
    count of each."""
    analyses: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """By table, the rows that the panels show."""
    diagrams: Mapping[str, Diagram] = field(default_factory=dict)
    """By run."""
    version: str = ""

    @property
    def broken(self) -> list[str]:
        """The runs that broke a law. Each kind (protocol and laws broken) has its first run before
        any has its second, so that the first few show as many kinds as possible."""
        seen: dict[tuple[str, ...], int] = {}
        ranked = []
        for run, verdict in sorted(self.verdicts.items()):
            if not verdict.kept:
                kind = (self.protocol_of(run), *broken_laws(verdict))
                seen[kind] = seen.get(kind, 0) + 1
                ranked.append((seen[kind], run))
        return [run for _, run in sorted(ranked)]

    def info_of(self, run: str) -> RunInfo:
        return self.info.get(run, RunInfo(""))

    def protocol_of(self, run: str) -> str:
        return self.info_of(run).protocol or "unknown"


@dataclass(frozen=True)
class Curves:
    """What is plotted: a series per run, or per protocol where there are many runs."""

    by: str
    latency: Mapping[str, Sequence[int]]
    """In microseconds, at the quantiles of `CURVE`."""
    rates: Mapping[str, Sequence[tuple[float, float]]]
    """Seconds since the run's first delivery, and deliveries per second at a member."""
