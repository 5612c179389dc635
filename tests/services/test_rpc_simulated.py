"""Multi-RPC under virtual time: answers, failures, bounds, and everything that goes wrong."""

from __future__ import annotations

import asyncio
import gc
from typing import cast

import pytest

import unisono
from tests.services.rpc_world import RpcWorld, run
from unisono.errors import Misuse, Stopped
from unisono.group import Full, Group
from unisono.model import Address, Member, Service
from unisono.services import rpc
from unisono.services.calls.messages import (
    MARK,
    CallHead,
    CallMessage,
    call_payload,
    escaped,
    unescaped,
)

pytestmark = pytest.mark.rule("RMP-20")


@pytest.fixture
def world() -> RpcWorld:
    return RpcWorld(seed=1, loss=0.0)


def echo(call: rpc.Call) -> bytes:
    return call.payload


async def never(call: rpc.Call) -> bytes:
    await asyncio.Event().wait()
    return b""


def raises(call: rpc.Call) -> bytes:
    raise KeyError("no such price")


def reasons(result: rpc.CallResult) -> dict[str, rpc.Reason]:
    return {member.name: failure.reason for member, failure in result.failures.items()}


async def failed(group: rpc.RpcCaller, *arguments: object) -> rpc.CallResult:
    with pytest.raises(rpc.TooFewAnswers) as raised:
        await group.call(*arguments)  # type: ignore[arg-type]
    return raised.value.result


# -- answers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [0.0, 0.3])
@pytest.mark.parametrize("wanted", list(rpc.Answers))
def test_as_many_answer_as_the_caller_asks_for(wanted: rpc.Answers, loss: float) -> None:
    async def story(world: RpcWorld) -> None:
        a = world.add("a", echo)
        for name in "bcde":
            world.add(name, lambda call, name=name: call.payload + name.encode())  # type: ignore[misc]
        result = await a.call(b"x", wanted, timeout=30.0)
        assert len(result.answers) >= {"one": 1, "majority": 3, "all": 5}[wanted.value]
        assert [member.name for member in result.members] == list("abcde")
        assert result.enough and not result.failures
        expected = {name: b"x" + name.encode() for name in "bcde"} | {"a": b"x"}
        assert expected.items() >= result.by_name().items()
        assert set(result.pending) == set(result.members) - set(result.answers)

    run(story, loss=loss)


def test_calls_are_executed_in_one_order_at_all_members() -> None:
    async def story(world: RpcWorld) -> None:
        executed: dict[str, list[bytes]] = {name: [] for name in "abc"}
        for name in "abc":
            world.add(name, lambda call, name=name: executed[name].append(call.payload) or b"")  # type: ignore[func-returns-value, misc]
        calls = [world.groups[name].call(b"%d" % n) for n in range(20) for name in "abc"]
        await asyncio.gather(*calls)
        assert executed["a"] == executed["b"] == executed["c"]
        assert len(executed["a"]) == 60

    run(story, loss=0.2)


async def test_answers_go_to_the_caller_alone(world: RpcWorld) -> None:
    for name in "abc":
        world.add(name, echo)
    await world.groups["a"].call(b"x")
    for name in "bc":
        assert "in.answers" not in world.groups[name].counters()
    assert len(world.order.log) == 1, "only the call is in the order"


async def test_a_burst_of_calls_shares_datagrams_of_answers(world: RpcWorld) -> None:
    for name in "abc":
        world.add(name, echo)
    await world.groups["a"].call(b"x")
    before = world.network.sent_count
    await asyncio.gather(*(world.groups["a"].call(b"%d" % n) for n in range(64)))
    # 64 answers of 20 bytes fit two datagrams; each member's are acknowledged once.
    assert world.network.sent_count - before <= 8


