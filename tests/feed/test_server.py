"""The feed's server: exact ranges, many readers, hostile bytes, and slow clients."""

from __future__ import annotations

import random
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.feed.stage import Served, messages, put, view
from tests.waiting import LIMIT_S
from unisono.errors import Misuse, UnisonoError
from unisono.feed import FeedClient, FeedGone, protocol, rows
from unisono.feed.epochs import Counting, stretches_of
from unisono.feed.protocol import FeedFrameKind
from unisono.log import Trimmed


def places(client: FeedClient, after: int, upto: int) -> list[int]:
    return [offset for batch in client.read(after, upto) for offset in batch.column(0).to_pylist()]


def test_a_range_holds_exactly_its_places(tmp_path: Path) -> None:
    with Served(tmp_path) as served, FeedClient(served.at, 5) as client:
        served.say([view(0), *messages(1, 10)])
        served.say([view(10), *messages(11, 20)])
        assert client.bounds()[:3] == (1, 20, 20)
        assert places(client, 0, 20) == [1, *range(1, 11), 11, *range(11, 21)]
        assert places(client, 10, 11) == [11, 11], "a view stands before its message"
        for after in (0, 3, 9, 10, 15):
            for upto in (after, after + 1, 12, 20):
                wanted = [p for p in [1, *range(1, 11), 11, *range(11, 21)] if after < p <= upto]
                assert places(client, after, upto) == wanted


def test_many_read_at_once(tmp_path: Path) -> None:
    with Served(tmp_path) as served:
        for first in range(1, 20_001, 100):
            served.say(messages(first, first + 99))

        def read(at: int) -> int:
            with FeedClient(served.at, 20) as client:
                found = places(client, at * 1000, at * 1000 + 1000)
            assert found == list(range(at * 1000 + 1, at * 1000 + 1001))
            return len(found)

        with ThreadPoolExecutor(10) as pool:
            assert sum(pool.map(read, range(20))) == 20_000


def test_what_was_dropped_is_named(tmp_path: Path) -> None:
    with Served(tmp_path) as served, FeedClient(served.at, 5) as client:
        for first in (1, 11, 21):
            served.say(messages(first, first + 9))
        served.log.trim(bytes_max=served.log.nbytes - 1)
        with pytest.raises(Trimmed, match="offsets 4 to 10 were dropped") as error:
            places(client, 3, 20)
        assert (error.value.first, error.value.begins) == (4, 11)
        assert places(client, 10, 12) == [11, 12], "the connection is still good"


def test_a_reader_waits_for_what_is_to_come(tmp_path: Path) -> None:
    with Served(tmp_path) as served, FeedClient(served.at, 20) as client:
        served.say(messages(1, 5))
        later = threading.Timer(0.5, served.say, (messages(6, 9),))
        later.start()
        assert places(client, 3, 9) == [4, 5, 6, 7, 8, 9]
        later.join()
        brief = FeedClient(served.at, 0.3)
        with pytest.raises(FeedGone, match="reached offset 9, not 10"):
            places(brief, 8, 10)


