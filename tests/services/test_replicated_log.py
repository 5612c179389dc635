"""What a replica refuses, in one clear line each, with its log as it was."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import unisono
from unisono.errors import Misuse
from unisono.net.stable import StableFile
from unisono.services.replica_file import FILE
from unisono.services.replicating import UPDATE_BYTES_MAX
from unisono.services.replication.records import IdentityRecord, record_bytes

Use = Callable[[unisono.ReplicatedLog], Awaitable[object]]


class Machine:
    def __init__(self, returned: Any = b"") -> None:
        self.returned = returned

    def apply(self, update: bytes, position: int) -> Any:
        return self.returned

    def snapshot(self) -> Any:
        return self.returned

    def restore(self, state: bytes) -> None:
        pass


async def one(path: Path, port: int, use: Use | None = None, **changed: Any) -> None:
    """A replica that is a group by itself."""
    options = {"name": "a", "members": ["a"], "path": path, "port": port, "protocol": "ring"}
    group = changed.pop("group", "orders")
    async with unisono.replicate(group, **{**options, **changed}) as log:
        await (use or append)(log)


async def append(log: unisono.ReplicatedLog) -> None:
    await log.append(b"x").green


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"name": ""}, "needs a name"),
        ({"members": "abc"}, "each once"),
        ({"members": []}, "each once"),
        ({"members": ["a", "a"]}, "each once"),
        ({"members": ["a", 1]}, "not empty"),
        ({"machine": object()}, "has no apply, snapshot, restore"),
        ({"outstanding_bytes_max": 0}, "at least"),
        ({"members": ["a", "b"]}, r"began with members=\['a'\], not \['a', 'b'\]"),
        ({"group": "other"}, "log of group 'orders', not of 'other'"),
        ({"name": "b"}, "log of member 'a', not of 'b'"),
        ({"protocol": "raft"}, "no protocol"),
    ],
)
async def test_what_does_not_fit_is_refused_and_changes_nothing(
    changed: dict[str, Any], told: str, tmp_path: Path, port: int
) -> None:
    file = StableFile(tmp_path / FILE)
    file.append(record_bytes(IdentityRecord(1, "orders", "a", 5, ("a",))))
    file.close()
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(Misuse, match=told):
        await one(tmp_path, port, **changed)
    assert (tmp_path / FILE).read_bytes() == before


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (
            record_bytes(IdentityRecord(2, "orders", "a", 5, ("a",))),
            "has version 2; this one reads 1",
        ),
        (b"\xff1", "not the log of a replica"),
    ],
)
async def test_another_file_is_no_log(record: bytes, told: str, tmp_path: Path, port: int) -> None:
    file = StableFile(tmp_path / FILE)
    file.append(record)
    file.close()
    with pytest.raises(Misuse, match=told):
        await one(tmp_path, port)


async def test_a_damaged_log_is_refused_with_what_to_do(tmp_path: Path, port: int) -> None:
    file = StableFile(tmp_path / FILE)
    file.append(record_bytes(IdentityRecord(1, "orders", "a", 5, ("a",))), b"more", b"yet more")
    file.close()
    content = bytearray((tmp_path / FILE).read_bytes())
    content[20] ^= 1
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(Misuse, match=r"replica log .* is damaged at byte 8.*add\(\) it again"):
        await one(tmp_path, port)


async def test_a_replica_refuses_what_it_cannot_do(tmp_path: Path, port: int) -> None:
    async def refused(log: unisono.ReplicatedLog) -> None:
        await append(log)
        with pytest.raises(unisono.TooLarge, match="split it"):
            log.append(bytes(UPDATE_BYTES_MAX + 1))
        with pytest.raises(Misuse, match="encode it first"):
            log.append("text")  # type: ignore[arg-type]
        with pytest.raises(Misuse, match="the last is 1"):
            log.acknowledge(2)
        with pytest.raises(Misuse, match="'z' is not a member"):
            await log.remove("z")
        with pytest.raises(Misuse, match="is the last member"):
            await log.remove("a")
        with pytest.raises(Misuse, match="member already"):
            await log.add("a")
        with pytest.raises(Misuse, match="needs a state"):
            await log.query(id)
        with pytest.raises(Misuse, match="in use by another member"):
            await one(tmp_path, port)
        await append(log)
        assert log.position == 2

    await one(tmp_path, port, refused)


async def test_a_state_machine_that_returns_no_bytes_is_told(tmp_path: Path, port: int) -> None:
    async def used(log: unisono.ReplicatedLog) -> None:
        with pytest.raises(Misuse, match=r"apply\(\) of the state machine returned str"):
            await log.append(b"x").result
        with pytest.raises(Misuse, match=r"snapshot\(\) of the state machine returned str"):
            await log.checkpoint()
        await append(log)

    await one(tmp_path, port, used, machine=Machine("text"))


async def test_a_protocol_without_safe_messages_is_refused(tmp_path: Path, port: int) -> None:
    with pytest.raises(Misuse, match="does not offer safe"):
        await one(tmp_path, port, protocol="rmcast")
