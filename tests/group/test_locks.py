"""A group's locks, over sessions whose requests are ordered in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest

import unisono
from tests.group.test_sessions import HERE, Echo, Echoes
from tests.waiting import LIMIT_S, run_story
from unisono.config import Config
from unisono.core import Answer, Request
from unisono.group import Group, Joining
from unisono.group.session import Session, SessionEvents
from unisono.model import Change, Member, View
from unisono.parts.locks import LockAnswers, LockEvent, LockTable
from unisono.requests import AcquireLock, LimitScope, ReleaseLock, VoteSize


class Order:
    """One order of the requests of all members. With `hold`, they wait for `let`."""

    def __init__(self) -> None:
        self.table: LockTable[Member] = LockTable()
        self.members: dict[Member, Ordered] = {}
        self.requests: list[tuple[Member, Request]] = []
        self.hold = False

    def request(self, member: Member, request: Request) -> None:
        self.requests.append((member, request))
        if not self.hold:
            self.let()

    def let(self) -> None:
        while self.requests:
            member, request = self.requests.pop(0)
            command = request.what
            if member not in self.members:
                continue
            if isinstance(command, AcquireLock | ReleaseLock):
                self.table, events = self.table.applied(member, command)
                self.show(events)
                answers = self.members[member].answers
                self.tell(member, answers.to_own(command, request.key, events, self.table))
                self.pass_on(events)
            else:
                self.tell(member, [Answer(command.NAME, key=request.key)])

    def gone(self, member: Member) -> None:
        self.members.pop(member, None)
        self.table, events = self.table.without({member})
        self.show(events)
        self.pass_on(events)

    def show(self, events: tuple[LockEvent[Member], ...]) -> None:
        changes = tuple(Change(what, (member,), number=n) for what, n, member in events)
        for session in list(self.members.values()) if changes else ():
            session.events.install(View(tuple(self.members), "v", changes=changes))

    def pass_on(self, events: tuple[LockEvent[Member], ...]) -> None:
        for member, session in self.members.items():
            self.tell(member, session.answers.to_waiting(events))

    def tell(self, member: Member, answers: list[Answer]) -> None:
        for answer in answers:
            self.members[member].events.put(answer)


class Ordered(Echo):
    def __init__(self, me: Member, events: SessionEvents, order: Order) -> None:
        super().__init__(me, events)
        self.events, self.order = events, order
        self.answers: LockAnswers[Member] = LockAnswers(me)

    def start(self) -> None:
        self.order.members[self.me] = self
        self.events.opened(self.me)
        self.events.install(View((self.me,), f"v{self.me.incarnation}"))

    def request(self, request: Request) -> None:
        self.order.request(self.me, request)

    def end(self, reason: str | None) -> None:
        self.order.gone(self.me)
        super().end(reason)


class Sessions(Echoes):
    requests = (AcquireLock, ReleaseLock, VoteSize, LimitScope)

    def __init__(self, name: str, order: Order) -> None:
        super().__init__()
        self.name, self.order = name, order

    async def open(self, events: SessionEvents) -> Session:
        me = Member(self.name, HERE, 1 + len(self.opened))
        self.opened.append(Ordered(me, events, self.order))
        return self.opened[-1]


async def read(group: Group) -> None:
    try:
        async for _ in group:
            pass
    except unisono.Stopped:
        pass


Story = Callable[[Order, Group, Group], Coroutine[None, None, None]]


def play(story: Story, read_too: bool = True, rejoin: bool = False) -> None:
    """Two members, a and b, whose streams are read beside the story."""

    async def run() -> None:
        order = Order()
        config = Config(group="g", rejoin=rejoin)
        a, b = (Group(config, Sessions(name, order)) for name in "ab")
        async with Joining(a), Joining(b):
            readers = [asyncio.create_task(read(each)) for each in (a, b) if read_too]
            await asyncio.sleep(0)
            await story(order, a, b)
            for reader in readers:
                reader.cancel()

    run_story(run())


def session_of(group: Group) -> Ordered:
    session = group._incarnations.session
    assert isinstance(session, Ordered)
    return session


def test_a_lock_is_held_by_one_member_and_passed_on() -> None:
    async def story(order: Order, a: Group, b: Group) -> None:
        async with a.lock(7) as lock:
            assert lock.held and lock.number == 7 and order.table.holder(7) == a.me
            assert lock.view is not None and lock.view.changes[0].number == 7
            assert not await b.lock(7).try_acquire()
            waiting = asyncio.create_task(b.lock(7).acquire())
            await asyncio.sleep(0.01)
            assert not waiting.done()
        await waiting
        assert order.table.holder(7) == b.me and not lock.held
        b.lock(7).release()
        assert order.table.holder(7) is None

    play(story)


def test_one_task_of_a_process_holds_it() -> None:
    async def story(order: Order, a: Group, b: Group) -> None:
        inside = 0

        async def use() -> None:
            nonlocal inside
            async with a.lock(1):
                inside += 1
                assert inside == 1
                await asyncio.sleep(0)
                inside -= 1

        await asyncio.gather(use(), use(), use())
        assert await a.lock(1).try_acquire()
        assert not await a.lock(1).try_acquire()

    play(story)


def test_a_cancelled_acquire_gives_the_lock_back_wherever_it_is() -> None:
    async def story(order: Order, a: Group, b: Group) -> None:
        # Before the request is ordered, and granted when it is no longer awaited.
        order.hold = True
        with pytest.raises(TimeoutError):
            await a.lock(3).acquire(timeout=0.01)
        order.let()
        assert order.table.holder(3) is None
        # While it waits for the holder.
        order.hold = False
        async with a.lock(3):
            with pytest.raises(TimeoutError):
                await b.lock(3).acquire(timeout=0.01)
        assert not order.table.queues
        # Granted, but cancelled before the caller could see it.
        order.hold = True
        caller = asyncio.create_task(b.lock(3).acquire())
        await asyncio.sleep(0.01)
        order.hold = False
        order.let()
        assert order.table.holder(3) == b.me
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert order.table.holder(3) is None and not b.lock(3).held
        await asyncio.wait_for(b.lock(3).acquire(), LIMIT_S)
        assert order.table.holder(3) == b.me

    play(story)


def test_a_new_request_is_not_satisfied_by_the_grant_of_a_cancelled_one() -> None:
    async def story(order: Order, a: Group, b: Group) -> None:
        order.hold = True
        with pytest.raises(TimeoutError):
            await a.lock(3).acquire(timeout=0.01)
        again = asyncio.create_task(a.lock(3).acquire())
        await asyncio.sleep(0.01)
        (_, first), (_, release), (_, second) = order.requests
        assert [type(each.what) for each in (first, release, second)] == [
            AcquireLock,
            ReleaseLock,
            AcquireLock,
        ]
        order.requests = order.requests[:1]
        order.let()
        await asyncio.sleep(0.01)
        assert not again.done() and not a.lock(3).held
        order.requests = [(a.me, release), (a.me, second)]
        order.let()
        await again
        assert a.lock(3).held and order.table.holder(3) == a.me

    play(story)


def test_a_member_that_stops_loses_its_locks_and_its_block_is_cancelled() -> None:
    async def story(order: Order, a: Group, b: Group) -> None:
        reached = []

        async def work() -> None:
            async with a.lock(5):
                reached.append("in")
                try:
                    await asyncio.sleep(60)
                finally:
                    reached.append("out")

        working = asyncio.create_task(work())
        await asyncio.sleep(0.01)
        waiting = asyncio.create_task(b.lock(5).acquire())
        await asyncio.sleep(0.01)
        session_of(a).end("excluded")
        with pytest.raises(unisono.LockLost, match="lock 5 is lost: excluded") as lost:
            await working
        assert reached == ["in", "out"] and lost.value.number == 5
        await waiting
        assert b.lock(5).held and not a.lock(5).held
        with pytest.raises(unisono.Stopped, match="excluded"):
            await a.lock(5).acquire()

    play(story)


def test_an_error_or_a_cancellation_of_the_block_outlives_a_loss() -> None:
    async def story(order: Order, a: Group, b: Group) -> None:
        async def work(error: type[BaseException]) -> None:
            async with a.lock(5):
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    raise error from None

        for error in (KeyError, asyncio.CancelledError):
            working = asyncio.create_task(work(error))
            await asyncio.sleep(0.01)
            if error is asyncio.CancelledError:
                working.cancel()  # by another, and lost in the same turn
            a.lock(5).lose("planted")
            with pytest.raises(error):
                await working
            order.gone(a.me)
            order.members[a.me] = session_of(a)

    play(story)


def test_an_explicit_holder_sees_the_loss_and_releases_as_ever() -> None:
    async def story(order: Order, a: Group, b: Group) -> None:
        lock = a.lock(5)
        await lock.acquire()
        session_of(a).end("excluded")
        await asyncio.wait_for(lock.lost.wait(), LIMIT_S)
        assert not lock.held
        lock.release()
        assert not lock.lost.is_set()
        with pytest.raises(unisono.NotHeld, match="lock 5 is not held here"):
            lock.release()

    play(story)


def test_a_member_that_rejoins_does_not_hold_its_former_locks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("unisono.group.rejoining.PAUSE_S", 0.001)

    async def story(order: Order, a: Group, b: Group) -> None:
        await a.lock(5).acquire()
        order.hold = True
        asked = asyncio.create_task(a.vote(1))
        await asyncio.sleep(0)
        session_of(a).end("gone for a while")
        with pytest.raises(unisono.Stopped, match="not in the group now"):
            await a.vote(1)
        with pytest.raises(unisono.Stopped, match="gone for a while"):
            await asked
        order.hold = False
        while not a._incarnations.inside:
            await asyncio.sleep(0.01)
        assert a.lock(5).lost.is_set()
        a.lock(5).release()
        await b.lock(5).acquire()
        assert not await a.lock(5).try_acquire()

    play(story, rejoin=True)


def test_a_lock_is_granted_once_the_reader_has_processed_what_precedes_it() -> None:
    async def story(order: Order, a: Group, b: Group) -> None:
        seen: list[object] = []
        acquiring = asyncio.create_task(a.lock(2).acquire())
        await asyncio.sleep(0.01)
        assert order.table.holder(2) == a.me and not acquiring.done()
        async for item in a:
            await asyncio.sleep(0.01)
            assert not a.lock(2).held
            seen.append(item)
            if isinstance(item, View) and item.changes:
                break
        assert not acquiring.done()
        more = asyncio.create_task(anext(a))  # type: ignore[arg-type]
        await acquiring
        more.cancel()

    play(story, read_too=False)


def test_the_reader_itself_must_acquire_elsewhere() -> None:
    async def story(order: Order, a: Group, b: Group) -> None:
        async for _ in a:
            with pytest.raises(unisono.Misuse, match="in another task than the one that reads"):
                await a.lock(2).acquire()
            break

    play(story, read_too=False)


def test_a_former_reader_may_acquire() -> None:
    async def story(order: Order, a: Group, b: Group) -> None:
        await anext(a)  # type: ignore[arg-type]
        reading = asyncio.create_task(read(a))
        async with a.lock(2):
            pass
        reading.cancel()

    play(story, read_too=False)


def test_a_release_follows_what_was_multicast_before() -> None:
    async def story(order: Order, a: Group, b: Group) -> None:
        async with a.lock(2):
            for _ in range(3):
                await a.multicast(b"x")
        assert sum(len(each) for each, _, _ in session_of(a).submitted) == 3
        assert order.table.holder(2) is None

    play(story)


def test_votes_and_scope_are_answered() -> None:
    async def story(order: Order, a: Group, b: Group) -> None:
        await a.vote(1)
        await a.vote(unisono.SizeVote.PESSIMISTIC)
        await a.vote("none_may_fail")
        await a.scope(4)
        order.hold = True
        refused = asyncio.create_task(a.vote(1))
        await asyncio.sleep(0)
        (_, request) = order.requests.pop()
        answer = Answer("vote", unisono.Cause.REFUSED, "the group has no member", request.key)
        order.tell(a.me, [answer])
        with pytest.raises(unisono.Denied, match="vote minimum=1: the group has no member"):
            await refused

    play(story)


def test_bad_input_is_refused_with_the_remedy() -> None:
    async def story(order: Order, a: Group, b: Group) -> None:
        with pytest.raises(unisono.Misuse, match="lock 256: a group's locks are numbered 0 to 255"):
            a.lock(256)
        with pytest.raises(unisono.Misuse, match="numbered 0 to 255"):
            a.lock(-1)
        with pytest.raises(unisono.NotHeld, match="acquire it first"):
            a.lock(9).release()
        with pytest.raises(unisono.Misuse, match="above the group's size of 1"):
            await a.vote(2)
        with pytest.raises(unisono.Misuse, match=r"minimum=-2: write SizeVote\.PESSIMISTIC"):
            await a.vote(unisono.ALL)  # of resilience, and by chance the same number
        with pytest.raises(unisono.Misuse, match=r"resilient\(2\): the group has 1 members; wait"):
            await a.multicast(b"", unisono.Resilient(2))
        await a.multicast(b"", unisono.Resilient(1))
        with pytest.raises(unisono.Misuse, match="no vote 'most'"):
            await a.vote("most")
        with pytest.raises(unisono.Misuse, match="is no vote"):
            await a.vote(0)
        with pytest.raises(unisono.Misuse, match="to 255 routers"):
            await a.scope(256)
        lone = Group(Config(group="g"), Echoes())
        async with Joining(lone):
            with pytest.raises(unisono.Misuse, match="ring takes no request 'lock'"):
                lone.lock(1)
            with pytest.raises(unisono.Misuse, match="ring takes no request 'vote'"):
                await lone.vote(1)

    play(story)
