"""The tap is a core like the one it wraps, and writes what passes its door."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import pytest

from unisono.core import (
    EVERYONE,
    Arm,
    Cause,
    Core,
    Deliver,
    Depart,
    Effect,
    Event,
    Expired,
    Fail,
    Install,
    Join,
    Leave,
    Multicast,
    Received,
    Restart,
    Send,
    Stabilize,
)
from unisono.model import (
    Address,
    Buffer,
    Burst,
    Member,
    Message,
    Resilient,
    Service,
    View,
    changes_of,
)
from unisono.trace.history import cut_of
from unisono.trace.record import LEFT, PROBE, Row, digest_of
from unisono.trace.tap import Tap

A = Member("a", Address("10.0.0.1", 7000), 1)
B = Member("b b%", Address("::1", 7001), 2)


class Timer(Enum):
    ACK = 1


class Listed:
    def __init__(self) -> None:
        self.rows: list[Row] = []

    def write(self, row: Row) -> None:
        self.rows.append(row)

    def close(self) -> None:
        pass


class Scripted:
    """A core that answers with what it was told to answer."""

    def __init__(self) -> None:
        self.me = A
        self.counts: dict[str, int] = {}
        self.arrows: dict[str, int] = {}
        self.answer: list[Effect] = []
        self.marks: dict[Member, int] = {}

    def step(self, now_us: int, event: Event) -> list[Effect]:
        if isinstance(event, Leave):
            raise ValueError("not now")
        if isinstance(event, Received):
            self.counts["drop.corrupt"] = self.counts.get("drop.corrupt", 0) + 2
            self.counts["in.data"] = 5
            self.counts["nak"] = 1
            self.arrows["IDLE --x--> BUSY"] = 1
        return self.answer

    def send_credit(self) -> int:
        return 77

    def held(self) -> Mapping[Member, int]:
        return self.marks

    def transition_counts(self) -> Mapping[str, int]:
        return self.arrows


def words_of(packet: Buffer) -> str:
    """Only the long ones have a name."""
    return f"data {bytes(packet).decode()}" if len(packet) > 1 else ""


def tapped(detail: bool = False) -> tuple[Tap, Scripted, Listed]:
    core, sink = Scripted(), Listed()
    return Tap(core, "rmcast", "g", sink, detail, words_of), core, sink


def test_a_tap_is_a_core() -> None:
    tap, core, _ = tapped()
    as_core: Core = tap
    assert (as_core.me, as_core.send_credit(), as_core.transition_counts()) == (A, 77, core.arrows)
    assert as_core.counts is core.counts
    core.answer = [Arm("x", 1)]
    assert tap.step(1, Join()) is core.answer


def test_an_effect_that_is_not_performed_leaves_no_row() -> None:
    tap, core, sink = tapped()
    core.answer = [Install(View((A,), "v1")), Deliver([Message(A, b"hi", 1)])]
    view, _ = tap.take(3, Multicast([b"hi"]))
    assert [row.kind for row in sink.rows] == ["send"]
    tap.record(3, view)
    assert [row.kind for row in sink.rows] == ["send", "view"]


def test_a_life_in_rows() -> None:
    tap, core, sink = tapped()
    tap.step(1, Restart())
    tap.step(2, Join())
    core.answer = [
        Install(View((A, B), "v1", cut=((B, 4), (A, 17)), seq=9)),
        Deliver([Message(B, b"hi", 5, seq=3, service=Service.SAFE)]),
        Send(EVERYONE, [b"x"]),
    ]
    tap.step(3, Multicast([b"one", b"two"]))
    core.answer = [Stabilize([Message(A, b"one", 1, service=Resilient(3))])]
    tap.send_detail = PROBE
    tap.step(4, Multicast([b"three"], Resilient(Resilient.MAJORITY)))
    core.answer = [Depart("v2")]
    tap.step(5, Expired(Timer.ACK))
    rows = sink.rows
    assert [row.step for row in rows] == list(range(len(rows)))
    assert [(row.kind, row.t_us) for row in rows] == [
        ("restart", 1),
        ("join", 2),
        ("send", 3),
        ("send", 3),
        ("view", 3),
        ("deliver", 3),
        ("send", 4),
        ("stable", 4),
        ("leave", 5),
    ]
    assert all(row[:4] == ("rmcast", "g", "a", 1) for row in rows)
    assert [row.view for row in rows] == [""] * 4 + ["v1"] * 5
    one, _, view, hi, three, stable, leave = rows[2:]
    assert (one.sender, one.sender_incarnation, one.number) == ("a", 1, 1)
    assert (one.service, one.size, one.digest, one.detail) == ("causal", 3, digest_of(b"one"), None)
    assert (view.members, view.seq) == (("a#1", "b b%#2"), 9)
    assert view.detail == "a#1:17 b%20b%25#2:4"
    assert cut_of(view.detail) == {"a#1": 17, "b b%#2": 4}
    assert (hi.sender, hi.sender_incarnation, hi.number, hi.seq) == ("b b%", 2, 5, 3)
    assert (hi.service, hi.size, hi.digest) == ("safe", 2, digest_of(b"hi"))
    assert (three.number, three.service, three.detail) == (3, "resilient(majority)", PROBE)
    assert (stable.number, stable.service) == (1, "resilient(3)")
    assert (leave.detail, leave.changes) == (LEFT, ("view v2",))


def test_a_stop_has_its_reason_and_the_world_its_notes() -> None:
    tap, core, sink = tapped()
    core.answer = [Install(View((A,), "v1", detail="alone")), Fail("suspected by b")]
    tap.step(1, Join())
    tap.note(2, "crash", "power")
    assert [(row.kind, row.detail) for row in sink.rows] == [
        ("join", None),
        ("view", "alone"),
        ("leave", "suspected by b"),
        ("crash", "power"),
    ]
    assert cut_of(sink.rows[1].detail) == {}


def test_what_a_step_was_to_deliver_counts_as_received_at_a_crash_amid_it() -> None:
    tap, core, sink = tapped()
    core.answer = [Install(View((A, B), "1"))]
    tap.step(1, Join())
    core.answer = [Deliver([Message(B, b"x", 1), Message(B, b"y", 2)])]
    tap.take(2, Restart())
    tap.note(2, "crash")
    told = [(row.kind, row.sender, row.number) for row in sink.rows[3:]]
    assert told == [("receipt", "b b%", 2), ("crash", None, None)]


def test_what_was_here_is_told_when_a_view_ends() -> None:
    tap, core, sink = tapped()
    core.marks = {B: 3, A: 0}
    gone = changes_of(A, joined=(A,), failed=(B,), founded=True)
    core.answer = [
        Install(View((A, B), "1", joined=(A, B))),
        Install(View((A,), "1+", transitional=True)),
        Install(View((A,), "2", left=(B,), stayed=(A,), changes=gone)),
    ]
    tap.step(1, Join())
    core.answer = [Stabilize([Message(B, b"x", 1)], (A, B)), Fail("alone", Cause.TOO_FEW)]
    core.marks = {B: 4}
    tap.step(2, Restart())
    tap.note(3, "crash")
    told = [(row.kind, row.view, row.sender, row.number) for row in sink.rows[1:]]
    assert told == [
        ("view", "1", None, None),
        ("transitional", "1+", None, None),
        ("receipt", "1+", "b b%", 3),
        ("view", "2", None, None),
        ("restart", "2", None, None),
        ("stable", "2", "b b%", 1),
        ("receipt", "2", "b b%", 4),
        ("leave", "2", None, None),
        ("crash", "2", None, None),
    ], "once a view, and not after the end"
    view, stable, leave = sink.rows[4], sink.rows[6], sink.rows[8]
    assert (view.joined, view.left, view.stayed) == ((), ("b b%#2",), ("a#1",))
    assert view.changes == ("founded", "joined a#1", "failed b b%#2")
    assert stable.members == ("a#1", "b b%#2")
    assert leave.changes == ("too_few",)


def test_a_step_that_raises_leaves_no_row() -> None:
    tap, _, sink = tapped()
    with pytest.raises(ValueError, match="not now"):
        tap.step(1, Leave())
    assert sink.rows == []


def test_work_is_written_only_when_asked_for() -> None:
    for detail in (False, True):
        tap, core, sink = tapped(detail)
        core.answer = [
            Send((B.address, A.address), [b"abc", b"de"]),
            Send(EVERYONE, [b"x"]),
            Install(View((A,), "v1")),
        ]
        tap.step(1, Received(B.address, Burst(memoryview(b"12345"), 2)))
        tap.step(2, Expired((Timer.ACK, 3)))
        kinds = [(r.kind, r.peer, r.size, r.number, r.detail) for r in sink.rows]
        sends = [
            ("packet_out", "[::1]:7001", 3, None, "data abc"),
            ("packet_out", "[::1]:7001", 2, None, "data de"),
            ("packet_out", "10.0.0.1:7000", 3, None, "data abc"),
            ("packet_out", "10.0.0.1:7000", 2, None, "data de"),
            ("packet_out", "*", 1, None, None),
        ]
        view = ("view", None, None, None, None)
        if not detail:
            assert kinds == [view, view]
            continue
        assert kinds == [
            ("packet_in", "[::1]:7001", 2, None, "data 12"),
            ("packet_in", "[::1]:7001", 2, None, "data 34"),
            ("packet_in", "[::1]:7001", 1, None, None),
            ("drop", None, None, 2, "corrupt"),
            ("nak", None, None, 1, None),
            ("arrow", None, None, 1, "IDLE --x--> BUSY"),
            *sends,
            view,
            ("timer", None, None, None, "ACK 3"),
            *sends,
            view,
        ]


def test_an_arrival_has_the_digest_of_its_sending() -> None:
    tap, core, sink = tapped(detail=True)
    core.answer = [Send((B.address,), [b"abc", b"de"])]
    tap.step(1, Received(B.address, Burst(memoryview(b"abcde"), 3)))
    packets = [row for row in sink.rows if row.kind.startswith("packet_")]
    assert [(row.kind, row.digest) for row in packets] == [
        ("packet_in", digest_of(b"abc")),
        ("packet_in", digest_of(b"de")),
        ("packet_out", digest_of(b"abc")),
        ("packet_out", digest_of(b"de")),
    ]


def test_a_join_tells_where_it_is() -> None:
    tap, _, sink = tapped()
    tap.step(1, Join())
    assert [(row.kind, row.peer) for row in sink.rows] == [("join", "10.0.0.1:7000")]


def test_a_tap_without_words_writes_packets_all_the_same() -> None:
    core, sink = Scripted(), Listed()
    core.answer = [Send(EVERYONE, [b"abc"])]
    Tap(core, "rmcast", "g", sink, detail=True).step(1, Join())
    row = sink.rows[-1]
    assert (row.kind, row.peer, row.digest, row.detail) == (
        "packet_out",
        "*",
        digest_of(b"abc"),
        None,
    )
