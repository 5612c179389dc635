"""The measured group: real processes on loopback, each a member, and what they tell."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from benchmarks.paper.plan import (
    RATE,
    SENDERS_COUNT,
    SPORADIC,
    Effort,
    Figure,
    Point,
    points,
)
from unisono.bench.checkout import environment
from unisono.cli.troupe import HOST, Trouble, free_ports, has_multicast
from unisono.core import Offer
from unisono.sim.plan import node_name

WINDOW_OCTETS: Final = 1 << 17
"""What a sender has under way: enough to keep a ring busy, and soon gone when it stops."""
READY_S, ANSWER_S, END_S = 40.0, 20.0, 5.0
AHEAD_S: Final = 0.05
"""So long after the members are told a measurement begins, that all have heard of it."""
ATTEMPTS_MAX: Final = 3
LINE_OCTETS_MAX: Final = 1 << 20

Tell = Callable[[str], None]
Samples = dict[Point, list[float]]


class Found(NamedTuple):
    """What came of it."""

    samples: Samples
    missing: list[str]
    """In words, what could not be measured."""
    repeated: list[str]
    """Why a group was given up and another started: what it had not told yet was asked again."""


class Crew:
    """Leaving the `async with` ends every process, whatever happened."""

    def __init__(self, offer: Offer, options: Mapping[str, int], count: int) -> None:
        self._offer = offer
        self._options = options
        self.count = count
        self._multicast = has_multicast()
        self._ports = free_ports(1 if self._multicast else count)
        self._processes: list[asyncio.subprocess.Process] = []

    async def __aenter__(self) -> Crew:
        try:
            for index in range(self.count):
                await self._start(index)
            await self._answers(READY_S)
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def _start(self, index: int) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "benchmarks.paper.member",
            env={**os.environ, **environment()},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=LINE_OCTETS_MAX,
            # Ctrl-C is for the command, which then ends them itself.
            start_new_session=True,
        )
        self._processes.append(process)
        self._write(process, self._how(index))

    def _how(self, index: int) -> dict[str, Any]:
        how: dict[str, Any] = {
            "count": self.count,
            "group": "paper",
            "name": node_name(index),
            "protocol": self._offer.name,
            "window_octets_max": WINDOW_OCTETS,
            "join_s": READY_S,
            "options": dict(self._offer.appoint(index, self.count, self._options)),
        }
        if self._multicast:
            return how | {"port": self._ports[0]}
        peers = [f"{HOST}:{port}" for port in self._ports]
        return how | {"peers": peers, "bind": peers[index]}

    def _write(self, process: asyncio.subprocess.Process, told: Mapping[str, Any]) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps(told).encode() + b"\n")

    async def _answers(self, within_s: float) -> list[dict[str, Any]]:
        """One of each."""
        try:
            async with asyncio.timeout(within_s):
                return list(await asyncio.gather(*map(self._answer, self._processes)))
        except TimeoutError:
            raise Trouble(f"{self.count} members: no answer within {within_s:g} s") from None

    async def _answer(self, process: asyncio.subprocess.Process) -> dict[str, Any]:
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line:
            raise Trouble(f"{self.count} members: one ended")
        told: dict[str, Any] = json.loads(line)
        if "trouble" in told:
            raise Trouble(f"{self.count} members: {told['trouble']}")
        return told

    async def _end(self) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        for process in self._processes:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), END_S)

    # -- measuring -------------------------------------------------------------------------------

    async def measure(self, point: Point, effort: Effort) -> list[float]:
        """The samples of one point, in the figure's unit."""
        figure = point.figure
        seconds = {RATE: effort.rate_s, SPORADIC: effort.sporadic_s}.get(
            figure.kind, effort.delay_s
        )
        begin_ns = time.monotonic_ns() + round(AHEAD_S * 1e9)
        from_ns = begin_ns + round(effort.warm_s * 1e9)
        asked = {
            "do": "pour" if figure.kind == RATE else "single",
            "octets": point.octets,
            "service": figure.service.name.lower(),
            "begin_ns": begin_ns,
            "from_ns": from_ns,
            "until_ns": from_ns + round(seconds * 1e9),
            "slices": effort.slices,
            "pause_s": effort.pause_s if figure.kind == SPORADIC else 0.0,
        }
        for index, process in enumerate(self._processes):
            self._write(process, asked | {"speaks": index < SENDERS_COUNT})
        told = await self._answers(seconds + ANSWER_S)
        if figure.kind == RATE:
            slice_s = seconds / effort.slices
            by_slice = zip(*(each["counts"] for each in told), strict=True)
            return [sum(counts) / self.count / slice_s for counts in by_slice]
        return [delay_us / 1000 for each in told for delay_us in each["delays_us"]]


async def measured(
    offer: Offer,
    options: Mapping[str, int],
    figures: Sequence[Figure],
    effort: Effort,
    tell: Tell,
) -> Found:
    """All points, round by round."""
    found = Found({}, [], [])
    end_s = time.monotonic() + effort.within_s
    for turn in range(effort.rounds):

        def tell_round(words: str, turn: int = turn) -> None:
            tell(f"round {turn + 1}/{effort.rounds}: {words}")

        for count in effort.members:
            left = points(figures, count)
            why = f"not within {effort.within_s:g} s"
            for _ in range(ATTEMPTS_MAX):
                if not left or time.monotonic() > end_s:
                    break
                try:
                    crew = Crew(offer, options, count)
                    why = await _round(crew, left, effort, found.samples, end_s, tell_round)
                except Trouble as trouble:
                    why = str(trouble)
                    found.repeated.append(f"{left[0]}: {why}")
            found.missing.extend(f"{point}: {why}" for point in left)
    return found


async def _round(
    crew: Crew, left: list[Point], effort: Effort, samples: Samples, end_s: float, tell: Tell
) -> str:
    """Measure what is left, and take from it what is done."""
    tell(f"{crew.count} members start")
    async with crew:
        while left:
            if time.monotonic() > end_s:
                return f"not within {effort.within_s:g} s"
            tell(str(left[0]))
            found = await crew.measure(left[0], effort)
            if not found:
                raise Trouble(f"{crew.count} members: nothing was delivered")
            samples.setdefault(left.pop(0), []).extend(found)
    return ""
