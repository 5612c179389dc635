"""A feed in a real group: late, restarted, doubled, alone, and through a daemon."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sqlite3
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import unisono
from tests.cli.running import refused
from tests.cli.running import unisono as command
from tests.feed.stage import everything, message, put, shape
from tests.harness import ENVIRONMENT, UNISONO
from tests.net.recorder import free_port
from tests.waiting import LIMIT_S, eventually
from unisono.errors import Misuse, Refused
from unisono.feed import Feed, FeedClient
from unisono.feed.keeper import Keeper
from unisono.group import Group
from unisono.log import Log

pytestmark = pytest.mark.real
PATIENT = {"join_s": 40.0, "tries": 60}


@contextlib.asynccontextmanager
async def member(port: int, name: str, **options: Any) -> AsyncIterator[Group]:
    """A member that reads its stream, as members do."""
    keywords = {**PATIENT, "replayable": True, "name": name, "port": port, **options}
    async with unisono.join("g", **keywords) as group:
        reading = asyncio.create_task(_read(group))
        try:
            yield group
        finally:
            reading.cancel()


async def _read(group: Group) -> None:
    async for _ in group.batches():
        pass


def feed(directory: Path, port: int, **options: Any) -> Feed:
    keywords = {**PATIENT, "listen": "127.0.0.1:0", "port": port, "durable": False, **options}
    return Feed("g", directory, **keywords)


async def say(group: Group, first: int, last: int) -> None:
    """Multicast these numbers, and await their order."""
    upto = group.offset + last - first + 1
    await group.multicast_many([b"%d" % n for n in range(first, last + 1)])
    await eventually(lambda: group.offset >= upto)


def sent(directory: Path) -> list[int]:
    return [int(row["payload"]) for row in everything(directory) if row["kind"] == "message"]


async def reached(fed: Feed, end: int) -> None:
    await eventually(lambda: fed.status()["end"] >= end)


async def test_a_feed_whose_options_do_not_fit_ends_with_the_reason(tmp_path: Path) -> None:
    port = free_port()
    async with member(port, "a"), feed(tmp_path, port, tries=61) as fed:
        with pytest.raises(Refused, match="has tries=60 and this member has tries=61"):
            await asyncio.wait_for(fed.serve(), LIMIT_S)


async def test_a_feed_that_was_away_has_everything_once(tmp_path: Path) -> None:
    port = free_port()
    async with member(port, "a") as a:
        await say(a, 1, 500)
        async with feed(tmp_path, port) as fed:
            await reached(fed, 500)
            name = (fed.status()["member"] or "").partition("#")[0]
            assert fed.counts["recalled"] == 500
            await say(a, 501, 700)
            await reached(fed, 700)
        await say(a, 701, 900)
        async with feed(tmp_path, port) as fed:
            await say(a, 901, 1000)
            await reached(fed, 1000)
            status = fed.status()
            assert status["missing"] == []
            assert status["member"].partition("#")[0] == name, "it is the same site"
            assert [incarnation for incarnation, _, _ in status["stretches"]] == [a.incarnation]
    found = everything(tmp_path)
    assert sent(tmp_path) == list(range(1, 1001))
    assert [row["place"] for row in found if row["kind"] == "message"] == list(range(1, 1001))
    assert not [row for row in found if row["kind"] == "gap"]
    assert [row for row in found if row["kind"] == "view"]


async def test_two_feeds_count_alike_and_one_fills_the_other(tmp_path: Path) -> None:
    port = free_port()
    # The member itself forgets at once.
    async with member(port, "a", retain_bytes=1) as a:
        async with feed(tmp_path / "one", port) as one:
            await eventually(lambda: one.status()["member"] is not None)
            await say(a, 1, 800)
            await reached(one, 800)
        # Back, the feed has nothing of it in memory: it serves from its log.
        async with feed(tmp_path / "two", port) as two, feed(tmp_path / "one", port) as one:
            await reached(two, 800)
            await say(a, 801, 900)
            await reached(two, 900)
            await reached(one, 900)
            assert two.counts["recalled"] == 800
            assert not two.counts["lost"]
    kept = ("place", "payload", "sender", "sender_incarnation", "number", "life", "service")
    one, two = (
        [
            tuple(row[name] for name in kept)
            for row in everything(tmp_path / which)
            if "number" in row
        ]
        for which in ("one", "two")
    )
    assert one == two
    assert len(one) == 900


async def test_what_nobody_has_is_a_gap(tmp_path: Path) -> None:
    port = free_port()
    async with member(port, "a", retain_bytes=20 * (64 + 3)) as a:
        await say(a, 1, 99)
        async with feed(tmp_path, port) as fed:
            await reached(fed, 99)
            await say(a, 100, 110)
            await reached(fed, 110)
            assert 60 < fed.counts["lost"] < 99
    found = everything(tmp_path)
    gap = found[0]
    assert gap["kind"] == "gap"
    assert gap["number"] == gap["place"]
    assert gap["detail"].startswith(f"offsets 1 to {gap['place']} are lost: no member has them")
    assert sent(tmp_path) == list(range(gap["place"] + 1, 111))


@pytest.mark.parametrize("clean", [True, False])
async def test_a_group_that_was_founded_anew_goes_on_after_a_gap(
    tmp_path: Path, clean: bool
) -> None:
    port = free_port()
    async with member(port, "a") as a, feed(tmp_path, port) as fed:
        await say(a, 1, 5)
        await reached(fed, 5)
        if clean:
            await a.leave()
            await eventually(lambda: len(fed.status()["members"]) == 1)
    async with member(port, "a") as a, feed(tmp_path, port) as fed:
        await say(a, 6, 9)
        await reached(fed, 10)
        assert fed.status()["stretches"][-1][:2] == [a.incarnation, 6]
    found = [row for row in everything(tmp_path) if row["kind"] != "view"]
    assert shape(found) == "1m 2m 3m 4m 5m 6g 7m 8m 9m 10m"
    assert found[5].get("number") == (0 if clean else None), "the last to leave has missed nothing"


async def test_rows_are_logged_once_although_the_group_was_founded_anew(tmp_path: Path) -> None:
    """The feed ended cleanly and nobody is left who remembers its writers, but the log."""

    def write(at: str, *numbers: int) -> int:
        with FeedClient(at) as client:
            return client.write("q", 0, 1, 0, [b"%d" % number for number in numbers])

    for numbers in ((1, 2), (1, 2, 3), (1, 2, 3)):
        port = free_port()
        async with member(port, "a"), feed(tmp_path, port) as fed:
            await asyncio.to_thread(write, fed.at, *numbers)
    assert sent(tmp_path) == [1, 2, 3]


async def test_rows_are_acknowledged_when_they_are_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Log.append

    def slowly(*arguments: Any) -> None:
        time.sleep(0.1)
        append(*arguments)

    port = free_port()
    async with member(port, "a") as a, feed(tmp_path, port) as fed:
        await reached(fed, 0)

        def write() -> None:
            with FeedClient(fed.at, 30) as client:
                offset = client.write("q", 0, 1, 0, [b"%d" % n for n in range(1, 301)])
                assert client.bounds().end >= offset >= 300
                # Once more, as after a crash of the writer, and on.
                client.write("q", 0, 1, 200, [b"%d" % n for n in range(201, 401)])
                client.write("q", 0, 1, 0, [b"1"])
                assert client.bounds().end == 400
                assert client.status()["in_flight_octets"] == 0

        await asyncio.to_thread(write)
        assert a.counters()["replay.repeated"] == 0, "its log has them: not sent again"
        monkeypatch.setattr(Log, "append", slowly)
        offset = await fed.take("q", 1, 1, 0, [b"401"])
        assert fed.status()["end"] == offset == 401, "not before it is durable"
    assert sent(tmp_path) == list(range(1, 402))


async def test_a_damaged_batch_is_recalled_when_a_reader_meets_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    async with member(port, "a") as a, feed(tmp_path, port) as fed:
        for first in range(1, 101, 10):
            await say(a, first, first + 9)
            await reached(fed, first + 9)
        damaged = sqlite3.connect(tmp_path / "log.sqlite")
        damaged.execute("UPDATE batch SET blob = x'00' WHERE first <= 50 AND last >= 50")
        damaged.commit()
        damaged.close()

        def read() -> list[int]:
            with FeedClient(fed.at, LIMIT_S) as client:
                return [n for batch in client.read(0, 100) for n in batch.column(0).to_pylist()]

        assert sorted({*await asyncio.to_thread(read)}) == [*range(1, 101)]
        assert fed.status()["counts"]["recalled"] >= 1
        assert fed.status()["end"] == 100
    assert "it is set aside" in caplog.text
    assert sent(tmp_path) == [*range(1, 101)]


async def test_a_feed_of_another_protocol(tmp_path: Path) -> None:
    options = {"port": free_port(), "protocol": "mtp", "join_s": 40.0}
    talker = unisono.join("g", replayable=True, name="a", master=1, **options)
    async with talker as a:
        reading = asyncio.create_task(_read(a))
        await say(a, 1, 100)
        for first in (101, 301):
            async with Feed("g", tmp_path, listen="127.0.0.1:0", **options) as fed:
                await eventually(lambda f=fed: f.status()["member"] is not None)
                await say(a, first, first + 99)
                await reached(fed, first + 99)
            await say(a, first + 100, first + 199)
        reading.cancel()
    assert sent(tmp_path) == list(range(1, 401))
    assert not [row for row in everything(tmp_path) if row["kind"] == "gap"]


async def test_a_feed_may_go_through_a_daemon(tmp_path: Path) -> None:
    from tests.daemon.stage import daemons, joining

    async with daemons(tmp_path, 2), joining(tmp_path, "a", at=0, replayable=True) as a:
        reading = asyncio.create_task(_read(a))
        await say(a, 1, 50)
        options = {"daemon": f"unix:{tmp_path}/d1", "name": "f", "listen": "127.0.0.1:0"}
        async with Feed("g", tmp_path / "log", join_s=40.0, **options) as fed:
            await reached(fed, 50)
            await say(a, 51, 80)
            await reached(fed, 80)
        reading.cancel()
    assert sent(tmp_path / "log") == list(range(1, 81))


def test_the_command_serves_and_ends_cleanly(tmp_path: Path) -> None:
    port = str(free_port())
    words = ["feed", "g", "--log", str(tmp_path / "log"), "--listen", "127.0.0.1:0", "--json"]
    process = subprocess.Popen(
        [*UNISONO, *words, "--port", port, "--name", "f"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    try:
        assert process.stdout is not None
        listening = json.loads(process.stdout.readline())
        assert listening["kind"] == "listening"
        with FeedClient(listening["at"], 40) as client:
            assert client.write("q", 0, 0, 0, [b"1", b"2"]) == 2
            status = client.status()
            assert (status["group"], status["end"], status["away"]) == ("g", 2, None)
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, errors
        assert json.loads(rest.splitlines()[-1]) == {"kind": "ended"}
    finally:
        process.kill()
        process.communicate()
    assert sent(tmp_path / "log") == [1, 2]


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "log.sqlite").write_text("a letter")
    here = ("--log", str(tmp_path))
    refused(command("feed"), "no group is named")
    refused(command("feed", "g"), "--log DIR")
    refused(command("feed", "g", *here), "not a Unisono log")
    there = ("--log", str(tmp_path / "other"), "--listen")
    refused(command("feed", "g", *there, "192.0.2.1:7420"), "cannot listen at 192.0.2.1:7420")
    with pytest.raises(Misuse, match="ring, rmp or mtp"):
        Feed("g", tmp_path, protocol="rmcast")
    with pytest.raises(Misuse, match="one HOST:PORT"):
        Feed("g", tmp_path, listen="a:1,b:2")
    with pytest.raises(Misuse, match="always rejoins"):
        Feed("g", tmp_path, rejoin=True)
    with pytest.raises(Misuse, match="above 0"):
        Feed("g", tmp_path, retain_s=0)


async def test_the_status_shows_the_retention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unisono.feed.site.TRIM_EVERY_S", 0.05)

    port = free_port()
    async with member(port, "a") as a, feed(tmp_path, port, retain_bytes=20_000) as fed:
        for first in range(1, 2001, 100):
            await say(a, first, first + 99)
            await reached(fed, first + 99)
        await eventually(lambda: fed.status()["octets"] <= 20_000)
        dropped = fed.status()["first"] - 1
        assert dropped > 0
        # Counted in the loop once the thread that drops them is done.
        await eventually(lambda: fed.status()["counts"].get("dropped_places") == dropped)
    found = sent(tmp_path)
    assert found == list(range(2001 - len(found), 2001))


async def test_replaced_messages_follow_a_gap_row(tmp_path: Path) -> None:
    """As if the feed and the sender had died with the only copies of a message."""

    port = free_port()
    async with member(port, "a") as a:
        async with feed(tmp_path, port) as fed:
            await say(a, 1, 10)
            await reached(fed, 10)
            incarnation = a.incarnation
        with Log(tmp_path, durable=False) as log:
            keeper = Keeper(log, "g")
            put(log, keeper.enter(incarnation, 10, 1))
            put(log, keeper.deliver([message(11, b"11"), message(12, b"12")], 1))
        await say(a, 21, 25)
        async with feed(tmp_path, port) as fed:
            await reached(fed, 18)
    found = [row for row in everything(tmp_path) if row["kind"] != "view"]
    assert [int(row.get("payload", b"0")) for row in found] == [*range(1, 13), 0, *range(21, 26)]
    assert (found[12]["place"], found[12]["number"]) == (13, 2)
    assert "replaced its messages after 10" in found[12]["detail"]
