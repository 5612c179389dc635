"""Stable storage after a power cut at any point of its writes: they are replayed up to there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.net.test_stable import records_of
from unisono.net.stable import Disk, StableFile


class Recorder(Disk):
    """Keeps what was written, synced and renamed, in order."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str, bytes]] = []

    def write(self, handle: int, data: bytes) -> None:
        self.done.append(("write", _name(handle), data))
        super().write(handle, data)

    def sync(self, handle: int) -> None:
        self.done.append(("sync", _name(handle), b""))
        super().sync(handle)

    def replace(self, path: Path, by: Path) -> None:
        self.done.append(("replace", path.name, by.name.encode()))
        super().replace(path, by)


def _name(handle: int) -> str:
    return Path(os.readlink(f"/proc/self/fd/{handle}")).name


def after_cut(
    done: list[tuple[str, str, bytes]], torn: int, renamed: bool, name: str = "stable"
) -> bytes | None:
    """The file after these operations. What was not synced is there up to `torn` bytes, and a name
    that was not synced may be the former one."""
    files: dict[str, tuple[bytes, bytes]] = {}
    former: dict[str, tuple[bytes, bytes] | None] = {}
    for what, file, data in done:
        synced, loose = files.get(file, (b"", b""))
        if what == "write":
            files[file] = (synced, loose + data)
        elif what == "replace":
            former = {file: files.get(file)}
            files[file] = files.pop(data.decode())
        elif file in files:
            files[file] = (synced + loose, b"")
        else:
            former = {}  # The directory.
    if former and not renamed:
        files.update({file: held for file, held in former.items() if held is not None})
        files = {file: held for file, held in files.items() if former.get(file, held) is not None}
    if name not in files:
        return None
    synced, loose = files[name]
    return synced + loose[:torn]


@pytest.mark.parametrize("renamed", [False, True])
@pytest.mark.parametrize("torn", [0, 1, 5, 11, 1 << 20])
def test_each_record_that_was_reported_durable_is_there(
    tmp_path: Path, torn: int, renamed: bool
) -> None:
    disk = Recorder()
    store = StableFile(tmp_path / "stable", disk=disk)
    known: list[tuple[int, list[bytes]]] = [(len(disk.done), [])]
    records: list[bytes] = []
    for at in range(9):
        record = b"%d" % at * (at + 1)
        if at % 4 == 3:
            store.replace(record)
            records = [record]
        else:
            store.append(record)
            records = [*records, record]
        known.append((len(disk.done), records))
    store.close()
    for count in range(len(disk.done) + 1):
        place = tmp_path / f"cut-{count}"
        place.mkdir()
        image = after_cut(disk.done[:count], torn, renamed)
        if image is not None:
            (place / "stable").write_bytes(image)
        before = max((at for at, (n, _) in enumerate(known) if n <= count), default=0)
        allowed = [known[before][1], known[min(before + 1, len(known) - 1)][1]]
        assert records_of(place / "stable") in allowed, f"cut after {count} operations"
