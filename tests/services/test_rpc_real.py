"""Multi-RPC on real groups: every protocol with a total order, through daemons, with real kills."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import unisono
from tests import waiting
from tests.daemon import stage
from tests.documents import blocks, section
from tests.harness import ROOT, Module, output_of
from tests.net.recorder import free_port
from tests.toy.sequencer import SPEC
from unisono.errors import Misuse
from unisono.services import rpc

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("rpc"), pytest.mark.rule("RMP-20")]

TIMEOUT_S = 60.0
"""More than a busy machine needs."""


def named(group: rpc.RpcGroup) -> Callable[[rpc.Call], bytes]:
    return lambda call: call.payload + b" " + group.me.name.encode()


def role(protocol: str, at: int) -> dict[str, Any]:
    return {"master": int(at == 0)} if protocol == "mtp" else {}


@asynccontextmanager
async def serving(groups: list[rpc.RpcGroup]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(group.serve()) for group in groups]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()


@pytest.mark.parametrize(
    ("protocol", "service"),
    [("ring", ""), ("ring", "safe"), ("mtp", ""), ("rmp", ""), ("rmp", "resilient(majority)")],
)
async def test_members_answer_over_every_ordered_protocol(protocol: str, service: str) -> None:
    port = free_port()
    async with AsyncExitStack() as stack:
        groups = []
        for at, name in enumerate("abc"):
            joining = rpc.join(
                "calls",
                name=name,
                protocol=protocol,
                port=port,
                service=service,
                **role(protocol, at),
            )
            groups.append(await stack.enter_async_context(joining))
            groups[-1].answer(named(groups[-1]))
        await stack.enter_async_context(serving(groups))
        await waiting.eventually(lambda: all(len(group.members) == 3 for group in groups))
        expected = {name: b"x " + name.encode() for name in "abc"}
        calls = (group.call(b"x", rpc.ALL, TIMEOUT_S) for group in groups for _ in range(50))
        for result in await asyncio.gather(*calls):
            assert result.by_name() == expected and not result.failures


async def test_a_group_with_calls_has_locks_and_votes() -> None:
    async with rpc.join("calls", name="a", protocol="rmp", port=free_port()) as group:
        async with serving([group]), group.lock(7) as lock:
            assert lock.held
            await group.vote(1)
            await group.scope(2)
        group.request("lock", number=8)
        with pytest.raises(Misuse, match="takes no request 'go_on'"):
            group.request(unisono.GoOn())


async def test_a_protocol_of_ones_own_answers_too() -> None:
    port = free_port()
    async with AsyncExitStack() as stack:
        groups = []
        for name in "ab":
            options = {"sequencer": int(name == "a")}
            joining = unisono.join("calls", name=name, spec=SPEC, port=port, options=options)
            groups.append(rpc.RpcGroup(await stack.enter_async_context(joining)))
            groups[-1].answer(named(groups[-1]))
        await stack.enter_async_context(serving(groups))
        await waiting.eventually(lambda: all(len(group.members) == 2 for group in groups))
        result = await groups[1].call(b"x", rpc.ALL, TIMEOUT_S)
        assert result.by_name() == {"a": b"x a", "b": b"x b"}


async def test_a_protocol_without_a_total_order_is_refused() -> None:
    with pytest.raises(Misuse, match="total order"):
        async with rpc.join("calls", name="a", protocol="rmcast", port=free_port()):
            pass
    with pytest.raises(Misuse, match="unanswered"):
        async with rpc.join("calls", name="a", slow="shed", port=free_port()):
            pass


async def test_a_member_that_does_not_know_calls_is_refused() -> None:
    port = free_port()
    async with rpc.join("calls", name="a", port=port, format="prices"):
        for options in ({}, {"format": "rpc/1"}):
            with pytest.raises(unisono.Refused, match="has format=rpc/1:prices and"):
                await unisono.join("calls", name="b", port=port, rejoin=False, **options)  # type: ignore[arg-type]


async def test_a_client_that_does_not_know_calls_is_refused(place: Path) -> None:
    async with stage.daemons(place, 1), through(place, "a", 0):
        with pytest.raises(unisono.Stopped, match="has format=rpc/1 and this member has"):
            await stage.joining(place, "b")
    async with stage.daemons(place, 1), stage.joining(place, "a"):
        with pytest.raises(unisono.Stopped, match="leave out format="):
            async with through(place, "b", 0):
                pass


async def test_a_joiner_answers_from_the_state_at_its_place() -> None:
    port = free_port()
    counts = {"a": 0, "b": 0}

    def joining(name: str) -> Any:
        def restore(state: bytes) -> None:
            counts[name] = int(state)

        return rpc.join(
            "counts",
            name=name,
            port=port,
            snapshot=lambda: b"%d" % counts[name],
            restore=restore,
        )

    def counting(name: str) -> Callable[[rpc.Call], bytes]:
        def count(call: rpc.Call) -> bytes:
            counts[name] += 1
            return b"%d" % counts[name]

        return count

    async with joining("a") as a:
        a.answer(counting("a"))
        async with serving([a]):
            for _ in range(20):
                await a.call(b"x", rpc.ALL, TIMEOUT_S)
            async with joining("b") as b:
                b.answer(counting("b"))
                async with serving([b]):
                    for _ in range(5):
                        result = await b.call(b"x", rpc.ALL, TIMEOUT_S)
                        assert len(result.answers) == 2
                        assert len(set(result.answers.values())) == 1


# -- through daemons ------------------------------------------------------------------------------


def through(place: Path, name: str, at: int) -> Any:
    return rpc.join("g", daemon=f"unix:{place}/d{at}", name=name, join_s=waiting.LIMIT_S)


async def test_clients_of_daemons_answer_members_and_others(place: Path) -> None:
    async with stage.daemons(place, 2), AsyncExitStack() as stack:
        groups = [
            await stack.enter_async_context(through(place, name, at))
            for name, at in (("a", 0), ("b", 1), ("c", 1))
        ]
        for group in groups:
            group.answer(named(group))
        await stack.enter_async_context(serving(groups))
        await waiting.eventually(lambda: all(len(group.members) == 3 for group in groups))
        expected = {name: b"x " + name.encode() for name in "abc"}
        result = await groups[0].call(b"x", rpc.ALL, TIMEOUT_S)
        assert result.by_name() == expected
        for at in (0, 1):
            async with rpc.connect("g", daemon=f"unix:{place}/d{at}", name="z") as outside:
                calls = [outside.call(b"x", rpc.ALL, TIMEOUT_S) for _ in range(20)]
                for result in await asyncio.gather(*calls):
                    assert result.by_name() == expected
                    assert set(result.members) == set(groups[0].members)
        assert groups[1].counters().get("in.answers", 0) == 0


async def test_a_caller_outside_learns_which_members_are_gone(place: Path) -> None:
    async def never(call: rpc.Call) -> bytes:
        await asyncio.Event().wait()
        return b""

    async with stage.daemons(place, 1), AsyncExitStack() as stack:
        groups = [await stack.enter_async_context(through(place, name, 0)) for name in "ab"]
        groups[0].answer(named(groups[0]))
        groups[1].answer(never)
        await stack.enter_async_context(serving(groups))
        await waiting.eventually(lambda: all(len(group.members) == 2 for group in groups))
        outside = await stack.enter_async_context(
            rpc.connect("g", daemon=f"unix:{place}/d0", name="z")
        )
        calling = asyncio.create_task(outside.call(b"x", rpc.ALL, TIMEOUT_S))
        await waiting.eventually(lambda: groups[1].counters().get("calls.executed"))
        await groups[1].leave()
        with pytest.raises(rpc.TooFewAnswers) as raised:
            await calling
        (failure,) = raised.value.result.failures.values()
        assert failure.reason is rpc.Reason.LEFT, failure


async def test_answers_through_daemons_may_be_large_and_many(place: Path) -> None:
    limits = rpc.RpcLimits(answer_bytes_max=1 << 20)
    async with stage.daemons(place, 1, message_bytes_max=200_000), AsyncExitStack() as stack:
        a = await stack.enter_async_context(through(place, "a", 0))
        a.answer(lambda call: bytes(int(call.payload)))
        await stack.enter_async_context(serving([a]))
        outside = await stack.enter_async_context(
            rpc.connect("g", daemon=f"unix:{place}/d0", limits=limits)
        )
        sizes = [10, 20_000, 150_000, 0] * 10
        calls = (outside.call(b"%d" % size, rpc.ALL, TIMEOUT_S) for size in sizes)
        results = await asyncio.gather(*calls)
        assert [len(result.first) for result in results] == sizes
        with pytest.raises(rpc.TooFewAnswers, match="too large: the message has"):
            await outside.call(b"300000", rpc.ALL, TIMEOUT_S)
        with pytest.raises(unisono.TooLarge):
            await outside.call(bytes(300_000))


async def test_no_answers_are_an_error_that_names_the_group(place: Path) -> None:
    calling = rpc.connect("nobody", daemon=f"unix:{place}/d0")
    async with stage.daemons(place, 1), calling as outside:
        with pytest.raises(rpc.TooFewAnswers, match="anyone in the group 'nobody'"):
            await outside.call(b"x", rpc.ONE, timeout=0.5)


# -- real processes -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["ring", "mtp"])
def test_a_killed_member_is_reported_and_the_others_answer(protocol: str) -> None:
    port = free_port()

    def member(at: int) -> Module:
        orders = {"group": "calls", "name": "abc"[at], "protocol": protocol, "port": port}
        return Module("abc"[at], "tests.services.rpc_member", orders | role(protocol, at))

    with member(0) as a:
        a.expect("joined")
        with member(1) as b, member(2) as c:
            b.expect("joined"), c.expect("joined")

            def called() -> dict[str, Any]:
                before = len(a.of("result"))
                a.write("call")
                waiting.until(lambda: len(a.of("result")) > before, "a result")
                return a.of("result")[-1]

            waiting.until(lambda: called()["answers"] == ["a", "b", "c"], "all answer")
            c.kill()
            result = called()
            assert (result["answers"], result["failures"]) in (
                (["a", "b"], {"c": "FAILED"}),
                (["a", "b"], {"c": "ABSENT"}),
                (["a", "b"], {}),
            )
            waiting.until(lambda: called()["failures"] == {}, "a call without the dead one")
            a.write("quit")


def test_the_benchmark_runs() -> None:
    words = ("-m", "benchmarks.calls", "--members", "1", "--seconds", "0.1")
    output = output_of(*words, "--port", str(free_port()))
    one, many = map(json.loads, output.splitlines())
    assert (one["callers"], many["callers"]) == (1, 64)
    assert one["calls_s"] > 0 and not one["failed"] + many["failed"]


def test_the_example_runs_and_is_the_one_of_the_page() -> None:
    path = ROOT / "examples" / "calls.py"
    program = path.read_text(encoding="utf-8")
    assert len([line for line in program.splitlines() if line]) < 25
    (shown,) = blocks(section("PATTERNS", "Calls"), "python")
    assert shown.strip() == program.partition('"""\n\n')[2].strip()
    assert "of 3 answered, majority wanted" in output_of(str(path))
