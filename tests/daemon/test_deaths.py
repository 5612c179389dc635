"""Deaths: of clients, of daemons, of their place in the ring. The living go on and know why."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path
from typing import Any

import pytest

import unisono
from tests.daemon.stage import (
    daemon_process,
    daemons,
    heard,
    joining,
    messages,
    of_size,
    stopped,
)
from tests.harness import Child, Module
from tests.net.recorder import free_port
from tests.waiting import LIMIT_S, eventually, until

pytestmark = pytest.mark.real

THREE = 3


async def listening(process: Child, kind: str) -> None:
    await asyncio.get_running_loop().run_in_executor(None, process.expect, kind)


def three(place: Path, stack: contextlib.ExitStack) -> list[Child]:
    port = free_port()
    found = [stack.enter_context(daemon_process(place, at, port)) for at in range(THREE)]
    for each in found:
        sees(each, [f"d{at}" for at in range(THREE)])
    return found


def sees(process: Child, names: list[str]) -> None:
    def so() -> bool:
        views = process.of("ring")
        return bool(views) and sorted(views[-1]["daemons"]) == names

    until(so, str(names), lambda: str(process.objects[-3:]))


async def test_a_killed_client_is_removed_at_once_after_its_last_message(place: Path) -> None:
    async with (
        daemons(place, 2) as (one, _),
        joining(place, "a") as a,
        joining(place, "b", at=1) as b,
    ):
        client = {"name": "k", "group": "g", "to": ["g"], "daemon": f"unix:{place}/d1"}
        orders: Any = {"batch": 20, "pause_s": 0.001, "nbytes": 50, "clients": [client]}
        with Module("clients", "tests.daemon.many_clients", orders) as process:
            await listening(process, "joined")
            process.write("talk")
            await heard(a, 100)
            process.kill()
            view = await of_size(a, 2)
            assert [who.name for who in view.left] == ["k"]
            await eventually(lambda: len(b.members) == 2 and b.view == a.view)
            await a.multicast(b"after")
            logs: list[list[tuple[str, int]]] = []
            for each in (a, b):
                log: list[tuple[str, int]] = []
                while not log or log[-1][0] != "a":
                    log += [(m.sender.name, m.number) for m in await messages(each, 1)]
                logs.append(log)
            short = min(map(len, logs))
            assert logs[0][-short:] == logs[1][-short:]
            assert one.counts["cut"] == 0


async def test_a_killed_daemon_takes_its_clients_out_at_one_place_and_they_know_at_once(
    place: Path,
) -> None:
    with contextlib.ExitStack() as stack:
        loop = asyncio.get_running_loop()
        processes = await loop.run_in_executor(None, three, place, stack)
        groups = {
            f"{group}{at}": await joining(place, f"{group}{at}", group, at=at)
            for group in ("red", "blue")
            for at in range(THREE)
        }
        out = await unisono.connect(f"{place}/d2")
        await eventually(lambda: all(len(each.members) == 3 for each in groups.values()))
        processes[2].kill()
        for name in ("red2", "blue2"):
            reason = await stopped(groups[name])
            assert f"the daemon at unix:{place}/d2 is gone" in reason
            assert "rejoin=True" in reason
            with pytest.raises(unisono.Stopped, match="is gone"):
                await groups[name].multicast(b"x")
        await eventually(lambda: out.stopped is not None)
        with pytest.raises(unisono.Stopped, match="is gone"):
            await out.send("red", b"x")
        for group in ("red", "blue"):
            here, there = groups[f"{group}0"], groups[f"{group}1"]
            views = [await of_size(each, 3) for each in (here, there)]
            views += [await of_size(each, 2) for each in (here, there)]
            assert views[0] == views[1] and views[2] == views[3], "the same ids"
            assert [who.name for who in views[2].left] == [f"{group}2"]
            assert "daemon d2 is gone" in views[2].detail
            await here.multicast(b"still")
            assert await heard(there, 1) == [b"still"]
        for name, group in groups.items():
            if not name.endswith("2"):
                await group.leave()


class Tally:
    """State, so that what was missed is handed over."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.lives: list[unisono.Rejoined] = []
        self.views: list[unisono.View] = []

    def snapshot(self) -> bytes:
        return b"\n".join(self.lines)

    def restore(self, state: bytes) -> None:
        self.lines = state.split(b"\n") if state else []

    async def follow(self, group: Any) -> None:
        async for item in group:
            if isinstance(item, unisono.Message):
                self.lines.append(item.payload)
            elif isinstance(item, unisono.Rejoined):
                self.lives.append(item)
                self.lines = []
            elif isinstance(item, unisono.View):
                self.views.append(item)