@pytest.mark.parametrize("size", [0, 1300, 1400, 5000, 400_000])
def test_a_long_answer_is_sent_in_pieces(size: int) -> None:
    async def story(world: RpcWorld) -> None:
        a = world.add("a", echo)
        world.add("b", lambda call: world.dice.randbytes(size))
        result = await a.call(b"x", timeout=100.0)
        assert len(result.by_name()["b"]) == size

    run(story, loss=0.1)


async def test_ordinary_messages_pass_and_calls_do_not(world: RpcWorld) -> None:
    a = world.add("a", echo)
    world.serving["a"].cancel()
    seen: list[bytes] = []

    async def read() -> None:
        async for item in a:
            if isinstance(item, unisono.Message):
                seen.append(item.payload)

    world.serving["a"] = asyncio.create_task(read())
    payloads = [b"", b"plain", MARK, MARK + b"C", MARK + b"E", MARK + b"junk"]
    for payload in payloads:
        await a.multicast(payload)
        await a.call(b"between")
    await a.multicast_many(payloads)
    await asyncio.sleep(1)
    assert seen == payloads * 2


async def test_notices_show_the_applications_messages_alone(world: RpcWorld) -> None:
    a = world.add("a", echo)
    world.serving["a"].cancel()
    await asyncio.sleep(0)
    inner = world.order.groups[a.me]
    call = call_payload(CallHead(1, 1000, 100, False, None, "x"), 1, b"call")
    lost = [b"plain", call, bytes(escaped(MARK))]
    messages = [unisono.Message(a.me, payload, 1) for payload in lost]
    inner.put(unisono.Stable(tuple(messages)))
    inner.put(unisono.Stable((messages[1],)))
    inner.put(unisono.Rejoined("excluded", a.me, lost=tuple(lost)))
    assert isinstance(await anext(a), unisono.View)
    stable, rejoined = await anext(a), await anext(a)
    assert isinstance(stable, unisono.Stable) and isinstance(rejoined, unisono.Rejoined)
    assert [message.payload for message in stable.messages] == [b"plain", MARK]
    assert rejoined.lost == (b"plain", MARK)


# -- failures ---------------------------------------------------------------------------------


async def test_each_member_that_gives_no_answer_has_its_reason(world: RpcWorld) -> None:
    limits = rpc.RpcLimits(answer_bytes_max=100)
    a = world.add("a", echo, limits)
    world.add("b", raises)
    world.add("c")
    world.add("d", never)
    world.add("e", lambda call: bytes(101))
    world.add("f", lambda call: "text")  # type: ignore[arg-type, return-value]
    result = await failed(a, b"x", rpc.ALL, 5.0)
    assert reasons(result) == {
        "b": rpc.Reason.RAISED,
        "c": rpc.Reason.NO_HANDLER,
        "d": rpc.Reason.TIMED_OUT,
        "e": rpc.Reason.TOO_LARGE,
        "f": rpc.Reason.RAISED,
    }
    texts = {member.name: str(failure) for member, failure in result.failures.items()}
    assert "KeyError: 'no such price'" in texts["b"]
    assert "101 bytes, over the caller's 100" in texts["e"]
    assert "returned str" in texts["f"]
    assert result.by_name() == {"a": b"x"}


async def test_failures_do_not_spoil_a_call_that_has_enough_answers(world: RpcWorld) -> None:
    a = world.add("a", raises)
    world.add("b", echo)
    world.add("c", echo)
    assert (await a.call(b"x", rpc.ONE)).first == b"x"
    assert (await a.call(b"x", rpc.MAJORITY)).enough


async def test_a_call_that_all_fail_ends_before_its_timeout(world: RpcWorld) -> None:
    a = world.add("a")
    world.add("b", raises)
    loop = asyncio.get_running_loop()
    before = loop.time()
    result = await failed(a, b"x", rpc.ONE, 1000.0)
    assert loop.time() - before < 1 and not result.answers


