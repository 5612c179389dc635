"""Stable storage on good disks and bad ones: what was reported durable is there afterwards."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness import output_of
from tests.net.test_driver import HERE, ME, Diary, Script
from unisono.core import Checkpoint, Deliver, Effect, Event, Join, Persist, Restart, Send
from unisono.errors import Misuse, StorageFailed
from unisono.model import Message
from unisono.net import stable
from unisono.net.driver import Driver
from unisono.net.stable import Disk, StableFile
from unisono.net.udp import Endpoint


class Died(BaseException):
    """The power is gone."""


class BadDisk(Disk):
    """Fails at its n-th operation: with an error, or by losing power, with some bytes written."""

    def __init__(self, at: int, error: BaseException, written: int = 0) -> None:
        self._left = at
        self._error = error
        self._written = written

    def _count(self) -> bool:
        self._left -= 1
        return self._left == 0

    def write(self, handle: int, octets: bytes) -> None:
        if self._count():
            super().write(handle, octets[: self._written])
            raise self._error
        super().write(handle, octets)

    def sync(self, handle: int) -> None:
        if self._count():
            raise self._error
        super().sync(handle)

    def replace(self, path: Path, by: Path) -> None:
        if self._count():
            raise self._error
        super().replace(path, by)


def full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def records_of(path: Path) -> list[bytes]:
    store = StableFile(path)
    try:
        return [record for piece in store.pieces() for record in piece]
    finally:
        store.close()


def test_only_its_owner_reads_a_stable_file(tmp_path: Path) -> None:
    store = StableFile(tmp_path / "stable")
    store.append(b"one")
    store.replace(b"two")
    store.close()
    assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o600}


def test_records_survive_and_a_torn_tail_does_not(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "stable"
    store = StableFile(path)
    for record in (b"one", b"", b"three"):
        store.append(record)
    store.close()
    path.write_bytes(path.read_bytes()[:-1])
    again = StableFile(path)
    assert list(again.pieces()) == [(b"one", b"")]
    again.append(b"four")
    again.close()
    assert records_of(path) == [b"one", b"", b"four"]


def test_a_checkpoint_replaces_all_before_it(tmp_path: Path) -> None:
    path = tmp_path / "stable"
    store = StableFile(path)
    store.begin(7 << 40)
    for n in range(1000):
        store.append(b"record %d" % n)
    long = path.stat().st_size
    store.replace(b"whole")
    assert path.stat().st_size < long // 100
    store.append(b"after")
    store.close()
    assert records_of(path) == [b"whole", b"after"]
    again = StableFile(path)
    assert again.incarnation == 7 << 40
    again.close()


def test_a_file_that_was_removed_is_no_file_that_never_was(tmp_path: Path) -> None:
    """Its member would count as one that never had a past, and vote against what it forgot."""
    path = tmp_path / "stable"
    for _ in range(2):
        store = StableFile(path)
        assert list(store.pieces()) == []
        store.begin(7)
        store.close()
    path.unlink()
    for number in (0, 8):  # It stays so until there is a record.
        store = StableFile(path)
        assert store.incarnation == number
        assert list(store.pieces()) == [(b"",)]
        store.begin(8)
        store.close()
    store = StableFile(path)
    store.replace(b"record")
    store.close()
    assert records_of(path) == [b"record"]


def test_a_link_stays_one_and_its_file_has_one_lock(tmp_path: Path) -> None:
    """A checkpoint put a file in place of the link, and left the one on the good disk behind."""
    disk = tmp_path / "disk"
    disk.mkdir()
    for name in ("one", "two"):
        (tmp_path / name).symlink_to(disk / "stable")
    store = StableFile(tmp_path / "one")
    with pytest.raises(Misuse, match="in use"):
        StableFile(tmp_path / "two")
    store.replace(b"record")
    store.close()
    assert (tmp_path / "one").is_symlink()
    assert records_of(disk / "stable") == [b"record"]


def test_the_last_incarnation_is_kept(tmp_path: Path) -> None:
    for number in (5, (1 << 63) - 1, 3):
        store = StableFile(tmp_path / "stable")
        store.begin(number)
        store.append(b"r")
        store.close()
        again = StableFile(tmp_path / "stable")
        assert again.incarnation == number
        again.close()


def test_a_large_file_is_restored_in_several_events(tmp_path: Path) -> None:
    store = StableFile(tmp_path / "stable")
    for n in range(10):
        store.append(b"%d" % n * 10)
    pieces = list(store.pieces(nbytes=30))
    store.close()
    assert [len(piece) for piece in pieces] == [3, 3, 3, 1]
    assert [record for piece in pieces for record in piece] == [b"%d" % n * 10 for n in range(10)]


def test_a_file_does_not_grow_beyond_its_bound(tmp_path: Path) -> None:
    store = StableFile(tmp_path / "stable", bytes_max=1000)
    with pytest.raises(StorageFailed, match=r"bound of 1000: the protocol must make checkpoints"):
        for _ in range(1000):
            store.append(b"x" * 50)
    assert (tmp_path / "stable").stat().st_size <= 1000
    for _ in range(1000):
        store.replace(b"y" * 50)
    with pytest.raises(StorageFailed, match="bound of 1000"):
        store.replace(b"z" * 1000)
    store.close()
    assert records_of(tmp_path / "stable") == [b"y" * 50]


def test_two_processes_cannot_have_one_file(tmp_path: Path) -> None:
    path = tmp_path / "stable"
    store = StableFile(path)
    store.replace(b"r")
    with pytest.raises(Misuse, match="in use by another member: give each member another file"):
        StableFile(path)
    other = (
        "import sys; from unisono.net.stable import StableFile; from unisono.errors import Misuse\n"
        "try: StableFile(sys.argv[1])\n"
        "except Misuse as error: print(error)"
    )
    assert "in use by another member" in output_of("-c", other, str(path))
    store.close()
    assert records_of(path) == [b"r"]


def test_damage_before_valid_records_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "stable"
    store = StableFile(path)
    for record in (b"first record", b"second record", b"third record"):
        store.append(record)
    store.close()
    whole = path.read_bytes()
    last = whole.index(b"third")
    for at in range(last - 9):
        bad = bytearray(whole)
        bad[at] ^= 0xFF
        path.write_bytes(bad)
        with pytest.raises(
            Misuse, match=r"damaged at byte \d+.*restore it .*, or join without stable="
        ):
            StableFile(path)
        assert path.read_bytes() == bad, "and it is not changed"


def test_zeros_at_the_end_are_a_torn_tail(tmp_path: Path) -> None:
    path = tmp_path / "stable"
    store = StableFile(path)
    store.append(b"one")
    store.close()
    path.write_bytes(path.read_bytes() + bytes(5000))
    assert records_of(path) == [b"one"]


def test_an_impossible_stable_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="give a writable path"):
        StableFile(tmp_path)


# -- bad disks ----------------------------------------------------------------------------------

steps = st.lists(
    st.tuples(st.sampled_from(("append", "replace", "begin")), st.binary(min_size=1, max_size=40)),
    max_size=8,
)


@given(steps, st.integers(1, 30), st.integers(0, 60), st.booleans())
def test_what_was_safe_is_there_after_any_failure(
    tmp_path_factory: pytest.TempPathFactory,
    script: list[tuple[str, bytes]],
    at: int,
    written: int,
    dies: bool,
) -> None:
    """The failing operation may have happened or not; all before it has."""
    path = tmp_path_factory.mktemp("disk") / "stable"
    StableFile(path).close()
    safe: list[bytes] = []
    maybe: list[list[bytes]] = []
    store = StableFile(path, disk=BadDisk(at, Died() if dies else full(), written))
    try:
        for what, record in script:
            after = {"append": [*safe, record], "replace": [record], "begin": safe}[what]
            maybe = [after]
            if what == "begin":
                store.begin(9)
            else:
                getattr(store, what)(record)
            safe, maybe = after, []
    except (Died, StorageFailed) as error:
        if not dies:
            assert "nothing that relies on it was sent: free some space" in str(error)
            with pytest.raises(StorageFailed):
                store.append(b"after all")
    store.close()
    assert records_of(path) in [safe, *maybe]


@pytest.mark.parametrize("effect", [Persist(b"promise"), Checkpoint(b"promise")])
async def test_a_record_that_is_not_safe_stops_the_member_before_what_relies_on_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, effect: Persist | Checkpoint
) -> None:
    path = tmp_path / "stable"
    StableFile(path).close()
    store = StableFile(path, disk=BadDisk(1, full(), written=5))
    diary, ear = Diary(), Endpoint(HERE)
    heard: list[object] = []
    ear.attach(asyncio.get_running_loop(), heard.append)
    said = Message(ME, b"relies on it", 1)
    relying: list[Effect] = [Deliver([said]), Send((ear.address,), [b"relies"])]
    core = Script(lambda event: [effect, *relying])
    driver = Driver(core, Endpoint(HERE), diary, store.append, store.replace)
    driver.start([Join()])
    reason = await diary.end
    assert reason is not None and "No space left on device" in reason
    assert "internal error" not in reason
    await asyncio.sleep(0.05)
    assert not diary.lines and not heard
    store.close()
    ear.close()
    assert records_of(path) == []
    assert "internal error" not in caplog.text


async def test_the_core_gets_the_pieces_one_after_the_other() -> None:
    diary = Diary()
    core = Script(lambda event: [])
    driver = Driver(core, Endpoint(HERE), diary)
    events: list[Event] = [Restart((b"1",), more=True), Restart((b"2",)), Join()]
    driver.start(iter(events))
    assert [event for _, event in core.told] == events
    driver.close()


def test_the_search_for_sound_records_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large file that is damaged early took quadratic time."""
    searched = 0

    def counted(octets: bytes, seed: int = 0) -> int:
        nonlocal searched
        searched += len(octets)
        return crc32(octets, seed)

    monkeypatch.setattr(stable, "crc32", counted)
    monkeypatch.setattr(stable, "SEARCHED_BYTES_MAX", 1 << 20)
    assert stable._has_sound_entry(b"\x00\x00\x40\x00" * 100_000)
    assert searched <= 2 << 20
    assert not stable._has_sound_entry(bytes(1000))
