"""What a core persists reaches its next incarnation: from a file, or in one process from memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import unisono
from tests.net.flood import FLOOD, Flood
from tests.net.recorder import free_port
from tests.waiting import run_story
from unisono.core import CoreConfig, Effect, Event, Join, Multicast, Persist, Restart
from unisono.group.records import RECORDS_COUNT_MAX

pytestmark = pytest.mark.real


class Keeper(Flood):
    """Persists each message before it sends it, and records how its incarnations begin."""

    beginnings: list[list[Event]] = []

    def __init__(self, setting: CoreConfig) -> None:
        super().__init__(setting)
        self.beginnings.append([])

    def step(self, now_us: int, event: Event) -> list[Effect]:
        if isinstance(event, Join | Restart):
            self.beginnings[-1].append(event)
        safe: list[Effect] = []
        if isinstance(event, Multicast):
            safe += [Persist(bytes(payload)) for payload in event.messages]
        return safe + super().step(now_us, event)


KEEPER = replace(FLOOD, make=Keeper)


@pytest.fixture(autouse=True)
def beginnings() -> Iterator[list[list[Event]]]:
    Keeper.beginnings.clear()
    yield Keeper.beginnings
    Keeper.beginnings.clear()


def lived(*lives: list[bytes], stable: str = "") -> dict[str, int]:
    """A member that sends so much in each incarnation and fails after it; its counters."""

    async def story() -> dict[str, int]:
        place = [f"127.0.0.1:{free_port()}"]
        fails = len(lives[0])
        joining = unisono.join(
            "orders", spec=KEEPER, peers=place, fail_at=fails, rejoin=True, stable=stable
        )
        async with joining as group:
            for said in lives:
                await group.multicast_many(said)
                async for event in group:
                    if isinstance(event, unisono.Rejoined):
                        break
            return group.counters()

    return run_story(story())


def test_without_a_file_records_reach_the_next_life_in_the_same_process(
    beginnings: list[list[Event]],
) -> None:
    counted = lived([b"one", b"two"], [b"three", b"four"])
    assert beginnings == [
        [Join()],
        [Restart((b"one", b"two")), Join()],
        [Restart((b"one", b"two", b"three", b"four")), Join()],
    ]
    assert counted["persist.unsaved"] == 4, "they would not survive the process"


def test_only_the_last_records_are_remembered(beginnings: list[list[Event]]) -> None:
    said = [b"%d" % n for n in range(RECORDS_COUNT_MAX + 10)]
    lived(said)
    assert beginnings[1] == [Restart(tuple(said[10:])), Join()]


def test_another_group_object_remembers_nothing_of_it(beginnings: list[list[Event]]) -> None:
    lived([b"one"])
    lived([b"two"])
    assert beginnings[2] == [Join()]


def test_with_a_file_all_records_are_read_from_it_once(
    beginnings: list[list[Event]], tmp_path: Path
) -> None:
    said = [b"%d" % n for n in range(RECORDS_COUNT_MAX + 10)]
    counted = lived(said, stable=str(tmp_path / "records"))
    assert beginnings[1] == [Restart(tuple(said)), Join()]
    assert counted["persist.unsaved"] == 0
    lived(said, stable=str(tmp_path / "records"))
    assert beginnings[2] == [Restart(tuple(said)), Join()], "and in a process of its own"
