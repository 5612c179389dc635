"""The causal graph: what enters when, what is known to be lost, what all hold, what is refused."""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.transis.twins import SlowGraph
from unisono.errors import BadPacket
from unisono.protocols.transis.graph import CausalGraph, Vertex

A, B, C, D = range(4)


def keys(vertices: list[Vertex]) -> list[tuple[int, int]]:
    return [(vertex.sender, vertex.index) for vertex in vertices]


@pytest.mark.rule("TRA-1")
@pytest.mark.rule("TRA-6")
def test_an_answer_enters_behind_what_it_answers() -> None:
    a, b, c = (CausalGraph(3, me) for me in (A, B, C))
    question = a.append("question")
    b.add(question)
    answer = b.append("answer")
    assert answer.acks == (1, 0, 0)
    assert c.add(answer) == []
    assert c.add(question) == [question, answer]
    assert c.append().acks == (1, 1, 0)


@pytest.mark.rule("TRA-2")
def test_a_lost_vertex_is_known_from_who_acknowledges_it() -> None:
    """[TRA §3] A, B and C send; D misses A's, and finds out as soon as B sends."""
    a, b, c, d = (CausalGraph(4, me) for me in (A, B, C, D))
    lost = a.append("lost")
    b.add(lost)
    assert not d.has_missing()
    heard = b.append("heard")
    d.add(heard)
    assert d.missing(8) == [(A, 1, 1)]
    # [TRA-3] Anyone who has it may answer.
    c.add(lost)
    again = c.get(A, 1)
    assert again is not None
    assert d.add(again) == [lost, heard]
    assert not d.has_missing()


def test_a_gap_of_the_sender_is_missing_too() -> None:
    a, b = CausalGraph(2, A), CausalGraph(2, B)
    sent = [a.append(number) for number in range(6)]
    for at in (0, 2, 5):
        b.add(sent[at])
    assert b.missing(8) == [(A, 2, 2), (A, 4, 5)]
    assert b.missing(1) == [(A, 2, 2)]
    assert b.add(sent[2]) == []
    assert keys(b.add(sent[1])) == [(A, 2), (A, 3)]


@pytest.mark.rule("TRA-8")
@pytest.mark.rule("TRA-11")
def test_what_all_hold_is_known_and_forgotten() -> None:
    a, b, c = (CausalGraph(3, me) for me in (A, B, C))
    vertex = a.append("m")
    b.add(vertex)
    c.add(vertex)
    ack = b.append()
    assert keys(a.add(ack)) == [(B, 1)]
    assert a.received_by_all() == (0, 0, 0)
    assert a.received_by([A, B]) == (1, 1, 0)
    assert a.window() == 2
    c.add(ack)
    a.add(c.append())
    assert a.received_by_all() == (1, 1, 0)
    assert a.window() == 1
    assert a.forget() == [vertex, ack]
    assert a.get(A, 1) is None and a.get(C, 1) is not None
    assert a.add(vertex) == []


@pytest.mark.rule("TRA-13")
def test_the_survivors_of_a_configuration_hold_the_same() -> None:
    """D is lost. Its first vertex reached B alone; its second reached C alone, and follows one of A
    that nobody else has, for A is lost too."""
    b, c, d = (CausalGraph(4, me) for me in (B, C, D))
    unknown = Vertex(A, 1, (0, 0, 0, 0), "A's last")
    first = d.append("first")
    d.add(unknown)
    second = d.append("second")
    b.add(first)
    c.add(first)
    c.add(second)
    mine = b.append("mine")
    told = [b.close(), c.close()]
    assert told == [(0, 1, 0, 1), (0, 0, 0, 2)]
    upto = tuple(map(max, *told))
    for graph in (b, c):
        graph.limit(upto)
    with pytest.raises(BadPacket, match="closed"):
        c.add(unknown)
    assert b.missing(8) == [(D, 2, 2)] and c.missing(8) == [(B, 1, 1)]
    assert not b.is_complete()
    b.add(second)
    c.add(mine)
    assert b.is_complete() and c.is_complete()
    # D's second is discarded by both.
    assert b.acks() == c.acks() == (0, 1, 0, 1)


def test_what_a_limit_cuts_off_may_come_back_with_the_next() -> None:
    a, b, c = (CausalGraph(3, me) for me in (A, B, C))
    sent = [a.append(number) for number in range(3)]
    for each in sent:
        b.add(each)
    follows = b.append("follows")
    c.add(sent[2])
    c.add(follows)
    assert c.close() == (0, 1, 0)
    c.limit((1, 1, 0))
    c.limit((3, 1, 0))
    assert c.missing(8) == [(A, 1, 3)]
    entered = [vertex for each in sent for vertex in c.add(each)]
    assert entered == [*sent, follows]
    assert c.is_complete()