def test_a_feed_that_restarts_is_waited_for(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.say(messages(1, 5))
    again: list[Served] = []
    with FeedClient(served.at, 20) as client:
        assert client.bounds().end == 5
        served.close()
        timer = threading.Timer(0.5, lambda: again.append(Served(tmp_path, served.port)))
        timer.start()
        assert places(client, 0, 5) == [1, 2, 3, 4, 5]
        timer.join()
        again[0].close()


def test_a_range_that_was_interrupted_goes_on_where_it_was(tmp_path: Path) -> None:
    served = Served(tmp_path)
    for seq in range(1, 41):
        noise = random.Random(seq).randbytes(500_000)
        served.say([messages(seq, seq)[0]._replace(payload=noise)])
    with FeedClient(served.at, 20) as client:
        reading = client.read(0, 40)
        found = [next(reading).column(0)[0].as_py() for _ in range(3)]
        served.close()
        with Served(tmp_path, served.port):
            found += [batch.column(0)[0].as_py() for batch in reading]
    assert found == list(range(1, 41))


def test_another_feed_stands_in(tmp_path: Path) -> None:
    one, other = Served(tmp_path / "one"), Served(tmp_path / "other")
    one.say(messages(1, 5))
    other.say(messages(1, 7))
    with FeedClient(f"tcp://{one.at},{other.at}", 20) as client:
        assert places(client, 0, 5) == [1, 2, 3, 4, 5]
        assert places(client, 5, 7) == [6, 7], "the one that is behind is left for the other"
        other.close()
        assert client.bounds().end == 5
        one.close()


def test_a_feed_that_counts_otherwise_does_not_stand_in(tmp_path: Path) -> None:
    one, other = Served(tmp_path / "one"), Served(tmp_path / "other", incarnation="w")
    one.say(messages(1, 5))
    other.say(messages(1, 2))
    other.close()
    with Served(tmp_path / "other") as other:
        other.say(messages(1, 5))
        with FeedClient(f"{one.at},{other.at}", 20) as client:
            assert client.bounds().end == 5
            one.close()
            with pytest.raises(UnisonoError, match="other messages than the one before"):
                client.bounds()


def test_a_feed_to_which_something_was_taken_back_does_not_stand_in(tmp_path: Path) -> None:
    one, other = Served(tmp_path / "one"), Served(tmp_path / "other")
    one.say(messages(1, 20))
    other.say(messages(1, 10))
    put(other.log, other.keeper.take_back(8, 1))
    other.say(messages(9, 20))
    refused = pytest.raises(UnisonoError, match=r"other messages .* from offset 11 on")
    with other, FeedClient(f"{one.at},{other.at}", 20) as client:
        assert places(client, 0, 12) == list(range(1, 13))
        one.close()
        with refused:
            places(client, 12, 20)


def test_how_a_feed_counts_is_known_also_of_what_came_later(tmp_path: Path) -> None:
    one, other = Served(tmp_path / "one"), Served(tmp_path / "other")
    one.say(messages(1, 5))
    other.say(messages(1, 20))
    with other, FeedClient(f"{one.at},{other.at}", 20) as client:
        assert client.bounds().end == 5
        put(one.log, one.keeper.take_back(4, 1))
        one.say(messages(5, 10))
        assert places(client, 5, 12) == list(range(6, 13))
        one.close()
        with pytest.raises(UnisonoError, match="from offset 6 on"):
            places(client, 12, 20)


@pytest.mark.parametrize(
    ("ours", "end", "theirs", "their_end", "offset"),
    [
        ([("x", 0, 1)], 9, [("x", 0, 1)], 30, None),
        ([], 0, [("x", 0, 1)], 30, None),
        ([("x", 0, 1)], 9, [("y", 0, 1)], 9, 1),
        ([("x", 0, 1)], 9, [("x", 0, 1), ("y", 10, 11)], 20, None),  # one that is behind
        ([("x", 0, 1)], 10, [("x", 0, 1), ("y", 10, 11)], 20, 10),
        ([("x", 0, 1), ("y", 8, 9)], 9, [("x", 0, 1), ("y", 9, 10)], 9, 8),
        ([("y", 10, 11)], 20, [("x", 0, 1), ("y", 10, 11)], 30, None),  # one that has forgotten
        ([("y", 10, 11)], 20, [("x", 0, 1), ("y", 11, 12)], 30, 11),
        ([("y", 10, 11)], 20, [("x", 0, 1)], 5, None),
    ],
)
def test_two_countings_are_compared_as_far_as_both_have_come(
    ours: Any, end: int, theirs: Any, their_end: int, offset: int | None
) -> None:
    one = Counting(stretches_of(ours), end)
    other = Counting(stretches_of(theirs), their_end)
    assert one.diverges_at(other) == other.diverges_at(one) == offset


def test_a_feed_of_another_group_does_not_stand_in(tmp_path: Path) -> None:
    one = Served(tmp_path / "one")
    other = Served(tmp_path / "other", group="h")
    with other, FeedClient(f"{one.at},{other.at}", 20) as client:
        assert client.bounds().group == "g"
        one.close()
        with pytest.raises(UnisonoError, match="of the group 'h', the one before of 'g'"):
            client.bounds()


def test_a_missing_feed_is_reported_in_time() -> None:
    with pytest.raises(FeedGone, match=r"no feed answered at 127\.0\.0\.1:1 within 0\.5 s"):
        FeedClient("127.0.0.1:1", 0.5).bounds()


@pytest.mark.parametrize("text", ["", ":", "host:", "host:x", "host:70000", "a:1,,b:2"])
def test_a_bad_address_is_reported(text: str) -> None:
    with pytest.raises(Misuse, match="HOST:PORT"):
        FeedClient(text)


def test_rows_come_in_with_their_identity(tmp_path: Path) -> None:
    with Served(tmp_path) as served, FeedClient(served.at, 5) as client:
        client.write("q", 3, 7, 100, [b"a", b"", b"c" * 2_000_000, b"d"])
        assert [(*each[:4], len(each[4])) for each in served.taken] == [
            ("q", 3, 7, 100, 2),
            ("q", 3, 7, 102, 1),
            ("q", 3, 7, 103, 1),
        ]
        assert (
            b"".join(b"".join(each[4]) for each in served.taken) == b"a" + b"c" * 2_000_000 + b"d"
        )
        with pytest.raises(Misuse, match="partition=-1"):
            client.write("q", -1, 0, 0, [b"x"])
        with pytest.raises(Misuse, match="bad query name"):
            client.write("", 0, 0, 0, [b"x"])
        assert client.bounds().end == 0, "the connection is still good"


def raw(at: str, data: bytes) -> bytes:
    host, port = at.split(":")
    with socket.create_connection((host, int(port)), LIMIT_S) as made:
        made.settimeout(LIMIT_S)
        made.sendall(data)
        made.shutdown(socket.SHUT_WR)
        found = b""
        while part := made.recv(65_536):
            found += part
        return found


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "drop.foreign"),
        (protocol.HELLO + b"\xff" * 5, "drop.frame"),
        (protocol.HELLO + protocol.front(FeedFrameKind.REQUEST, 1 << 30), "drop.frame"),
        (protocol.HELLO + protocol.frame(FeedFrameKind.REQUEST, b"{"), "drop.json"),
        (protocol.HELLO + protocol.frame(FeedFrameKind.REQUEST, b"[1]"), "drop.json"),
        (protocol.HELLO + protocol.frame(FeedFrameKind.REQUEST, b"[" * 60_000), "drop.json"),
        (protocol.HELLO + protocol.frame(FeedFrameKind.ROWS, b"x"), "drop.kind"),
        (
            protocol.HELLO
            + protocol.json_frame(FeedFrameKind.REQUEST, do="rows")
            + protocol.json_frame(FeedFrameKind.REQUEST),
            "drop.kind",
        ),
        (protocol.HELLO[:3], "broken"),
        (protocol.HELLO + protocol.frame(FeedFrameKind.REQUEST, b"{}")[:-1], "broken"),
    ],
)
def test_hostile_bytes_are_counted_and_shut_out(tmp_path: Path, data: bytes, reason: str) -> None:
    with Served(tmp_path) as served:
        assert raw(served.at, data) == b""
        assert served.counts[reason] == 1
        with FeedClient(served.at, 5) as client:
            assert client.bounds().end == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"do": "dance"},
        {},
        {"do": "read"},
        {"do": "read", "after": "1", "upto": 2},
        {"do": "read", "after": -1, "upto": 2},
        {"do": "read", "after": 1 << 63, "upto": 2},
        {"do": "read", "after": True, "upto": 2},
    ],
)
def test_a_wrong_asking_is_refused_in_words(tmp_path: Path, fields: dict[str, object]) -> None:
    with Served(tmp_path) as served:
        answer = raw(
            served.at, protocol.HELLO + protocol.json_frame(FeedFrameKind.REQUEST, **fields)
        )
        kind, length = protocol.front_read(answer[: protocol.FRONT_BYTES])
        assert kind is FeedFrameKind.REFUSED
        assert (
            protocol.parse_json(answer[protocol.FRONT_BYTES :][:length])["why"]
            == protocol.Refusal.MISUSE
        )


