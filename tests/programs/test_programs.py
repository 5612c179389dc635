"""A program in the simulated world: its time, its dice, its ends, and what it may not do."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import unisono
from tests.cli.running import here, refused
from tests.documents import blocks, section
from unisono.errors import Misuse
from unisono.programs import Program, SimulatedMember
from unisono.sim import FaultEvent, Outcome, Plan, Weather, run
from unisono.sim.plan import SECOND_US

CALM = Weather(fault_us=SECOND_US)


def outcome_of(main: Any, weather: Weather = CALM, nodes: int = 3, **judges: Any) -> Outcome:
    program = Program(main, **judges)
    plan = Plan(protocol="ring", nodes=nodes, messages=0, weather=weather, program=program)
    return run(plan)


def test_equal_seeds_are_equal_runs() -> None:
    rolled: list[Any] = []

    async def main(group: unisono.Group) -> None:
        for _ in range(5):
            await asyncio.sleep(random.uniform(0, 0.3))
            await group.multicast(random.randbytes(4))
            rolled.append((group.me.name, random.random(), time.monotonic(), time.time()))
        async for _ in group:
            pass

    plan = Plan(protocol="ring", seed=5, messages=0, faults="chaos", program=Program(main))
    first, seen = run(plan), list(rolled)
    rolled.clear()
    again = run(plan)
    assert first.history is not None
    assert again.history is not None
    assert seen == rolled
    assert first.history.rows == again.history.rows
    assert len(seen) == len(set(seen)), "members and seeds have dice of their own"


def test_time_is_the_worlds() -> None:
    slept: list[float] = []

    async def main(group: unisono.Group) -> None:
        begun_s, loop_s = time.monotonic(), asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await asyncio.Event().wait()
        slept.append(time.monotonic() - begun_s)
        slept.append(asyncio.get_running_loop().time() - loop_s)
        queue: asyncio.Queue[int] = asyncio.Queue()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(queue.put(1))
            assert await asyncio.wait_for(queue.get(), 1) == 1
        async for _ in group:
            pass

    before = random.getstate()
    assert not outcome_of(main).broken
    assert slept
    assert all(0.5 <= each < 0.6 for each in slept)
    assert random.getstate() == before, "the dice of this process are untouched"
    assert time.time() > 1_750_000_000, "and its clock is back"


def test_other_threads_keep_the_real_clock_and_may_sleep() -> None:
    asked, answered = threading.Event(), threading.Event()
    found: list[float] = []

    def beside() -> None:
        assert asked.wait(60)
        time.sleep(0)
        socket.socket().close()
        found.append(time.time())
        answered.set()

    async def main(group: unisono.Group) -> None:
        asked.set()
        assert answered.wait(60), "the other thread works on"

    thread = threading.Thread(target=beside)
    thread.start()
    outcome = outcome_of(main)
    thread.join(60)
    assert not outcome.broken
    assert found[0] > 1_750_000_000


def nothing() -> None:
    raise AssertionError("never run")


async def in_a_thread() -> None:
    await asyncio.to_thread(nothing)


async def connecting() -> None:
    await asyncio.open_connection("127.0.0.1", 1)


async def starting() -> None:
    await asyncio.create_subprocess_exec("true")


REFUSED: dict[str, Callable[[], Any]] = {
    "threads": lambda: threading.Thread(target=nothing).start(),
    "threads, awaited": in_a_thread,
    "sockets of its own": socket.socket,
    "sockets of its own, awaited": connecting,
    "other processes": lambda: subprocess.run(["true"], check=True),
    "other processes, awaited": starting,
    "blocking sleep (write await asyncio.sleep)": lambda: time.sleep(0.1),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_simulated_says_so(what: str) -> None:
    async def main(group: unisono.Group) -> None:
        found = REFUSED[what]()
        if isinstance(found, Coroutine):
            await found

    outcome = outcome_of(main)
    assert outcome.broken == ("exception",)
    text = outcome.violations[0].detail
    assert f"a simulated program has no {what.removesuffix(', awaited')}: they cannot" in text
    assert "test_programs.py" in text


def test_an_exception_is_reported_with_its_line() -> None:
    async def main(group: unisono.Group) -> None:
        async for event in group:
            if isinstance(event, unisono.View):
                assert not event.members, "somebody is here"

    (violation,) = outcome_of(main).violations
    assert violation.law == "exception"
    assert violation.detail.startswith("AssertionError: somebody is here")
    assert violation.detail.endswith('main: assert not event.members, "somebody is here"')


def test_a_lost_exception_of_a_task_is_reported() -> None:
    async def fail() -> None:
        raise ValueError("nobody looks")

    async def main(group: unisono.Group) -> None:
        task = asyncio.create_task(fail())
        async for _ in group:
            pass
        await task

    assert [each.detail[:24] for each in outcome_of(main).violations] == [
        "ValueError: nobody looks"
    ]


class Tally:
    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def snapshot(self) -> bytes:
        return b" ".join(self.heard)

    def restore(self, state: bytes) -> None:
        self.heard = state.split()


async def joins_by_itself(name: str) -> None:
    """As one writes it for the real world, `join` and all."""
    tally = Tally()
    joining = unisono.join(
        "tally", name=name, snapshot=tally.snapshot, restore=tally.restore, port=7999
    )
    async with joining as group:
        await group.multicast(name.encode())
        async for event in group:
            if isinstance(event, unisono.Message):
                tally.heard.append(event.payload)


def test_a_program_that_joins_by_itself_is_seen_by_its_snapshot() -> None:
    seen: list[Tally] = []

    def converged(members: list[SimulatedMember]) -> None:
        seen.extend(member.state for member in members if member.alive)

    crash = FaultEvent("crash", 600_000, 100_000, (1,))
    weather = Weather(fault_us=SECOND_US, schedule=(crash,))
    outcome = outcome_of(joins_by_itself, weather, converged=converged)
    assert not outcome.broken
    assert outcome.counts["crashed"] == 1
    assert len(seen) == 3
    assert {tuple(tally.heard) for tally in seen} == {tuple(seen[0].heard)}
    assert len(seen[0].heard) == 4


def test_a_program_that_returns_leaves_and_is_not_started_again() -> None:
    starts: list[str] = []

    async def main(group: unisono.Group, name: str) -> None:
        starts.append(name)
        await group.multicast(name.encode()).delivered

    outcome = outcome_of(main)
    assert not outcome.broken
    assert sorted(starts) == ["a", "b", "c"]
    assert outcome.counts["returned"] == 3


def test_one_that_is_told_to_leave_leaves_and_comes_back() -> None:
    async def main(group: unisono.Group) -> None:
        async for _ in group:
            pass

    leave = FaultEvent("leave", 500_000, 100_000, (0,))
    outcome = outcome_of(main, Weather(fault_us=SECOND_US, schedule=(leave,)))
    assert not outcome.broken
    assert outcome.counts["left"] == outcome.counts["departed"] == 1
    assert outcome.history is not None
    assert "a#2" in {f"{row.node}#{row.incarnation}" for row in outcome.history.rows}


async def needs_more(group: unisono.Group, port: int) -> None: ...


async def stateless(group: unisono.Group, state) -> None: ...  # type: ignore[no-untyped-def]


@pytest.mark.parametrize(
    ("main", "words"),
    [(needs_more, "main takes port"), (stateless, "state: YourClass"), (print, "async def main")],
)
def test_a_main_that_cannot_be_run_is_refused(main: Any, words: str) -> None:
    with pytest.raises(Misuse, match=words):
        Program(main)


def test_a_second_group_is_refused() -> None:
    async def main(group: unisono.Group) -> None:
        await unisono.join("other")

    (violation,) = outcome_of(main).violations
    assert "a simulated program joins one group" in violation.detail


# The command, with the program of the documentation.


@pytest.fixture
def votes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (program,) = blocks(section("SIMULATION", "Your own program"), "python")[:1]
    (tmp_path / "votes.py").write_text(program)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "votes", raising=False)
    return tmp_path


def test_the_documented_program_fails_and_is_shrunk(
    votes: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ("sim", "--app", "votes:main", "--nodes", "5", "--faults", "chaos")
    campaign = json.loads(here(capfd, *command, "--seeds", "2:4", "--jobs", "1", "--json").stdout)
    assert [each["seed"] for each in campaign["failures"]] == [3]
    found = here(capfd, *command, "--seed", "3", "--shrink", "--json")
    told = json.loads(found.stdout)
    assert found.returncode == 1
    assert told["laws"]["converged"] == "broken"
    assert "assert len(counts) <= 1" in told["violations"][0]["detail"]
    assert told["shrunk"]["nodes"] <= 3
    plan = Path(told["shrunk"]["replay"].split()[-1])
    assert plan.with_suffix(".svg").read_text().startswith("<svg")
    again = here(capfd, *told["shrunk"]["replay"].split()[1:])
    assert again.returncode == 1
    assert "votes.py" in again.stdout


@pytest.mark.parametrize(
    ("app", "words"),
    [
        ("votes:nothing", "votes has no nothing"),
        ("absent:main", "there is no module 'absent' here"),
        ("votes:1", "write module:function"),
    ],
)
def test_an_app_that_is_not_there_is_refused(
    votes: Path, capfd: pytest.CaptureFixture[str], app: str, words: str
) -> None:
    refused(here(capfd, "sim", "--app", app), words)
