"""Disks of replicas: after a power cut at any write all that was acknowledged is there; one that is
full, fails or is slow stops its replica, which says so, and the others go on."""

from __future__ import annotations

import errno
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import unisono
from tests.net.test_power_cut import Recorder, after_cut
from tests.waiting import eventually
from unisono.errors import StorageFailed
from unisono.net.stable import Disk
from unisono.services import replica_process
from unisono.services.replica_file import FILE, ReplicaFile
from unisono.services.replication.engine import ReplicaEngine


class Total:
    """A state machine: the updates, one after another."""

    def __init__(self) -> None:
        self.updates: list[bytes] = []

    def apply(self, update: bytes, position: int) -> bytes:
        self.updates.append(update)
        return b""

    def snapshot(self) -> bytes:
        return b" ".join(self.updates)

    def restore(self, state: bytes) -> None:
        self.updates = state.split()


async def test_what_was_acknowledged_is_there_after_a_power_cut(tmp_path: Path, port: int) -> None:
    disk = Recorder()
    reds: list[tuple[int, bytes]] = []
    greens: list[tuple[int, int, bytes]] = []
    """When, in operations of the disk, an update was acknowledged; the update; where it is."""
    async with unisono.replicate(
        "orders",
        name="a",
        members=["a"],
        path=tmp_path,
        disk=disk,
        machine=Total(),
        port=port,
        protocol="ring",
    ) as log:
        for number in range(6):
            update = b"%d" % number
            handle = log.append(update)
            await handle
            reds.append((len(disk.done), update))
            position = await handle.green
            greens.append((len(disk.done), position, update))
            if number % 3 == 2:
                await log.checkpoint()
    for count in range(len(disk.done) + 1):
        for torn, renamed in ((0, False), (7, True), (1 << 20, False)):
            place = tmp_path / f"{count}-{torn}"
            place.mkdir()
            image = after_cut(disk.done[:count], torn, renamed, FILE)
            if image is not None:
                (place / FILE).write_bytes(image)
            there = updates_in(place)
            assert all(update in there for at, update in reds if at <= count)
            assert all(there[update] == position for at, position, update in greens if at <= count)


def updates_in(place: Path) -> dict[bytes, int]:
    """The updates of a log by their position, or 0 of red ones."""
    file = ReplicaFile(place, "orders", "a", ["a"])
    machine = Total()
    process = replica_process.ReplicaProcess(
        file,
        ReplicaEngine("a", file.identity.instance, ["a"]),
        machine,
        None,  # type: ignore[arg-type]
    )
    found = {update: at for at, update in enumerate(machine.updates, 1)}
    process.close()
    return {**{each.content: 0 for each in process.engine.order.reds()}, **found}


class BadDisk(Disk):
    """It does as it should, until it is told not to."""

    def __init__(self, kind: str) -> None:
        self.kind, self.is_bad, self.rest = kind, False, threading.Event()

    def write(self, handle: int, data: bytes) -> None:
        if self.is_bad and self.kind == "full":
            super().write(handle, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(handle, data)

    def sync(self, handle: int) -> None:
        if self.is_bad and self.kind == "failing":
            raise OSError(errno.EIO, "Input/output error")
        if self.is_bad and self.kind == "slow":
            self.rest.wait()
        super().sync(handle)


@pytest.mark.parametrize(
    ("kind", "told"),
    [("full", "free some space"), ("failing", "check the disk"), ("slow", "took more than 0.3 s")],
)
async def test_a_bad_disk_is_told_and_the_others_go_on(
    kind: str, told: str, tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = BadDisk(kind)

    def replica(name: str, **more: Any) -> Any:
        return unisono.replicate(
            "orders",
            name=name,
            members=["a", "b", "c"],
            path=tmp_path / name,
            port=port,
            protocol="transis",
            **more,
        )

    async with AsyncExitStack() as stack:
        a, _ = [await stack.enter_async_context(replica(name)) for name in "ab"]
        async with replica("c", disk=disk) as c:
            await a.append(b"first").stable
            if kind == "slow":
                monkeypatch.setattr(replica_process, "SLOW_DISK_S", 0.3)
            disk.is_bad = True
            handle = a.append(b"second")
            await handle.green
            await eventually(lambda: c.stopped)
            monkeypatch.undo()
            assert told in c.stopped
            with pytest.raises(StorageFailed):
                c.append(b"third")
            disk.is_bad = False
            disk.rest.set()
        position = await a.append(b"third").green
        assert a.primary == ("a", "b") and not handle.stable.is_reached
        async with replica("c") as c:
            assert await handle.stable == position - 1
            updates = [entry.update async for entry in until_position(c, position)]
            assert updates == [b"first", b"second", b"third"]


async def until_position(log: unisono.ReplicatedLog, last: int) -> AsyncIterator[unisono.LogEntry]:
    async for entry in log:
        yield entry
        if entry.position == last:
            return
