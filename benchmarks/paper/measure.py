"""Measures groups of real processes on loopback, each a member."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

from benchmarks.paper.plan import (
    RATE,
    SENDERS_COUNT,
    SPORADIC,
    CurveFigure,
    Effort,
    Point,
    points,
)
from unisono.bench.checkout import environment
from unisono.bench.hosts import LOCALHOST, free_ports, has_multicast
from unisono.processes import Processes, RunFailed, answers
from unisono.sim.plan import node_name
from unisono.spec import ProtocolSpec

WINDOW_BYTES: Final = 1 << 17
"""What a sender has on its way: enough to keep a ring busy, and soon delivered when it stops."""
READY_S, ANSWER_S = 40.0, 20.0
AHEAD_S: Final = 0.05
"""The delay of a measurement after its command, so that all members have read it."""
ATTEMPTS_MAX: Final = 3

Report = Callable[[str], None]
Samples = dict[Point, list[float]]


class Measured(NamedTuple):
    """The outcome."""

    samples: Samples
    missing: list[str]
    """What could not be measured, as text."""
    repeated: list[str]
    """Why a group was given up and another started, to measure what was left."""


class PaperCluster:
    """The members of one group; leaving the `with` ends them, whatever happened."""

    def __init__(self, spec: ProtocolSpec, options: Mapping[str, int], count: int) -> None:
        self._spec = spec
        self._options = options
        self.count = count
        self._multicast = has_multicast()
        self._ports = free_ports(1 if self._multicast else count)
        self._processes = Processes()

    def __enter__(self) -> Self:
        try:
            for index in range(self.count):
                # -P: a folder `benchmarks` in the working directory is not ours.
                command = (sys.executable, "-P", "-m", "benchmarks.paper.member")
                name = f"{self.count} members: {node_name(index)}"
                process = self._processes.start(name, command, environment())
                process.write(json.dumps(self._join_arguments(index)))
            answers([*self._processes], READY_S)
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()

    def _kill(self) -> None:
        for process in self._processes:
            process.kill()

    def _join_arguments(self, index: int) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "count": self.count,
            "group": "paper",
            "name": node_name(index),
            "protocol": self._spec.name,
            "window_bytes_max": WINDOW_BYTES,
            "join_s": READY_S,
            "options": dict(self._spec.assign_roles(index, self.count, self._options)),
        }
        if self._multicast:
            return arguments | {"port": self._ports[0]}
        peers = [f"{LOCALHOST}:{port}" for port in self._ports]
        return arguments | {"peers": peers, "bind": peers[index]}

    def measure(self, point: Point, effort: Effort) -> list[float]:
        """The samples of one point, in the figure's unit."""
        figure = point.figure
        seconds = {RATE: effort.rate_s, SPORADIC: effort.sporadic_s}.get(
            figure.kind, effort.delay_s
        )
        begin_ns = time.monotonic_ns() + round(AHEAD_S * 1e9)
        from_ns = begin_ns + round(effort.warm_s * 1e9)
        task = {
            "do": "load" if figure.kind == RATE else "single",
            "nbytes": point.nbytes,
            "service": figure.service.name.lower(),
            "begin_ns": begin_ns,
            "from_ns": from_ns,
            "until_ns": from_ns + round(seconds * 1e9),
            "slices": effort.slices,
            "pause_s": effort.pause_s if figure.kind == SPORADIC else 0.0,
        }
        for index, process in enumerate(self._processes):
            process.write(json.dumps(task | {"sends": index < SENDERS_COUNT}))
        told = answers([*self._processes], seconds + ANSWER_S)
        if figure.kind == RATE:
            slice_s = seconds / effort.slices
            by_slice = zip(*(each["counts"] for each in told), strict=True)
            return [sum(counts) / self.count / slice_s for counts in by_slice]
        return [delay_us / 1000 for each in told for delay_us in each["delays_us"]]


def measured(
    spec: ProtocolSpec,
    options: Mapping[str, int],
    figures: Sequence[CurveFigure],
    effort: Effort,
    progress: Report,
) -> Measured:
    """All points, round by round."""
    found = Measured({}, [], [])
    end_s = time.monotonic() + effort.within_s
    for turn in range(effort.rounds):

        def progress_of_round(text: str, turn: int = turn) -> None:
            progress(f"round {turn + 1}/{effort.rounds}: {text}")

        for count in effort.members:
            left = points(figures, count)
            why = f"not within {effort.within_s:g} s"
            for _ in range(ATTEMPTS_MAX):
                if not left or time.monotonic() > end_s:
                    break
                try:
                    cluster = PaperCluster(spec, options, count)
                    why = _round(cluster, left, effort, found.samples, end_s, progress_of_round)
                except RunFailed as failure:
                    why = str(failure)
                    found.repeated.append(f"{left[0]}: {why}")
            found.missing.extend(f"{point}: {why}" for point in left)
    return found


def _round(
    cluster: PaperCluster,
    left: list[Point],
    effort: Effort,
    samples: Samples,
    end_s: float,
    progress: Report,
) -> str:
    """Measure the points left, removing those done; why it stopped, if before the last."""
    progress(f"{cluster.count} members start")
    with cluster:
        while left:
            if time.monotonic() > end_s:
                return f"not within {effort.within_s:g} s"
            progress(str(left[0]))
            found = cluster.measure(left[0], effort)
            if not found:
                raise RunFailed(f"{cluster.count} members: nothing was delivered")
            samples.setdefault(left.pop(0), []).extend(found)
    return ""