@pytest.mark.parametrize("how", ["leave", "crash"])
async def test_a_member_that_departs_before_it_answers_is_reported_at_once(
    how: str, world: RpcWorld
) -> None:
    a = world.add("a", echo)
    world.add("b", never)
    world.add("c", echo)
    b = world.member("b")
    calling = asyncio.create_task(failed(a, b"x", rpc.ALL, 1000.0))
    await asyncio.sleep(1)
    if how == "leave":
        await world.groups["b"].leave()
    else:
        world.crash("b")
    result = await asyncio.wait_for(calling, 1)
    assert result.failures[b].reason is (rpc.Reason.LEFT if how == "leave" else rpc.Reason.FAILED)
    assert set(result.by_name()) == {"a", "c"}


async def test_an_answer_outweighs_the_view_without_its_member(world: RpcWorld) -> None:
    async def slowly(call: rpc.Call) -> bytes:
        await asyncio.sleep(2)
        return b"after all"

    a = world.add("a", echo)
    b = world.add("b", slowly).me
    c = world.add("c", never).me
    calling = asyncio.create_task(failed(a, b"x", rpc.ALL, 5.0))
    await asyncio.sleep(1)
    # The others install a view without b, which has the call and does not know of that view.
    group = world.order.groups.pop(b)
    world.order._install((a.me, c), unisono.Change(unisono.ChangeKind.FAILED, (b,)))
    world.order.groups[b] = group
    result = await calling
    assert result.answers[b] == b"after all" and c in result.failures


async def test_a_member_that_joins_between_call_and_answer_is_not_asked(world: RpcWorld) -> None:
    async def slowly(call: rpc.Call) -> bytes:
        await asyncio.sleep(2)
        return b"late"

    a = world.add("a", echo)
    world.add("b", slowly)
    calling = asyncio.create_task(a.call(b"x"))
    await asyncio.sleep(1)
    world.add("c", echo)
    result = await calling
    assert set(result.by_name()) == {"a", "b"} and not result.failures


async def test_a_member_that_departs_before_the_call_has_its_place_is_absent(
    world: RpcWorld,
) -> None:
    a = world.add("a", echo)
    b = world.add("b", echo).me
    calling = asyncio.create_task(a.call(b"x"))
    await asyncio.sleep(0)  # The call is made, and not ordered yet.
    world.crash("b")
    result = await calling
    assert result.enough and [member.name for member in result.members] == ["a"]
    assert result.failures[b].reason is rpc.Reason.ABSENT


async def test_a_call_that_is_not_ordered_times_out_with_the_reason(world: RpcWorld) -> None:
    a = world.add("a", echo)
    world.order.stalled = True
    with pytest.raises(rpc.TooFewAnswers, match="not delivered here") as raised:
        await a.call(b"x", timeout=1.0)
    assert reasons(raised.value.result) == {"a": rpc.Reason.TIMED_OUT}


async def test_a_socket_that_cannot_be_opened_is_an_error_and_tried_again(world: RpcWorld) -> None:
    a = world.add("a", echo)
    b = world.add("b", echo)
    world.network.opens = False
    with pytest.raises(Misuse, match="too many open files"):
        await a.call(b"x")
    world.network.opens = True
    await a.call(b"x", rpc.ONE)
    assert (await b.call(b"y")).enough


async def test_answers_of_a_member_that_is_cut_off_time_out(world: RpcWorld) -> None:
    a = world.add("a", echo)
    b = world.add("b", echo)
    world.network.cut.add(b.me.address.host)
    result = await failed(a, b"x", rpc.ALL, 3.0)
    assert reasons(result) == {"b": rpc.Reason.TIMED_OUT}
    await asyncio.sleep(10)
    assert b.counters()["drop.reply_expired"] == 1, "it is not sent for ever"


