"""[TRA-11] The network window: who sends when it fills. And requests that nobody answers."""

from __future__ import annotations

import itertools

import pytest

from tests.transis.test_rules import Room, together
from unisono.protocols.transis.congestion import FIRST_BYTES
from unisono.protocols.transis.flow import SMALL_FLIGHTS_MAX, Flow
from unisono.protocols.transis.graph import Vertex
from unisono.protocols.transis.ordering import Ordering
from unisono.protocols.transis.repair import Repair

LARGE = 40_000
PATIENT = {"vertex_packets": 16}


def own(room: Room, name: str) -> list[Vertex]:
    """The vertices of this member that some other is not known to hold."""
    core = room.core(name)
    ordering = core.flush.ordering
    assert ordering is not None
    graph, rank = ordering.graph, core.local.rank
    found = (graph.get(rank, index) for index in range(1, graph.acks()[rank] + 1))
    return [vertex for vertex in found if vertex is not None]


def full(room: Room, name: str) -> int:
    return sum(bool(vertex.payload) for vertex in own(room, name))


def stream_unheard() -> tuple[Room, list[int]]:
    """A member that hears no acknowledgments has more to send than the window takes: the times of
    its bursts, in milliseconds, until it stops."""
    room = together("abc", **PATIENT)
    room.obey("lose 999 b > a\nlose 999 c > a")
    for _ in range(60):
        room.obey(f"shout a {LARGE}")
    times = [0] * full(room, "a")
    for now_ms in range(1, 500):
        room.obey("advance 1ms")
        times += [now_ms] * (full(room, "a") - len(times))
    return room, times


@pytest.mark.rule("TRA-11")
def test_the_delay_grows_with_the_window_up_to_silence() -> None:
    room, times = stream_unheard()
    gaps = [later - before for before, later in itertools.pairwise(times)]
    assert gaps[: len(gaps) // 3] == [0] * (len(gaps) // 3), "at first there is none"
    late = gaps[2 * len(gaps) // 3 :]
    assert late[-1] >= 12 and all(b >= a - 1 for a, b in itertools.pairwise(late))
    payload = sum(len(vertex.payload) for vertex in own(room, "a"))  # type: ignore[arg-type]
    assert FIRST_BYTES <= payload < FIRST_BYTES + 16 * 1400, "a full window is silence"
    assert times[-1] < 400
    alive = len(own(room, "a"))
    room.obey("advance 200ms")
    assert len(own(room, "a")) > alive and full(room, "a") == len(times), "but for I-am-alive"
    room.obey("heal\nadvance 2000ms")
    assert room.delivered("b") == [f"a#1:{number}" for number in range(1, 61)]


@pytest.mark.parametrize(
    ("what", "bug"),
    [("_delay_us", lambda self, fill: 0), ("_fill", lambda self, ordering: 0.0)],
)
def test_a_window_that_delays_or_stops_nobody_is_seen(
    what: str, bug: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Flow, what, bug)
    with pytest.raises(AssertionError):
        test_the_delay_grows_with_the_window_up_to_silence()


def share_of_a_late_sender() -> float:
    """Two members stream all the time; a third begins later. Its share of what is delivered."""
    room = together("abc", **PATIENT)
    start = 0
    for now_ms in range(60):
        for name in "abc" if now_ms >= 20 else "ab":
            if room.core(name).send_credit() > 3 << 20:
                room.obey("\n".join([f"shout {name} {LARGE}"] * 8))
        room.obey("advance 1ms")
        if now_ms == 30:
            start = len(room.delivered("a"))
    late = room.delivered("a")[start:]
    assert len(late) > 30
    return sum(each.startswith("c#1:") for each in late) / len(late)


@pytest.mark.rule("TRA-11")
def test_no_sender_starves() -> None:
    assert share_of_a_late_sender() > 1 / 6


def test_a_sender_that_waits_for_an_empty_window_starves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: one of the members sends only while hardly anything is under way."""
    fill = Flow._fill

    def shy(self: Flow, ordering: Ordering) -> float:
        return fill(self, ordering) * (50 if self._local.me.name == "c" else 1)

    monkeypatch.setattr(Flow, "_fill", shy)
    assert share_of_a_late_sender() < 1 / 6


def requests_without_answer() -> int:
    """A vertex is lost again and again, while others come: how often it is requested."""
    room = together("abc", "causal")
    lost = len(own(room, "a")) and own(room, "a")[-1].index + 1
    for other in "ac":
        room.obey(f"lose 9999 {other} > b vertex 0.{lost}")
    before = room.count("b", "nak")
    for _ in range(200):
        room.obey("say a word\nadvance 2ms")
    asked = room.count("b", "nak") - before
    room.obey("heal\nadvance 500ms")
    assert len(room.delivered("b")) == 200
    return asked


@pytest.mark.rule("TRA-3")
def test_requests_that_nobody_answers_are_made_less_often() -> None:
    assert 3 <= requests_without_answer() <= 12


def test_requests_that_any_vertex_hurries_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def hurry(self: Repair, sender: int, index: int) -> None:
        self._tries = 0

    monkeypatch.setattr(Repair, "came", hurry)
    assert requests_without_answer() > 40


def test_acknowledgments_free_the_next_burst_at_once() -> None:
    """Small bursts are under way, and one waits for them to be acknowledged."""
    room = together("abc")
    for at in range(SMALL_FLIGHTS_MAX + 1):
        room.obey(f"say a word{at}\nadvance 0ms")
    assert full(room, "a") == SMALL_FLIGHTS_MAX
    room.obey("advance 4ms")
    assert room.delivered("b")[-1] == f"a#1:{SMALL_FLIGHTS_MAX + 1}"


def test_the_token_rests_while_nobody_may_operate() -> None:
    room = together("abcd", token=1, sites=4)
    room.obey("split a b | c d\nadvance 3000ms\nsay a waits\nadvance 100ms")
    before = room.count("a", "out.vertex")
    room.obey("advance 1000ms")
    assert room.count("a", "out.vertex") - before < 50
