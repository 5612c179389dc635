"""The SVG, parsed: what happened is there, and is distinguishable."""

from __future__ import annotations

import re
import time
from random import Random

import pytest

from tests.draw.histories import (
    SVG,
    Tale,
    flights,
    groups,
    normal,
    overlaps,
    parsed,
    repaired,
    shapes,
    texts,
    told,
)
from tests.harness import output_of
from unisono.draw import Drawing, DrawRequest, draw
from unisono.errors import Misuse
from unisono.sim import Plan, run
from unisono.trace.history import History, histories_of
from unisono.trace.record import Row


class Kept:
    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    def write(self, row: Row) -> None:
        self.rows.append(row)

    def close(self) -> None:
        pass


def simulated(faults: str, seed: int = 1, nodes: int = 3, detail: bool = True) -> History:
    rows: list[Row] = []
    plan = Plan(
        protocol="rmcast",
        nodes=nodes,
        messages=6,
        faults=faults,
        seed=seed,
        detail=detail,
        sink=lambda _: Kept(rows),
    )
    run(plan, time.perf_counter)
    (history,) = histories_of("sim", rows)
    return history


# -- what is there ---------------------------------------------------------------------------------


def test_a_multicast_fans_out() -> None:
    drawing = draw(normal().history)
    (packet,) = flights(drawing.svg, "data")
    assert len(shapes(packet, "tip")) == 2
    assert not shapes(packet, "cross")
    assert texts(groups(drawing.svg, "label")) == ["data 1.0"]
    assert (drawing.packets, drawing.lost, drawing.repairs, drawing.lives) == (1, 0, 0, 3)


def test_time_runs_downward() -> None:
    (packet,) = flights(draw(normal().history).svg, "data")
    for line in packet.iter(f"{SVG}path"):
        if line.get("class") is None:
            _, y0, _, y1 = map(float, re.findall(r"-?[\d.]+", line.get("d", "")))
            assert y1 > y0 + 10


def test_a_tooltip_has_all_details_of_a_packet() -> None:
    (packet,) = flights(draw(normal().history).svg, "data")
    assert told(packet).splitlines() == [
        "data 1.0: 1 of 100 bytes from a#1, 1.000 ms",
        "arrived at b#1, 1.400 ms",
        "arrived at c#1, 1.600 ms",
    ]


def test_views_sends_and_deliveries_are_marked() -> None:
    svg = draw(normal().history).svg
    assert texts(groups(svg, "view")) == ["{a b c}"] * 3
    assert texts(groups(svg, "mark", "send")) == ["send 1"]
    assert texts(groups(svg, "mark", "deliver")) == ["a.1"] * 3
    assert texts(groups(svg, "mark", "join")) == ["joins"] * 3


def test_the_ends_of_lives_are_marked() -> None:
    tale = Tale("abcd").left("a", 900).left("b", 1000, "suspected by c").row("c", 1100, "crash")
    tale.join("c#2", 3000).said("d", 9000, 1)
    svg = draw(tale.history).svg
    assert texts(groups(svg, "mark", "leave")) == ["leaves"]
    assert texts(groups(svg, "mark", "stop")) == ["stops: suspected by c"]
    assert texts(groups(svg, "mark", "crash")) == ["crashes"]
    assert texts(groups(svg, "mark", "join"))[-1] == "c′ joins again"
    assert len(groups(svg, "line")) == 5


def test_rows_after_an_incarnation_s_end_are_not_drawn() -> None:
    tale = Tale("ab").row("b", 900, "crash").said("b", 1000, 1)
    assert not groups(draw(tale.history).svg, "mark", "send")


def test_a_packet_without_receivers_is_drawn() -> None:
    svg = draw(Tale("a").out("a", 1000, "seek").said("a", 9000, 1).history).svg
    (packet,) = flights(svg, "join")
    assert shapes(packet, "dash") and not shapes(packet, "tip")


def test_a_killed_process_is_not_seen_again() -> None:
    tale = Tale("ab").said("b", 500, 1).join("b#2", 9000)
    assert texts(groups(draw(tale.history).svg, "mark", "vanish")) == ["vanishes"]


def test_a_sequence_number_is_shown() -> None:
    tale = Tale("ab")
    for number in (1, 2):
        tale.delivered("b", 1000, "a", number, seq=number + 4)
    assert texts(groups(draw(tale.history).svg, "deliver")) == ["a.1–2 #5–6"]