def test_rows_that_are_no_arrow_are_refused_in_words(tmp_path: Path) -> None:
    ask = protocol.json_frame(
        FeedFrameKind.REQUEST, do="rows", query="q", partition=0, epoch=0, first_row=0
    )
    for body in (b"", b"nonsense", rows.encoded(rows.row(offset=1, kind="gap"))[:50]):
        with Served(tmp_path) as served:
            answer = raw(served.at, protocol.HELLO + ask + protocol.frame(FeedFrameKind.ROWS, body))
            assert b"not rows of a feed" in answer
            assert not served.taken


def test_one_reader_too_many_is_refused_as_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unisono.feed.server.READERS_COUNT_MAX", 2)
    with Served(tmp_path) as served:
        first, second = FeedClient(served.at, 5), FeedClient(served.at, 5)
        first.bounds(), second.bounds()
        with pytest.raises(FeedGone, match="too many readers"):
            FeedClient(served.at, 0.3).bounds()
        first.close()
        assert FeedClient(served.at, 5).bounds().end == 0
        second.close()


def test_who_is_turned_away_while_it_still_asks_reads_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unisono.feed.server.READERS_COUNT_MAX", 1)
    with Served(tmp_path) as served, FeedClient(served.at, 5) as client:
        client.bounds()
        host, port = served.at.split(":")
        with socket.create_connection((host, int(port)), LIMIT_S) as late:
            time.sleep(0.2)  # the server has answered and closed before the first byte comes
            late.sendall(protocol.HELLO)
            time.sleep(0.05)
            late.sendall(protocol.json_frame(FeedFrameKind.REQUEST, do="bounds"))
            assert b"too many readers" in late.recv(4096)
        with socket.create_connection((host, int(port)), LIMIT_S) as silent:
            silent.settimeout(LIMIT_S)
            while silent.recv(4096):
                pass
        assert client.bounds().end == 0
        assert served.counts["drop.busy"] == 2


def test_a_slow_reader_holds_up_nobody(tmp_path: Path) -> None:
    with Served(tmp_path) as served:
        payload = random.Random(1).randbytes(1_000_000)
        for seq in range(1, 61):
            served.say([messages(seq, seq)[0]._replace(payload=payload)])
        host, port = served.at.split(":")
        with socket.create_connection((host, int(port)), LIMIT_S) as slow:
            slow.sendall(
                protocol.HELLO
                + protocol.json_frame(FeedFrameKind.REQUEST, do="read", after=0, upto=60)
            )
            with FeedClient(served.at, 10) as client:
                assert places(client, 0, 60) == list(range(1, 61))
            assert served.counts["batches_sent"] < 120, "the slow one was not sent all"