async def test_clients_rejoin_with_their_daemon_as_new_incarnations(place: Path) -> None:
    port = free_port()
    start = lambda: daemon_process(place, 0, port)  # noqa: E731
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        process = await loop.run_in_executor(None, stack.enter_context, start())
        a = await joining(place, "a", rejoin=True)
        first = a.me
        tally = Tally()
        following = asyncio.create_task(tally.follow(a))
        await a.multicast(b"one")
        await eventually(lambda: tally.lines == [b"one"])
        process.kill()
        session = a._incarnations.session
        assert session is not None
        await eventually(lambda: session.finished)
        saying = asyncio.create_task(a.multicast(b"two"))
        await eventually(lambda: a.counters()["multicast.waiting"] == 1)
        again = await loop.run_in_executor(None, stack.enter_context, start())
        await eventually(lambda: tally.lines == [b"two"])
        assert await saying == 1, "the first of its new life"
        assert len(tally.lives) == 1, "however often it tried"
        assert "is gone" in tally.lives[0].reason
        assert a.me == tally.lives[0].me and a.me.incarnation > first.incarnation
        assert a.me.name == "a" and a.members == (a.me,)
        await a.multicast(b"three")
        await eventually(lambda: tally.lines[-1:] == [b"three"])
        await a.leave()
        await following
        assert again.is_alive


async def test_a_daemon_that_was_suspended_too_long_rejoins_and_so_do_its_clients(
    place: Path,
) -> None:
    with contextlib.ExitStack() as stack:
        loop = asyncio.get_running_loop()
        processes = await loop.run_in_executor(None, three, place, stack)
        tallies = [Tally() for _ in range(THREE)]
        groups = []
        tasks = []
        for at, tally in enumerate(tallies):
            state: Any = {"snapshot": tally.snapshot, "restore": tally.restore}
            group = await joining(place, f"m{at}", at=at, rejoin=True, **state)
            groups.append(group)
            tasks.append(asyncio.create_task(tally.follow(group)))
        await eventually(lambda: all(len(group.members) == 3 for group in groups))
        processes[2].signal(signal.SIGSTOP)
        try:
            await eventually(lambda: len(groups[0].members) == len(groups[1].members) == 2)
            await groups[0].multicast(b"while it slept")
            await eventually(lambda: tallies[1].lines == [b"while it slept"])
        finally:
            processes[2].signal(signal.SIGCONT)
        await eventually(lambda: len(groups[2].members) == 3 and bool(tallies[2].lives))
        await groups[2].multicast(b"back")
        wanted = [b"while it slept", b"back"]
        await eventually(lambda: all(tally.lines == wanted for tally in tallies))
        assert not tallies[0].lives and not tallies[1].lives
        assert "join again" in tallies[2].lives[0].reason
        for group in groups:
            await group.leave()
        await asyncio.gather(*tasks)


async def test_a_client_killed_while_it_is_awaited_blocks_no_other(place: Path) -> None:
    """The giver of a state is killed; so is one that waits for it."""

    async def awaited(joining_: Any) -> Any:
        return await joining_

    async with daemons(place, 2):
        late = Tally()
        state: Any = {"snapshot": late.snapshot, "restore": late.restore}
        mute = await joining(place, "mute", **state)
        waiting = asyncio.create_task(awaited(joining(place, "late", at=1, **state)))
        await eventually(lambda: len(mute.members) == 2)
        assert not waiting.done()
        mute._incarnations.session.close()  # as if killed
        group = await waiting
        assert [who.name for who in group.members] == ["late"]
        await group.leave()


async def test_the_operators_request_is_passed_to_the_ring(place: Path) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        made = daemon_process(place, 0, free_port())
        process = await loop.run_in_executor(None, stack.enter_context, made)
        async with joining(place, "a") as a:
            process.signal(signal.SIGUSR1)
            await a.multicast(b"still here")
            assert await heard(a, 1) == [b"still here"]
        assert process.is_alive


async def test_the_command_ends_cleanly_and_notifies_its_clients(place: Path) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        made = daemon_process(place, 0, free_port())
        process = await loop.run_in_executor(None, stack.enter_context, made)
        a = await joining(place, "a")
        process.signal(signal.SIGTERM)
        assert await stopped(a) == "the daemon was stopped"
        assert await loop.run_in_executor(None, process.wait, LIMIT_S) == 0
        assert process.expect("ended")["counters"]["cut"] == 1
        assert not (place / "d0").exists()
