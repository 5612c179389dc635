"""What is measured: the five figures, the points that the paper prints, and the effort."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from unisono.errors import Misuse
from unisono.model import Service
from unisono.spec import ProtocolSpec

RATE, DELAY, SPORADIC = "rate", "delay", "sporadic"
MEASURED, SIMULATED = "measured", "simulated"
SENDERS_COUNT: Final = 2


class Printed(NamedTuple):
    """A point in the text of the paper; its curves are only drawn."""

    nbytes: int
    members: int
    """0 where the paper calculates it without a group size."""
    value: float
    """Messages a second, or milliseconds."""


class CurveFigure(NamedTuple):
    number: int
    title: str
    kind: str
    service: Service
    sizes: tuple[int, ...]
    """Octets of a message."""
    printed: tuple[Printed, ...] = ()

    @property
    def unit(self) -> str:
        return "messages a second" if self.kind == RATE else "ms"

    @property
    def least_members(self) -> int:
        return 2 if self.kind == RATE else 3


FIGURES: Final = (
    CurveFigure(
        13,
        "Ordered messages a second",
        RATE,
        Service.AGREED,
        (0, 1024, 4096),
        (Printed(0, 5, 1400), Printed(1024, 0, 571)),
    ),
    CurveFigure(
        14,
        "Atomic messages a second",
        RATE,
        Service.SAFE,
        (0, 1024, 4096),
        (Printed(1024, 0, 250),),
    ),
    CurveFigure(
        15,
        "Delay of ordered messages",
        DELAY,
        Service.AGREED,
        (64, 1024),
        (Printed(64, 3, 1.5), Printed(64, 16, 2.6), Printed(1024, 3, 2.9), Printed(1024, 16, 4.5)),
    ),
    CurveFigure(
        16,
        "Delay of atomic messages",
        DELAY,
        Service.SAFE,
        (64, 1024),
        (Printed(1024, 0, 3.2),),
    ),
    CurveFigure(17, "Delay of sporadic messages", SPORADIC, Service.AGREED, (64, 1024)),
)


class Effort(NamedTuple):
    """Durations, repetitions and group sizes."""

    members: tuple[int, ...]
    rounds: int
    rate_s: float
    slices: int
    """Parts of the time in which a rate is measured."""
    delay_s: float
    sporadic_s: float
    pause_s: float
    """The pause between sporadic messages of a sender: this, up to twice this."""
    warm_s: float
    simulated_s: float
    """Virtual seconds of each simulated point."""
    within_s: float
    """Points not measured by then are reported as missing."""


FULL: Final = Effort(
    members=(2, 3, 5, 8, 12, 16),
    rounds=2,
    rate_s=1.0,
    slices=5,
    delay_s=1.0,
    sporadic_s=3.0,
    pause_s=0.15,
    warm_s=0.2,
    simulated_s=1.0,
    within_s=900.0,
)
QUICK: Final = Effort(
    members=(2, 3),
    rounds=1,
    rate_s=0.3,
    slices=3,
    delay_s=0.3,
    sporadic_s=0.8,
    pause_s=0.1,
    warm_s=0.1,
    simulated_s=0.3,
    within_s=60.0,
)


class Point(NamedTuple):
    """One measurement: a figure's curve at a group size."""

    figure: CurveFigure
    nbytes: int
    members: int

    def __str__(self) -> str:
        return f"{self.members} members, {self.figure.title.lower()}, {size(self.nbytes)}"


class CurveSummary(NamedTuple):
    """The samples of a point, in the figure's unit."""

    members: int
    median: float
    low: float
    """The first decile."""
    high: float
    """The last decile."""
    samples: int


Curves = dict[tuple[int, str, int], list[CurveSummary]]
"""By figure, origin and message size; in the order of group size."""


def figures_for(spec: ProtocolSpec) -> tuple[CurveFigure, ...]:
    """Those that the protocol's services allow."""
    if Service.AGREED not in spec.services:
        raise Misuse(
            f"{spec.name} has no total order: choose a protocol that has, as --protocol ring"
        )
    return tuple(figure for figure in FIGURES if figure.service in spec.services)


def points(figures: Sequence[CurveFigure], members: int) -> list[Point]:
    return [
        Point(figure, nbytes, members)
        for figure in figures
        for nbytes in figure.sizes
        if members >= figure.least_members
    ]


def summed_up(members: int, samples: Sequence[float]) -> CurveSummary:
    assert samples
    if len(samples) == 1:
        return CurveSummary(members, samples[0], samples[0], samples[0], 1)
    tenths = statistics.quantiles(samples, n=10, method="inclusive")
    return CurveSummary(members, statistics.median(samples), tenths[0], tenths[-1], len(samples))


def size(nbytes: int) -> str:
    return f"{nbytes // 1024} KB" if nbytes >= 1024 else f"{nbytes} B"


def as_json(figures: Sequence[CurveFigure], curves: Curves) -> dict[str, Any]:
    """By the number of the figure."""
    return {
        str(figure.number): {
            "title": figure.title,
            "unit": figure.unit,
            "service": figure.service.name.lower(),
            "paper": [each._asdict() for each in figure.printed],
            **{origin: _of(figure, origin, curves) for origin in (MEASURED, SIMULATED)},
        }
        for figure in figures
    }


def _of(figure: CurveFigure, origin: str, curves: Curves) -> Mapping[str, list[dict[str, float]]]:
    return {
        str(nbytes): [
            {name: round(value, 3) for name, value in each._asdict().items()}
            for each in curves.get((figure.number, origin, nbytes), ())
        ]
        for nbytes in figure.sizes
    }
