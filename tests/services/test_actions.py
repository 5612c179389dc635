"""Actions on real groups: asking, voting, leaving, coming back, and everything that goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

import unisono
from tests.group.sessions import session_of
from unisono.services.actions import (
    Aborted,
    Action,
    ActionLimits,
    Actions,
    Committed,
    Last,
    Participant,
    Uncertain,
)

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("actions")]

PROTOCOL = "ring"


class Noting(Participant):
    """Agrees by default, and records every outcome."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.undone: dict[str, str] = {}
        self.answer: Callable[[Action], str | Awaitable[str]] = lambda action: ""
        self.last: Last | None = None

    def prepare(self, action: Action) -> str | Awaitable[str]:
        return self.answer(action)

    def commit(self, action: Action) -> None:
        self.done.append(action.key)

    def abort(self, action: Action, reason: str) -> None:
        self.undone[action.key] = reason

    def snapshot(self) -> bytes:
        return " ".join(self.done).encode()

    def restore(self, state: bytes, last: Last | None) -> None:
        self.done, self.last = state.decode().split(), last


class Some:
    """Members of one group, all in this process."""

    def __init__(self, port: int, stack: AsyncExitStack) -> None:
        self._port, self._stack = port, stack
        self.actions: dict[str, Actions] = {}
        self.noting: dict[str, Noting] = {}

    def joining(
        self, name: str, actions: Actions, **options: Any
    ) -> AbstractAsyncContextManager[Actions]:
        return actions.join("acts", name=name, protocol=PROTOCOL, port=self._port, **options)

    async def add(self, name: str, **more: Any) -> Actions:
        self.noting[name] = Noting()
        actions = Actions(self.noting[name], **more)
        self.actions[name] = await self._stack.enter_async_context(self.joining(name, actions))
        return actions

    async def together(self) -> None:
        await until(
            lambda: all(
                len(each.group.members) == len(self.actions) for each in self.actions.values()
            )
        )

    async def all_know(self, key: str) -> None:
        await until(lambda: all(each.outcome(key) for each in self.actions.values()))


async def until(done: Callable[[], object]) -> None:
    while not done():
        await asyncio.sleep(0.005)


@asynccontextmanager
async def members(port: int, names: str, **more: Any) -> AsyncIterator[Some]:
    async with AsyncExitStack() as stack:
        some = Some(port, stack)
        for name in names:
            await some.add(name, **more)
        await some.together()
        yield some


def both(*names: str) -> dict[str, bytes]:
    return dict.fromkeys(names, b"do")


@pytest.mark.rule("RNG-23")
async def test_all_members_commit_or_none_does(port: int) -> None:
    async with members(port, "abc") as some:
        a, b = some.actions["a"], some.actions["b"]
        assert await a.run(both("b", "c"), "one") == Committed()
        some.noting["c"].answer = lambda action: "not today"
        assert await b.run(both("b", "c"), "two") == Aborted("c: not today")
        assert await b.run(both("a", "z"), "three") == Aborted("z is not in the group")
        for key in ("one", "two", "three"):
            await some.all_know(key)
        for each in some.noting.values():
            assert each.done == ["one"] and list(each.undone) == ["two", "three"]
        assert a.longest_s > 0 and not a.open() and a.stopped is None


@pytest.mark.rule("RNG-23")
async def test_many_at_once_run_one_after_another_and_none_is_left(port: int) -> None:
    async with members(port, "abc") as some:
        pairs = ("ab", "bc", "ca", "ba", "cb", "ac") * 4
        found = await asyncio.gather(
            *(
                some.actions["abc"[number % 3]].run(both(*pair), f"k{number}")
                for number, pair in enumerate(pairs)
            )
        )
        assert found == [Committed()] * len(pairs)
        for number in range(len(pairs)):
            await some.all_know(f"k{number}")
        orders = [each.done for each in some.noting.values()]
        assert orders[0] == orders[1] == orders[2] and len(orders[0]) == len(pairs)


async def test_a_participant_may_take_its_time_but_not_for_ever(port: int) -> None:
    async def slow(action: Action) -> str:
        await asyncio.sleep(0.05 if action.key == "one" else 60)
        return ""

    async def bad(action: Action) -> str:
        raise OSError("no disk")

    def worse(action: Action) -> str:
        raise OSError("no disk")

    async with members(port, "ab", prepare_s=2) as some:
        a, noting = some.actions["a"], some.noting["b"]
        noting.answer = slow
        assert await a.run(both("a", "b"), "one") == Committed()
        assert await a.run(both("a", "b"), "two") == Aborted("b: not prepared within 2 s")
        noting.answer = bad
        refused = Aborted("b: could not prepare: OSError('no disk')")
        assert await a.run(both("a", "b")) == refused
        noting.answer = worse
        assert await a.run(both("a", "b")) == refused
        noting.answer = lambda action: None  # type: ignore[assignment, return-value]
        assert await a.run(both("b")) == Aborted("b: prepare() returned NoneType, not a text")