async def test_a_member_that_leaves_gives_its_last_answer_first(world: RpcWorld) -> None:
    a = world.add("a", echo)
    b = world.add("b", echo)
    world.network.cut.add(b.me.address.host)
    calling = asyncio.create_task(a.call(b"x", timeout=100.0))
    await asyncio.sleep(0.2)
    leaving = asyncio.create_task(b.leave())
    await asyncio.sleep(0.2)
    world.network.cut.clear()
    assert set((await calling).by_name()) == {"a", "b"}
    await leaving


# -- the caller -------------------------------------------------------------------------------


async def test_a_caller_that_is_excluded_gets_what_came_before(world: RpcWorld) -> None:
    a = world.add("a", echo)
    world.add("b", never)
    calling = asyncio.create_task(a.call(b"x", timeout=1000.0))
    await asyncio.sleep(1)
    world.order.remove(a.me, unisono.ChangeKind.FAILED)
    with pytest.raises(rpc.CallInterrupted, match="excluded") as raised:
        await calling
    assert raised.value.result.by_name() == {"a": b"x"}
    with pytest.raises(Stopped):
        await a.call(b"y")


async def test_a_caller_that_is_excluded_before_its_call_is_sent_leaves_no_error_behind(
    world: RpcWorld,
) -> None:
    reported: list[dict[str, object]] = []

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    a = world.add("a", echo)
    await a.call(b"first")
    inner = world.order.groups[a.me]

    async def never_accepted(*_: object) -> int:
        await asyncio.sleep(1)
        raise Stopped("excluded")

    inner.multicast = never_accepted  # type: ignore[method-assign, assignment]
    calling = asyncio.create_task(a.call(b"x"))
    await asyncio.sleep(0.5)
    world.order.remove(a.me, unisono.ChangeKind.FAILED)
    with pytest.raises(Stopped):
        await calling
    del calling
    gc.collect()
    assert not reported


async def test_a_caller_that_rejoins_calls_as_its_next_incarnation(world: RpcWorld) -> None:
    a = world.add("a", echo)
    world.add("b", never)
    former = a.me
    calling = asyncio.create_task(a.call(b"x", timeout=1000.0))
    await asyncio.sleep(1)
    world.order.exclude_and_readmit(former)
    with pytest.raises(rpc.CallInterrupted):
        await calling
    result = await a.call(b"y", rpc.ONE)
    assert former not in result.members and a.me in result.answers


async def test_a_member_whose_state_has_the_call_is_absent_before_the_timeout(
    world: RpcWorld,
) -> None:
    a = world.add("a", echo)
    b = world.add("b", echo)
    inner = world.order.groups[b.me]
    # The view has b, but b gets its state, and the first view, only after the call.
    inner.put = lambda item: None  # type: ignore[method-assign]
    await asyncio.sleep(0.1)
    calling = asyncio.create_task(failed(a, b"x", rpc.ALL, 1000.0))
    await asyncio.sleep(0.5)
    del inner.put
    inner.put(world.order.view)
    result = await asyncio.wait_for(calling, 5)
    assert reasons(result) == {"b": rpc.Reason.ABSENT}
    assert (await a.call(b"y")).enough


async def test_a_slow_handler_is_probed_ever_more_rarely_and_answers(world: RpcWorld) -> None:
    async def slowly(call: rpc.Call) -> bytes:
        await asyncio.sleep(100)
        return b"at last"

    a = world.add("a", echo)
    world.add("b", slowly)
    results = await asyncio.gather(*(a.call(b"x", timeout=200.0) for _ in range(5)))
    assert all(result.by_name()["b"] == b"at last" for result in results)
    assert len(world.order.log) <= 5 + 7, "a probe asks for all calls under way"


async def test_a_cancelled_call_leaves_nothing_behind(world: RpcWorld) -> None:
    async def slowly(call: rpc.Call) -> bytes:
        await asyncio.sleep(2)
        return b"late"

    a = world.add("a", echo)
    b = world.add("b", slowly)
    calling = asyncio.create_task(a.call(b"x"))
    await asyncio.sleep(1)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await asyncio.sleep(5)
    assert not a._table.open and not a._futures
    assert b.counters()["calls.executed"] == 1 and a.counters()["answers.late"] == 1
    assert (await a.call(b"y", rpc.ONE)).first == b"y"