# Hostile acknowledgments.


def stocked() -> CausalGraph:
    """Of rank 0 of three, with two vertices of its own, and some of others."""
    graph = CausalGraph(3, A, ahead_max=8, pending_max=4)
    graph.append("a1")
    graph.append("a2")
    graph.add(Vertex(B, 1, (1, 0, 0), "b1"))
    graph.add(Vertex(B, 2, (2, 1, 0), "b2"))
    graph.add(Vertex(B, 4, (2, 3, 2), "b4"))
    return graph


@pytest.mark.parametrize(
    ("vertex", "reason"),
    [
        (Vertex(3, 1, (0, 0, 0)), "malformed"),
        (Vertex(-1, 1, (0, 0, 0)), "malformed"),
        (Vertex(C, 1, (0, 0)), "malformed"),
        (Vertex(C, 1, (0, -1, 0)), "malformed"),
        (Vertex(C, 0, (0, 0, -1)), "malformed"),
        (Vertex(C, 1, (0, 0, 1)), "malformed"),
        (Vertex(C, 2, (0, 0, 0)), "malformed"),
        (Vertex(B, 2, (2, 1, 0), "another"), "contradicted"),
        (Vertex(B, 2, (1, 1, 0), "b2"), "contradicted"),
        (Vertex(A, 3, (2, 2, 0)), "exceeded"),
        (Vertex(C, 1, (3, 0, 0)), "exceeded"),
        (Vertex(B, 3, (1, 2, 0)), "regressed"),
        (Vertex(B, 5, (2, 4, 1)), "regressed"),
        (Vertex(B, 11, (2, 10, 2)), "ahead"),
        (Vertex(C, 1, (0, 11, 0)), "ahead"),
        (Vertex(C, 2, (0, 4, 1)), "contradicted"),
    ],
)
def test_what_cannot_be_is_refused(vertex: Vertex, reason: str) -> None:
    graph = stocked()
    before = graph.acks(), graph.window(), graph.missing(8)
    with pytest.raises(BadPacket, match=reason):
        graph.add(vertex)
    if reason == "ahead":  # It may well be: more is lost, up to what can be taken.
        assert (graph.acks(), graph.window(), graph.missing(8)[-2]) == (*before[:2], (B, 5, 10))
    else:
        assert (graph.acks(), graph.window(), graph.missing(8)) == before


def test_of_two_that_contradict_each_other_the_one_that_can_enter_counts() -> None:
    """The forged one follows what nobody has sent: alone it would be waited for without end."""
    graph = stocked()
    graph.add(forged := Vertex(B, 3, (2, 2, 1), "forged"))
    graph.add(Vertex(C, 3, (1, 3, 2)))
    with pytest.raises(BadPacket, match="contradicted"):
        graph.add(Vertex(B, 3, (2, 2, 1), "forged again"))
    assert graph.missing(8) == [(B, 3, 3), (C, 1, 2)], "neither counts, and it is requested again"
    graph.add(forged)
    assert keys(graph.add(Vertex(B, 3, (2, 2, 0), "b3"))) == [(B, 3)]
    assert graph.acks() == (2, 3, 0)


def test_a_forged_successor_gives_way_to_what_can_enter() -> None:
    graph = CausalGraph(3, A)
    graph.add(Vertex(B, 2, (0, 1, 0), "forged"))
    graph.append("a1")
    assert keys(graph.add(Vertex(B, 1, (1, 0, 0), "b1"))) == [(B, 1)]
    assert graph.missing(8) == [(B, 2, 2)]
    assert keys(graph.add(Vertex(B, 2, (1, 1, 0), "b2"))) == [(B, 2)]


def test_what_survivors_told_that_they_hold_is_not_replaced() -> None:
    graph = stocked()
    assert graph.close() == (2, 2, 0)
    graph.limit((2, 4, 2))
    with pytest.raises(BadPacket, match="contradicted"):
        graph.add(Vertex(B, 4, (2, 3, 1), "another"))
    assert graph.get(B, 4) is not None


def test_a_full_graph_still_takes_what_ends_the_waiting() -> None:
    graph = stocked()
    for index in (5, 6, 7):
        graph.add(Vertex(B, index, (2, index - 1, 2)))
    with pytest.raises(BadPacket, match="full"):
        graph.add(Vertex(B, 8, (2, 7, 2)))
    for vertex in (Vertex(B, 3, (2, 2, 0)), Vertex(C, 1, (0, 0, 0)), Vertex(C, 2, (0, 0, 1))):
        graph.add(vertex)
    assert graph.acks() == (2, 7, 2)
    assert keys(graph.add(Vertex(B, 8, (2, 7, 2)))) == [(B, 8)]


# The clever part and its twin.


