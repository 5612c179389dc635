"""The causal graph of a trace: what vertices acknowledge, and in which order they are delivered."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from random import Random

import pytest

from tests.draw.histories import Tale, overlaps, parsed, texts
from tests.draw.test_command import draw, written
from unisono.draw import DrawRequest, draw_graph
from unisono.draw.causal import DrawnComponent, causal_story_of
from unisono.errors import Misuse


def burst(rank: int, number: int, *acks: int, messages: str = "", view: str = "9f") -> str:
    after = " ".join(map(str, acks))
    with_messages = f" with {messages}" if messages else ""
    return f"vertex {rank}.{number} in {view} after {after}{with_messages}"


def answered() -> Tale:
    """a sends, b answers, c acknowledges both; what is empty and acknowledges nothing new comes
    again and again."""
    tale = Tale()
    for name in "abc":
        tale.view(name, 500, "a b c", "7-9f")
    tale.out("a", 1000, burst(0, 1, 0, 0, 0, messages="1-2"))
    tale.out("b", 2000, burst(1, 1, 1, 0, 0, messages="1"))
    tale.out("b", 2400, burst(0, 1, 0, 0, 0, messages="1-2"))
    tale.out("c", 3000, burst(2, 1, 1, 1, 0))
    tale.out("c", 4000, burst(2, 2, 1, 1, 1))
    tale.out("a", 4100, burst(0, 2, 1, 1, 2))
    for name in "abc":
        for by, number in (("a", 1), ("a", 2), ("b", 1)):
            tale.delivered(name, 5000, by, number)
    return tale


def graph(tale: Tale, **request: object) -> DrawnComponent:
    story = causal_story_of(tale.history, DrawRequest(**request))  # type: ignore[arg-type]
    (component,) = story.components
    return component


def test_a_vertex_follows_directly_what_no_other_tells() -> None:
    found = graph(answered())
    assert found.edges == {(0, 1): [], (1, 1): [(0, 1)], (2, 1): [(1, 1)], (0, 2): [(2, 1)]}
    assert found.order == {(0, 1): 1, (1, 1): 2}
    assert found.levels == {(0, 1): 0, (1, 1): 1, (2, 1): 2, (0, 2): 3}


def test_with_all_every_empty_vertex_is_drawn() -> None:
    assert graph(answered(), every=True).edges[0, 2] == [(2, 2)]


def test_it_is_drawn_and_written() -> None:
    drawing = draw_graph(answered().history)
    shown = texts(parsed(drawing.svg))
    assert {"a", "b", "c", "1–2", "configuration 7-9f"} <= {*shown}
    assert not overlaps(drawing.svg)
    assert drawing.text.splitlines()[:4] == [
        "7-9f: a#1 b#1 c#1",
        "     1  a.1 (1–2)",
        "     2  b.1 (1)               after a.1",
        "        c.1                   after b.1",
    ]


def test_damaged_labels_are_left_out() -> None:
    tale = answered()
    tale.out("c", 6000, burst(7, 1, 1, 0, 0)).out("c", 6000, burst(2, 3, 1, 1, 9))
    tale.out("c", 6000, "vertex 2.4").out("c", 6000, burst(2, 3, 1, 1) + " x")
    assert len(graph(tale).vertices) == 4


def test_a_trace_without_acknowledgments_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="transis that was written with --detail"):
        draw_graph(Tale().said("a", 1000, 1).history)
    traces = written(tmp_path / "t", answered())
    assert draw(str(traces), "--graph", "--out", str(tmp_path / "x.txt")).returncode == 0
    assert (tmp_path / "x.txt").read_text() == draw_graph(answered().history).text
    found = draw(str(traces), "--graph", "--out", str(tmp_path / "x.svg"), "--json")
    assert '"vertices": 4' in found.stdout


def gossip(roll: Random, size: int, count: int) -> Iterator[tuple[int, int, list[int]]]:
    """Vertices of members that hear each other now and then: rank, number, acknowledgments."""
    known = [[0] * size for _ in range(size)]
    for _ in range(count):
        rank, other = roll.randrange(size), roll.randrange(size)
        known[rank] = list(map(max, known[rank], known[other]))
        yield rank, known[rank][rank] + 1, list(known[rank])
        known[rank][rank] += 1


@pytest.mark.parametrize("seed", range(20))
def test_the_edges_are_those_of_the_slow_twin(seed: int) -> None:
    """The least relation of which the acknowledgments are the closure."""
    tale = Tale()
    past: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for at, (rank, number, acks) in enumerate(gossip(Random(seed), 4, 24)):
        tale.out("abcd"[rank], 1000 + at, burst(rank, number, *acks, messages=str(number)))
        past[rank, number] = {(each, n) for each, ack in enumerate(acks) for n in range(1, ack + 1)}
    found = graph(tale, every=True)
    for place, before in past.items():
        direct = {each for each in before if not any(each in past[other] for other in before)}
        assert set(found.edges[place]) == direct
    levels = found.levels
    assert all(levels[one] < levels[two] for one, two in combinations(past, 2) if one in past[two])