def test_a_lost_packet_ends_in_a_cross() -> None:
    drawing = draw(repaired().history)
    assert drawing.lost == 1
    (lost,) = flights(drawing.svg, "lost")
    assert len(shapes(lost, "cross")) == 1
    assert len(shapes(lost, "dash")) == 1, "the way to c"
    assert len(shapes(lost, "tip")) == 1, "the way to b"
    assert "to c#1: lost" in told(lost)
    others = [
        each for each in flights(drawing.svg) if each is not lost and "lost" not in told(each)
    ]
    assert others and not any(shapes(each, "cross") for each in others)


def test_a_repair_and_what_asked_for_it_are_marked() -> None:
    drawing = draw(repaired().history)
    assert drawing.repairs == 1
    assert [told(each).split(":")[0] for each in flights(drawing.svg, "repair")] == ["data 1.1"]
    assert [told(each).split(":")[0] for each in flights(drawing.svg, "nak")] == ["nak 1.1"]


def test_every_colour_and_mark_is_in_the_legend_and_no_other() -> None:
    svg = draw(repaired().history).svg
    (legend,) = [e for e in parsed(svg).iter(f"{SVG}g") if e.get("class") == "legend"]
    assert texts(legend) == [
        "data",
        "data sent again",
        "retransmission request",
        "lost",
        "joins",
        "delivered to the application",
        "time shortened",
    ]


def test_without_packets_messages_are_drawn_and_noted() -> None:
    tale = Tale().said("a", 1000, 1).delivered("b", 1500, "a", 1).delivered("c", 1900, "a", 1)
    drawing = draw(tale.history)
    assert not drawing.traced
    (message,) = flights(drawing.svg, "data")
    assert len(shapes(message, "tip")) == 2
    assert any("not traced" in note for note in drawing.notes)
    assert any("not traced" in text for text in texts(parsed(drawing.svg)))


# -- what is one to the eye ------------------------------------------------------------------------


def burst(lost: int | None = None) -> Tale:
    tale = Tale("ab")
    for place in range(10):
        tale.out("a", 1000, f"data 5.{place}")
        if place != lost:
            tale.heard("b", 1400, f"data 5.{place}", "a")
    return tale.said("a", 90_000, 1)


def test_packets_of_a_burst_are_one_arrow_with_one_label() -> None:
    drawing = draw(burst().history)
    assert drawing.packets == 10
    assert len(flights(drawing.svg, "data")) == 1
    assert texts(groups(drawing.svg, "label")) == ["data 5.0–9"]


def test_a_packet_with_another_fate_is_drawn_apart() -> None:
    drawing = draw(burst(lost=4).history)
    assert sorted(texts(groups(drawing.svg, "label"))) == ["data 5.0–3, 5–9", "data 5.4"]
    assert len(flights(drawing.svg, "lost")) == 1


def test_a_delivery_is_not_drawn_before_its_packet_came() -> None:
    tale = Tale("ab").out("a", 1000, "data 1").out("a", 1000, "data 2")
    tale.heard("b", 1400, "data 1", "a").delivered("b", 1400, "a", 1)
    tale.heard("b", 1410, "data 2", "a").delivered("b", 1410, "a", 2)
    svg = draw(tale.history).svg
    assert texts(groups(svg, "deliver")) == ["a.1", "a.2"]
    (packet,) = flights(svg, "data")
    assert len(shapes(packet, "tip")) == 2, "the first arrival and the last"


def test_idle_time_is_cut_short() -> None:
    tale = normal().said("b", 50_000_000, 1)
    svg = draw(tale.history).svg
    # Between the views and the first message, too.
    assert [texts(each) for each in groups(svg, "break")][-1] == ["+50.00 s"]
    assert float(parsed(svg).get("height", 0)) < 700


def test_quiet_packets_far_from_anything_else_are_counted_not_drawn() -> None:
    tale = normal()
    for t_us in range(100_000, 1_000_000, 10_000):
        tale.out("a", t_us, "beat").heard("b", t_us + 400, "beat", "a")
    tale.out("a", 1500, "beat", more="x").said("b", 2_000_000, 1)
    drawing = draw(tale.history)
    assert drawing.left_out == {"quiet": 90}
    assert len(flights(drawing.svg, "quiet")) == 1, "the one amid the message"
    assert draw(tale.history, DrawRequest(every=True)).packets == 92


