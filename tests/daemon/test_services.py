"""A service that stands on `Group` stands on a daemon as well."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from tests.daemon.stage import daemons
from unisono.services.actions import Action, Actions, Committed, Participant

pytestmark = pytest.mark.real


class Notary(Participant):
    def __init__(self) -> None:
        self.done: list[str] = []

    def prepare(self, action: Action) -> str:
        return ""

    def commit(self, action: Action) -> None:
        self.done.append(action.key)


async def test_actions_commit_through_daemons(place: Path) -> None:
    notaries = [Notary() for _ in range(3)]
    async with daemons(place, 2), contextlib.AsyncExitStack() as stack:
        actions = [
            await stack.enter_async_context(
                Actions(notary).join("deeds", name=f"n{at}", daemon=f"{place}/d{at % 2}")
            )
            for at, notary in enumerate(notaries)
        ]
        everyone = {f"n{at}": b"sign" for at in range(3)}
        outcomes = await asyncio.gather(*(each.run(everyone) for each in actions))
        assert [type(outcome) for outcome in outcomes] == [Committed] * 3
    assert len(notaries[0].done) == 3
    assert notaries[0].done == notaries[1].done == notaries[2].done
