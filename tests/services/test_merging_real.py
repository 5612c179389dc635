"""State on merge with real members: their states are made to differ, and the next view reconciles
them, or tells all alike why not."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

import pytest

from tests.net.recorder import free_port
from unisono.model import Message, View
from unisono.services import merging
from unisono.services.merge.reconciler import Reconciler

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("merging")]


class Own:
    """A set of words, of which each member has its own until they are reconciled."""

    def __init__(self, reconcile: str) -> None:
        self.words: set[str] = set()
        self.how = reconcile
        self.events: list[Message | merging.Reconciled | merging.Unreconciled] = []

    def snapshot(self) -> bytes:
        return " ".join(sorted(self.words)).encode()

    def restore(self, state: bytes) -> None:
        self.words = set(state.decode().split())

    def reconcile(self, states: tuple[merging.ComponentState, ...]) -> bytes:
        if self.how == "raises" and "b" in self.words:
            raise ValueError("no way")
        if self.how == "sleeps" and "b" in self.words:
            time.sleep(3)
        if self.how == "differs":
            return self.snapshot()
        return b" ".join(sorted({word for each in states for word in each.state.split()}))

    async def follow(self, group: merging.MergeGroup) -> None:
        async for event in group:
            if isinstance(event, Message):
                self.words.add(event.payload.decode())
            if not isinstance(event, View):
                self.events.append(event)


def alone(reconciler: Reconciler, view: View) -> frozenset[object]:
    """Each member is its own component at each view."""
    return frozenset((reconciler._me,))


async def outcome(monkeypatch: pytest.MonkeyPatch, how: str) -> list[Own]:
    """Three members; one leaves, and the two that stay reconcile. What each of the two has seen."""
    monkeypatch.setattr(Reconciler, "_narrowed", alone)
    port, owns = free_port(), {name: Own(how) for name in "abc"}
    async with AsyncExitStack() as stack:
        groups: dict[str, merging.MergeGroup] = {}
        reading = []
        for name, own in owns.items():
            groups[name] = await stack.enter_async_context(
                merging.join(
                    "words",
                    name=name,
                    port=port,
                    protocol="transis",
                    snapshot=own.snapshot,
                    restore=own.restore,
                    reconcile=own.reconcile,
                    within_s=60.0 if how != "sleeps" else 1.0,
                    limits=merging.MergeLimits(
                        attempts_count_max=1, state_bytes_max=1 if how == "large" else 1 << 20
                    ),
                )
            )
            reading.append(asyncio.create_task(own.follow(groups[name])))
        for name in "abc":
            while len(groups[name].members) < 3 or groups[name].apart:
                await asyncio.sleep(0.01)
        # What came before was at joining.
        for name, own in owns.items():
            own.words = {name, "common"}
            own.events.clear()
        await groups["c"].leave()
        seen = merging.Reconciled | merging.Unreconciled
        while not all(any(isinstance(e, seen) for e in owns[name].events) for name in "ab"):
            await asyncio.sleep(0.01)
        await groups["a"].multicast(b"last")
        while not all("last" in owns[name].words for name in "ab"):
            await asyncio.sleep(0.01)
        for task in reading:
            task.cancel()
    return [owns["a"], owns["b"]]


async def test_two_states_become_one(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = await outcome(monkeypatch, "unites")
    assert a.words == b.words == {"a", "b", "common", "last"}
    (found,) = [each for each in a.events if isinstance(each, merging.Reconciled)]
    assert found in b.events
    assert [each.state for each in found.states] == [b"a common", b"b common"]


@pytest.mark.parametrize(
    ("how", "cause"),
    [("raises", "raised"), ("sleeps", "late"), ("differs", "differed"), ("large", "too large")],
)
async def test_all_are_told_alike_and_go_on(
    monkeypatch: pytest.MonkeyPatch, how: str, cause: str
) -> None:
    a, b = await outcome(monkeypatch, how)
    told = [[e for e in each.events if isinstance(e, merging.Unreconciled)] for each in (a, b)]
    assert told[0] == told[1] and [each.cause for each in told[0]] == [cause]
    assert a.words == {"a", "common", "last"} and b.words == {"b", "common", "last"}