async def test_a_call_by_the_reader_is_refused_and_one_beside_it_is_not(world: RpcWorld) -> None:
    a = world.add("a", echo)
    world.serving["a"].cancel()
    await asyncio.sleep(0)
    assert isinstance(await anext(a), unisono.View)
    with pytest.raises(Misuse, match="wait for itself"):
        await a.call(b"x")
    world.serve("a")
    assert (await a.call(b"x")).enough


def test_a_handler_may_call() -> None:
    async def story(world: RpcWorld) -> None:
        async def twice(call: rpc.Call) -> bytes:
            if call.payload == b"inner":
                return b"1"
            inner = await world.groups["b"].call(b"inner")
            return b"%d" % len(inner.answers)

        a = world.add("a", echo)
        world.add("b", twice)
        assert (await a.call(b"outer")).by_name() == {"a": b"outer", "b": b"2"}

    run(story, loss=0.1)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("text",), "bytes, not str"),
        ((b"", unisono.MAJORITY), "rpc.MAJORITY"),
        ((b"", rpc.ALL, 0), "timeout=0"),
        ((b"", rpc.ALL, 1e9), "at most a day"),
    ],
)
async def test_bad_arguments_are_refused(
    arguments: tuple[object, ...], text: str, world: RpcWorld
) -> None:
    a = world.add("a", echo)
    with pytest.raises(Misuse, match=text):
        await a.call(*arguments)  # type: ignore[arg-type]


async def test_a_group_needs_a_total_order_and_one_handler(world: RpcWorld) -> None:
    a = world.add("a", echo)
    with pytest.raises(Misuse, match="has a handler"):
        a.answer(echo)
    world.order.services = (Service.CAUSAL,)
    with pytest.raises(Misuse, match="total order"):
        rpc.RpcGroup(cast(Group, world.order.add("b")))


# -- bounds -----------------------------------------------------------------------------------


async def test_calls_beyond_the_bound_are_refused(world: RpcWorld) -> None:
    a = world.add("a", never, rpc.RpcLimits(calls_count_max=3))
    calling = [asyncio.create_task(a.call(b"x", timeout=5.0)) for _ in range(3)]
    await asyncio.sleep(1)
    with pytest.raises(Full, match="calls_count_max"):
        await a.call(b"y")
    await asyncio.gather(*calling, return_exceptions=True)
    assert reasons(await failed(a, b"z", rpc.ALL, 1.0)) == {"a": rpc.Reason.TIMED_OUT}


async def test_handlers_beyond_the_bound_are_busy(world: RpcWorld) -> None:
    a = world.add("a", echo)
    world.add("b", never, rpc.RpcLimits(executing_count_max=2))
    calling = [asyncio.create_task(a.call(b"x", timeout=5.0)) for _ in range(2)]
    await asyncio.sleep(1)
    result = await failed(a, b"y", rpc.ALL, 1.0)
    assert reasons(result) == {"b": rpc.Reason.BUSY}
    await asyncio.gather(*calling, return_exceptions=True)
    await asyncio.sleep(1)
    # Handlers that hang are cancelled when they are no longer awaited.
    result = await failed(a, b"z", rpc.ALL, 1.0)
    assert reasons(result) == {"b": rpc.Reason.TIMED_OUT}