def test_quiet_packets_are_drawn_where_there_is_nothing_else() -> None:
    tale = Tale("ab").out("a", 100_000, "beat").heard("b", 100_400, "beat", "a")
    drawing = draw(tale.history, DrawRequest(from_us=50_000))
    assert (drawing.packets, drawing.left_out) == (1, {})


# -- what is asked for -----------------------------------------------------------------------------


def test_nodes_are_columns_in_the_order_asked_for() -> None:
    svg = draw(normal().history, DrawRequest(nodes=("c", "a"))).svg
    names = [e for e in parsed(svg).iter(f"{SVG}text") if e.get("class") == "name"]
    assert [e.text for e in sorted(names, key=lambda e: float(e.get("x", 0)))] == ["c", "a"]
    (packet,) = flights(svg, "data")
    assert len(shapes(packet, "tip")) == 1


def test_packets_of_other_nodes_are_counted() -> None:
    drawing = draw(repaired().history, DrawRequest(nodes=("b", "c")))
    assert drawing.left_out == {"other nodes": 4}
    assert drawing.packets == 0


def test_kinds_that_are_not_wanted_are_left_out() -> None:
    drawing = draw(repaired().history, DrawRequest(without=("nak",)))
    assert (drawing.packets, drawing.left_out) == (3, {"unwanted": 1})


def test_a_stretch_of_time_is_drawn_alone() -> None:
    tale = repaired()
    drawing = draw(tale.history, DrawRequest(from_us=8000, to_us=9600))
    assert [told(each).split(":")[0] for each in flights(drawing.svg)] == ["nak 1.1", "data 1.1"]
    assert (drawing.from_us, drawing.to_us) == (8000, 9600)
    before = draw(tale.history, DrawRequest(to_us=5000))
    assert [told(each).split(":")[0] for each in flights(before.svg)] == ["data 1.0", "data 1.1"]


def test_the_view_before_the_window_is_at_the_top() -> None:
    svg = draw(normal().history, DrawRequest(from_us=500)).svg
    assert not groups(svg, "mark", "view")
    assert texts(parsed(svg)).count("{a b c}") == 3


def test_a_packet_under_way_at_the_beginning_is_seen_to_arrive() -> None:
    svg = draw(normal().history, DrawRequest(from_us=1200)).svg
    (packet,) = flights(svg, "data")
    assert len(shapes(packet, "tip")) == 2
    assert not groups(svg, "label")


def test_no_more_packets_are_drawn_than_asked_for() -> None:
    tale = Tale("ab")
    for place in range(100):
        tale.out("a", 1000 * place, f"data {2 * place}").heard(
            "b", 1000 * place + 300, f"data {2 * place}", "a"
        )
    drawing = draw(tale.history, DrawRequest(packets_max=7))
    assert drawing.packets == 7
    assert drawing.left_out == {"beyond the bound": 93}
    assert any(
        "93 of 100 packets and 0 marks come later; at most 7 packets" in note
        for note in drawing.notes
    )
    assert any("93 of 100" in text for text in texts(parsed(drawing.svg)))
    assert draw(tale.history, DrawRequest(packets_max=100)).left_out == {}


def test_where_all_happens_at_once_the_first_are_drawn() -> None:
    tale = Tale("ab")
    for place in range(20):
        tale.out("a", 0, f"data {3 * place}")
    assert draw(tale.history, DrawRequest(packets_max=7)).packets == 7


def test_marks_are_bounded_too() -> None:
    tale = Tale("ab")
    for number in range(1, 200):
        tale.delivered("b", 10_000 * number, "a", 2 * number)
    drawing = draw(tale.history, DrawRequest(packets_max=10))
    assert len(groups(drawing.svg, "mark")) == 40
    assert any("161 marks come later" in note for note in drawing.notes)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (DrawRequest(nodes=("a", "z")), "it has a, b, c"),
        (DrawRequest(nodes=("a", "a")), "named twice"),
        (DrawRequest(from_us=90_000), "the run lasts 1.6 ms"),
        (DrawRequest(from_us=900, to_us=800), "earlier time first"),
    ],
)
def test_what_cannot_be_drawn_is_refused(ask: DrawRequest, words: str) -> None:
    with pytest.raises(Misuse, match=words):
        draw(normal().history, ask)


