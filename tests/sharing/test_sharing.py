"""Shared objects among real members."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

import unisono
from tests.net.recorder import free_port
from unisono.errors import Misuse
from unisono.services import sharing
from unisono.services.objects.values import decoded, encoded


async def test_members_share_a_dict() -> None:
    port = free_port()
    async with AsyncExitStack() as stack:
        joining = [sharing.join("t", name=name, port=port) for name in ("ann", "bob", "cid")]
        ann, bob, cid = [await stack.enter_async_context(each) for each in joining]
        stock = ann.dict("stock")
        watcher = bob.dict("stock").watch("apples")
        assert await stock.put("apples", 3) is None
        assert stock["apples"] == 3
        change = await anext(watcher)
        assert (change.key, change.value) == ("apples", 3)
        assert await bob.dict("stock").read("apples") == 3
        assert not await cid.dict("stock").compare_and_set("apples", 2, 1)
        assert await cid.dict("stock").compare_and_set("apples", 3, 2)
        assert await ann.batch(stock.remove("apples"), ann.counter("n").add(5)) == [2, 5]
        late = await stack.enter_async_context(sharing.join("t", name="dan", port=port))
        assert late.counter("n").value == 5
        counts = await asyncio.gather(*(each.counter("n").add() for each in (ann, bob, cid)))
        assert sorted(counts) == [6, 7, 8]
        await late.sync()
        assert late.counter("n").value == 8
        with pytest.raises(Misuse, match="whole numbers"):
            await ann.counter("n").add(0.5)  # type: ignore[arg-type]
        with pytest.raises(Misuse, match="no value of a shared object"):
            await stock.put("x", {1, 2})
    with pytest.raises(unisono.Stopped):
        await stock.read("apples")


async def test_a_protocol_without_one_order_is_refused() -> None:
    with pytest.raises(Misuse, match="need one order of the whole group"):
        async with sharing.join("t", name="ann", protocol="rmcast", port=free_port()):
            pass


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        1,
        -1.5,
        "a",
        b"\x00~",
        [1, [b"x"]],
        {"~b": "00"},
        {"~": {"~~b": b""}},
        {"a": [{}]},
    ],
)
def test_values_survive(value: object) -> None:
    assert decoded(encoded(value)) == value


@pytest.mark.parametrize("value", [{1: 2}, {1}, float("nan"), object()])
def test_what_is_no_value_is_refused(value: object) -> None:
    with pytest.raises(Misuse):
        encoded(value)