async def test_answers_that_a_caller_does_not_acknowledge_are_bounded(world: RpcWorld) -> None:
    a = world.add("a", echo)
    b = world.add("b", lambda call: bytes(20_000), rpc.RpcLimits(reply_bytes_max=50_000))
    world.network.cut.add(a.me.address.host)
    calls = [asyncio.create_task(a.call(b"x", timeout=30.0)) for _ in range(10)]
    await asyncio.sleep(1)
    link = next(iter(b._path._sender._links.values()))  # type: ignore[attr-defined]
    assert link.nbytes <= 2 * 50_000
    world.network.cut.clear()
    found = await asyncio.gather(*calls, return_exceptions=True)
    ends = [
        rpc.Reason.BUSY in reasons(each.result).values()
        if isinstance(each, rpc.TooFewAnswers)
        else None
        for each in found
    ]
    assert ends.count(None) == 2 and ends.count(True) == 8


async def test_pieces_without_capacity_are_sent_again(world: RpcWorld) -> None:
    a = world.add("a", echo, rpc.RpcLimits(partial_bytes_max=45_000))
    for name in "bcd":
        world.add(name, lambda call: bytes(20_000))
    result = await a.call(b"x", timeout=60.0)
    assert sorted(map(len, result.answers.values())) == [1, 20_000, 20_000, 20_000]
    assert a.counters()["answers.refused"] > 0


# -- chaos ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_under_any_faults_a_call_is_executed_once_and_its_result_is_true(seed: int) -> None:
    """Each member counts the calls it has executed, joiners are handed the count, and the answer is
    the count: so an answer shows the call's place in the order."""
    executed: dict[Member, list[bytes]] = {}
    results: list[tuple[bytes, rpc.CallResult, bool]] = []

    async def story(world: RpcWorld) -> None:
        dice = world.dice
        counts: dict[str, int] = {}
        crashed: set[Member] = set()
        left: set[Member] = set()

        def added(name: str) -> None:
            def count(call: rpc.Call) -> bytes:
                executed.setdefault(world.member(name), []).append(call.payload)
                counts[name] += 1
                if dice.random() < 0.05:
                    raise ValueError("unlucky")
                return b"%d" % counts[name]

            counts[name] = len(calls_of(world))  # The state at the place of its first view.
            world.add(name, count)

        async def calls(name: str, n: int) -> None:
            payload = f"{name} {n}".encode()
            await asyncio.sleep(dice.random() * 20)
            group, me = world.groups[name], world.member(name)
            wanted = dice.choice(list(rpc.Answers))
            try:
                results.append((payload, await group.call(payload, wanted, 30.0), me in crashed))
            except rpc.TooFewAnswers as error:
                results.append((payload, error.result, me in crashed))
            except (rpc.CallInterrupted, Stopped) as error:
                assert me in crashed | left, error

        for name in "abcde":
            added(name)
        calling = [asyncio.create_task(calls(n, i)) for n in "abcde" for i in range(12)]
        for step in range(6):
            await asyncio.sleep(dice.random() * 5)
            what, name = dice.choice("jlcc"), dice.choice(sorted(world.groups))
            member = world.member(name)
            if what == "j":
                added(f"j{step}")
            elif member in crashed | left or len(world.order.members) < 3:
                continue
            elif what == "l":
                left.add(member)
                await world.groups[name].leave()
            else:
                crashed.add(member)
                world.crash(name)
        await asyncio.gather(*calling)
        order = calls_of(world)
        places = {payload: at for at, (payload, _) in enumerate(order, 1)}
        views = dict(order)
        for member, payloads in executed.items():
            assert len(set(payloads)) == len(payloads), f"{member} executed a call twice"
            assert payloads == sorted(payloads, key=lambda payload: places[payload])
        for payload, result, dead in results:
            if dead:  # A process that is gone sees nothing, its result included.
                continue
            assert result.members in ((), views[payload].members)
            for member, answer in result.answers.items():
                assert payload in executed[member]
                assert int(answer) == places[payload]
            for member, failure in result.failures.items():
                if failure.reason is rpc.Reason.FAILED:
                    assert member in crashed
                elif failure.reason is rpc.Reason.LEFT:
                    assert member in left
                else:
                    assert failure.reason in (rpc.Reason.RAISED, rpc.Reason.ABSENT), failure
        assert len(results) > 10

    run(story, seed, loss=0.25)