# -- whatever the trace ----------------------------------------------------------------------------


@pytest.mark.parametrize(("faults", "seed"), [("none", 1), ("loss", 1), ("crash", 1), ("mild", 3)])
@pytest.mark.parametrize("detail", [True, False])
def test_no_text_overlaps_another(faults: str, seed: int, detail: bool) -> None:
    history = simulated(faults, seed, detail=detail)
    assert not overlaps(draw(history).svg)


def test_long_texts_of_neighbours_do_not_meet() -> None:
    tale = Tale().out("b", 1000, "request something with a rather long name", "c")
    tale.out("c", 1000, "grant everything with a rather long name", "b")
    svg = draw(tale.history).svg
    assert len(groups(svg, "label")) == 2
    assert not overlaps(svg)


def test_texts_on_one_another_would_be_seen() -> None:
    svg = draw(normal().history).svg
    assert not overlaps(svg)
    assert overlaps(re.sub(r'<text x="[^"]*" y="[^"]*"', '<text x="99" y="50"', svg))


def test_the_same_history_makes_the_same_bytes() -> None:
    history = simulated("mild", 3)
    svg = draw(history).svg
    rows = list(history.rows)
    Random(1).shuffle(rows)
    (again,) = histories_of("sim", rows)
    assert draw(again).svg == svg


def test_the_bytes_do_not_hang_on_the_hash_seed() -> None:
    program = (
        "from tests.draw.test_drawing import simulated\n"
        "from unisono.draw import draw\n"
        "import hashlib\n"
        "print(hashlib.sha256(draw(simulated('mild', 3)).svg.encode()).hexdigest())"
    )
    assert len({output_of("-c", program, PYTHONHASHSEED=seed) for seed in "12"}) == 1


def test_hostile_labels_are_escaped() -> None:
    bad = "<script>&\"'\x00\x1b]]>"
    tale = Tale("ab").out("a", 1000, f"data {bad}").left("b", 2000, bad + "\ud800")
    tale.row(bad, 3000, "join", peer=bad).view(bad, 3000, f"{bad}#1")
    svg = draw(tale.history).svg
    root = parsed(svg.encode().decode())
    assert not list(root.iter(f"{SVG}script"))
    assert any("<script>" in text for text in texts(root))


def test_a_drawing_needs_nothing_from_outside() -> None:
    svg = draw(repaired().history).svg
    assert not re.search(r"<script|<image|@import|url\(|href|javascript|<foreignObject", svg)
    assert re.findall(r"https?://[^\"]*", svg) == ["http://www.w3.org/2000/svg"]
    assert "prefers-color-scheme: dark" in svg


@pytest.mark.parametrize("size", [1, 2])
def test_the_smallest_histories_can_be_drawn(size: int) -> None:
    tale = Tale("a")
    if size == 2:
        tale.out("a", 0, "")
    svg = draw(tale.history).svg
    assert texts(groups(svg, "mark", "join")) == ["joins"]


A4_PX = (794, 1123)
"""At 96 to the inch."""


def size_of(drawing: Drawing) -> tuple[float, float]:
    width, height = re.findall(r'(?:width|height)="([0-9.]+)"', drawing.svg)[:2]
    return float(width), float(height)


def test_one_message_among_three_members_fits_a_page() -> None:
    plan = Plan(protocol="ring", nodes=3, messages=6, faults="none", seed=1, detail=True)
    history = run(plan).history
    assert history is not None
    whole, every = draw(history), draw(history, DrawRequest(every=True))
    assert size_of(whole)[1] < size_of(every)[1] / 2, "idle rounds of the token are folded"
    sender = next(row for row in history.rows if row.kind == "send")
    around = draw(history, DrawRequest(message=f"{sender.sender}:{sender.number}"))
    width, height = size_of(around)
    assert width <= A4_PX[0] and height <= A4_PX[1]
    assert around.packets
    assert around.from_us <= sender.t_us - history.rows[0].t_us <= around.to_us
    with pytest.raises(Misuse, match="no message 'x:1' in this trace"):
        draw(history, DrawRequest(message="x:1"))