@pytest.mark.rule("TRA-2")
@given(seed=st.integers(0, 1 << 32), size=st.integers(1, 5), count=st.integers(1, 40))
def test_the_graph_is_its_twin(seed: int, size: int, count: int) -> None:
    dice = random.Random(seed)
    graphs = [CausalGraph(size, me) for me in range(size)]
    twins = [SlowGraph(size, me) for me in range(size)]
    sent: list[Vertex] = []
    loss = dice.choice((0.1, 0.5, 0.9))
    for _ in range(count):
        me = dice.randrange(size)
        graph, twin = graphs[me], twins[me]
        if sent and dice.random() < 0.7:
            for vertex in dice.choices(sent, k=3):
                if vertex.sender == me or dice.random() < loss:
                    continue
                before = twin.graph()
                twin.received[vertex.sender, vertex.index] = vertex
                entered = graph.add(vertex)
                assert set(keys(entered)) == set(twin.graph()) - set(before)
        else:
            vertex = graph.append(dice.random() < 0.5)
            twin.received[me, vertex.index] = vertex
            sent.append(vertex)
        assert graph.acks() == twin.acks()
        ranges = graph.missing(1000)
        assert {(s, n) for s, a, z in ranges for n in range(a, z + 1)} == twin.missing()
        assert graph.has_missing() == bool(ranges)
        assert graph.received_by_all() == twin.received_by(range(size))
        some = dice.sample(range(size), dice.randint(1, size))
        assert graph.received_by(some) == twin.received_by(some)
        assert graph.window() == sum(graph.acks()) - sum(graph.received_by_all())
        if dice.random() < 0.3:
            gone = graph.forget()
            assert all(v.index <= graph.received_by_all()[v.sender] for v in gone)


@given(
    vertices=st.lists(
        st.builds(
            Vertex,
            st.integers(-1, 3),
            st.integers(-1, 5),
            st.lists(st.integers(-1, 5), min_size=2, max_size=4).map(tuple),
            st.sampled_from((None, "m")),
        ),
        max_size=40,
    )
)
def test_hostile_vertices_are_refused_or_wait_within_bounds(vertices: list[Vertex]) -> None:
    graph = CausalGraph(3, A, ahead_max=4, pending_max=5)
    graph.append("a1")
    entered: list[Vertex] = []
    for vertex in vertices:
        try:
            entered += graph.add(vertex)
        except BadPacket:
            continue
    here = {(A, 1)}
    for vertex in entered:
        assert all(ack == 0 or (rank, ack) in here for rank, ack in enumerate(vertex.acks))
        here.add((vertex.sender, vertex.index))
    assert len(here) == len(entered) + 1 == sum(graph.acks())
    assert all(map(int.__le__, graph.received_by_all(), graph.acks()))


@given(seed=st.integers(0, 1 << 32), size=st.integers(3, 5), count=st.integers(2, 30))
def test_forged_vertices_that_can_never_enter_keep_nothing_out(
    seed: int, size: int, count: int
) -> None:
    """They acknowledge what nobody ever sends. The last member takes both, and repairs."""
    dice = random.Random(seed)
    graphs = [CausalGraph(size, me) for me in range(size - 1)]
    sent: dict[tuple[int, int], Vertex] = {}
    for _ in range(count):
        graph = dice.choice(graphs)
        for vertex in dice.choices([*sent.values()], k=len(sent)):
            graph.add(vertex)
        vertex = graph.append(dice.random())
        sent[vertex.sender, vertex.index] = vertex
    taken = CausalGraph(size, size - 1)
    for vertex in dice.sample([*sent.values()], len(sent)):
        acks = [dice.randint(0, ack + 1) for ack in vertex.acks[:-1]] + [0]
        acks[vertex.sender] = vertex.index - 1
        acks[(vertex.sender + 1) % (size - 1)] = count + 1
        forged = Vertex(vertex.sender, vertex.index, tuple(acks), "forged")
        for each in dice.sample([vertex, forged], 2):
            with contextlib.suppress(BadPacket):
                taken.add(each)
    for _ in range(2 * count):
        for rank, first, last in taken.missing(1000):
            for index in range(first, last + 1):
                if (rank, index) in sent:
                    with contextlib.suppress(BadPacket):
                        taken.add(sent[rank, index])
    assert sum(taken.acks()) == len(sent)
    assert not taken.has_missing()


def test_one_that_is_too_far_behind_to_take_the_next_knows_that_it_lacks_some() -> None:
    a, b = CausalGraph(2, A), CausalGraph(2, B, ahead_max=4)
    sent = [a.append(number) for number in range(12)]
    with pytest.raises(BadPacket, match="ahead"):
        b.add(sent[-1])
    assert b.missing(8) == [(A, 1, 4)]
    for vertex in sent[:4]:
        b.add(vertex)
    assert not b.has_missing(), "no more is claimed than can be taken"