def calls_of(world: RpcWorld) -> list[tuple[bytes, unisono.View]]:
    """The calls in their order, each with its view; without probes."""
    found = ((unescaped(message), view) for message, view in world.order.log)
    return [(bytes(c.payload), view) for c, view in found if isinstance(c, CallMessage)]


def test_the_same_seed_gives_the_same_run() -> None:
    async def story(world: RpcWorld) -> tuple[float, int]:
        for name in "abc":
            world.add(name, echo)
        await asyncio.gather(*(world.groups[n].call(b"x") for n in "abc" for _ in range(20)))
        return asyncio.get_running_loop().time(), world.network.sent_count

    assert run(story, 7, 0.3) == run(story, 7, 0.3)
    assert run(story, 7, 0.3) != run(story, 8, 0.3)


# -- found by attack --------------------------------------------------------------------------


async def test_a_call_made_while_the_socket_opens_does_not_overtake(world: RpcWorld) -> None:
    a = world.add("a", echo)
    world.add("b", echo)
    first = asyncio.create_task(a.call(b"1", timeout=5.0))
    while a._path.reply_to is None:
        await asyncio.sleep(0)
    results = await asyncio.gather(a.call(b"2", timeout=5.0), first)
    assert [result.by_name() for result in results] == [
        {"a": b"2", "b": b"2"},
        {"a": b"1", "b": b"1"},
    ]


async def test_an_answer_is_a_copy_of_what_the_handler_returned(world: RpcWorld) -> None:
    a = world.add("a", echo)
    buffer = bytearray(1)

    def reusing(call: rpc.Call) -> bytearray:
        buffer[:] = call.payload
        return buffer

    world.add("b", reusing)
    calls = [a.call(b"%d" % n, timeout=5.0) for n in range(8)]
    results = await asyncio.gather(*calls)
    assert [result.by_name()["b"] for result in results] == [b"%d" % n for n in range(8)]


async def test_a_handler_whose_own_task_was_cancelled_answers_that_it_raised(
    world: RpcWorld,
) -> None:
    a = world.add("a", echo)

    async def cancelled(call: rpc.Call) -> bytes:
        inner = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        inner.cancel()
        await inner
        return b""

    world.add("b", cancelled)
    result = await failed(a, b"x", rpc.ALL, 30.0)
    assert reasons(result) == {"b": rpc.Reason.RAISED}


async def test_a_leave_that_is_cancelled_closes_the_socket_and_ends_the_calls(
    world: RpcWorld,
) -> None:
    a = world.add("a", never)
    b = world.add("b", echo)
    call = asyncio.create_task(b.call(b"x", timeout=30.0))
    waiting = asyncio.create_task(a.call(b"x", timeout=30.0))
    await asyncio.sleep(0.1)
    world.network.loss = 1.0
    b._handler = None
    again = asyncio.create_task(a.call(b"y", timeout=30.0))
    await asyncio.sleep(0.1)
    leaving = asyncio.create_task(b.leave())
    await asyncio.sleep(0.01)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    with pytest.raises(rpc.CallInterrupted):
        await call
    assert not [at for at in world.network.ends if at.host == b.me.address.host]
    for each in (waiting, again):
        each.cancel()


async def test_a_call_cannot_direct_answers_at_another_host(world: RpcWorld) -> None:
    a = world.add("a", echo)
    executed: list[bytes] = []
    world.add("b", lambda call: executed.append(call.payload) or b"")  # type: ignore[func-returns-value]
    head = CallHead(9, 60_000, 1 << 20, False, Address("10.0.0.99", 53), "")
    a.group.multicast(call_payload(head, 1, b"x"))
    await asyncio.sleep(5)
    assert not executed and world.network.sent_count == 0
    assert world.groups["b"].counters()["drop.reply_to"] == 1