@pytest.mark.rule("RNG-22", "RNG-23")
async def test_a_member_that_leaves_before_its_vote_blocks_no_action_and_learns_on_return(
    port: int,
) -> None:
    never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with members(port, "ab") as some:
        a, c = some.actions["a"], Noting()
        async with some.joining("c", Actions(c)):
            await until(lambda: len(a.group.members) == 3)
            some.noting["b"].answer = c.answer = lambda action: never
            one = asyncio.create_task(a.run(both("a", "b"), "one"))
            two = asyncio.create_task(a.run(both("a", "c"), "two"))
            await until(lambda: len(a.open()) == 2)
        assert await two == Aborted("c failed before its vote")
        never.set_result("")
        assert await one == Committed()
        again = Noting()
        async with some.joining("c", Actions(again)) as c_again:
            await until(lambda: c_again.outcome("one"))
            assert c_again.outcome("two") == Aborted("c failed before its vote")
            assert again.done == ["one"] and again.last is None, "it had not agreed"


async def test_an_action_outlives_its_caller_and_a_key_is_done_once(port: int) -> None:
    async with members(port, "ab") as some:
        a, b = some.actions["a"], some.actions["b"]
        caller = asyncio.create_task(a.run(both("a", "b"), "one"))
        await asyncio.sleep(0)
        with pytest.raises(unisono.Misuse, match="awaited here already"):
            await a.run(both("a", "b"), "one")
        caller.cancel()
        assert await b.run(both("a", "b"), "one") == Committed()
        assert await b.run(both("a", "b"), "one") == Committed()
        assert some.noting["b"].done == ["one"]


async def test_other_messages_of_the_group_are_ignored(port: int) -> None:
    async with members(port, "ab") as some:
        a = some.actions["a"]
        await a.group.multicast(b"hello")
        await a.group.multicast(b"unisono.action/1 hello")
        assert await a.run(both("a", "b")) == Committed()
        assert a.counters() == {"bad": 1, "committed": 1, "foreign": 1}


async def test_a_stopped_member_returns_and_its_callers_get_the_outcome(port: int) -> None:
    async with members(port, "abc") as some:
        a, b = some.actions["a"], some.actions["b"]
        gate = asyncio.Event()

        async def late(action: Action) -> str:
            await gate.wait()
            return ""

        some.noting["a"].answer = late
        open_ = asyncio.create_task(b.run(both("a"), "open"))
        await until(lambda: a.open() and b.open())
        session = session_of(b.group)
        lost = asyncio.create_task(b.run(both("b"), "lost"))
        await asyncio.sleep(0)
        session.driver.fail("for the test")
        gate.set()
        assert await open_ == Committed()
        # The others may have received it before b stopped, or only when it was back.
        outcome = await lost
        assert outcome in (Committed(), Aborted("b failed before its vote"))
        await some.all_know("lost")
        done = ["lost", "open"] if outcome == Committed() else ["open"]
        for noting in some.noting.values():
            assert sorted(noting.done) == done


async def test_an_outcome_that_is_forgotten_is_an_error(
    monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    monkeypatch.setattr("unisono.group.rejoining.PAUSE_S", 2.0)

    async with members(port, "abc", limits=ActionLimits(outcomes_count_max=2)) as some:
        a, b = some.actions["a"], some.actions["b"]
        session = session_of(b.group)
        lost = asyncio.create_task(b.run(both("b"), "lost"))
        await asyncio.sleep(0)
        session.driver.fail("for the test")
        for _ in range(4):
            await a.run(both("a"))
        with pytest.raises(Uncertain, match="does not know the action lost"):
            await lost


async def test_after_the_end_there_is_an_error_with_the_reason(port: int) -> None:
    async with members(port, "ab") as some:
        a = some.actions["a"]
        some.noting["a"].answer = lambda action: asyncio.get_running_loop().create_future()
        waiting = asyncio.create_task(a.run(both("a")))
        await until(a.open)
    with pytest.raises(unisono.Stopped, match="left the group"):
        await waiting
    with pytest.raises(unisono.Stopped, match="left the group"):
        await a.run(both("a"))
    with pytest.raises(unisono.Misuse, match="create another Actions"):
        async with some.joining("a", a):
            pass


async def test_a_participant_whose_commit_fails_leaves(port: int) -> None:
    async with members(port, "ab") as some:
        a, b = some.actions["a"], some.actions["b"]

        def broken(action: Action) -> None:
            raise OSError("disk full")

        some.noting["b"].commit = broken  # type: ignore[method-assign]
        assert await a.run(both("a", "b")) == Committed()
        await until(lambda: len(a.group.members) == 1)
        assert b.stopped == "the participant failed: OSError('disk full')"


async def test_an_agreed_order_will_do(port: int) -> None:
    actions = Actions(Noting())
    async with actions.join("acts", name="a", protocol="mtp", master=1, port=port):
        assert await actions.run(both("a")) == Committed()


async def test_without_one_order_there_are_no_actions(port: int) -> None:
    actions = Actions(Noting())
    with pytest.raises(unisono.Misuse, match="not joined yet"):
        await actions.run(both("a"))
    with pytest.raises(unisono.Misuse, match="actions need a total order"):
        async with actions.join("acts", name="a", protocol="rmcast", port=port):
            pass
