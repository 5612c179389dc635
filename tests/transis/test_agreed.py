"""The agreed order: every small execution, every part of it, every member's view of it."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.transis.executions import (
    History,
    closed,
    everything,
    extensions,
    histories,
    vertices_of,
)
from tests.transis.twins import agreed, by_candidates
from unisono.protocols.transis.agreed import (
    NEVER,
    QUIET,
    AgreedOrder,
    AllAckOrder,
    TokenOrder,
)
from unisono.protocols.transis.graph import CausalGraph, Vertex

SIZE = 3
MEMBERS = range(SIZE)


def full(vertices: Sequence[Vertex]) -> list[Vertex]:
    return [vertex for vertex in vertices if vertex.payload]


def part_of(history: History, part: Sequence[int]) -> History:
    return tuple(row[:count] for row, count in zip(history, part, strict=True))


def begins(order: Sequence[Vertex], prefix: Sequence[Vertex]) -> bool:
    return list(order[: len(prefix)]) == list(prefix)


def check_every_execution(count: int, order: Callable[[int, int], AgreedOrder]) -> int:
    """In every execution of three members with so many vertices: what one more vertex does to the
    order of all, and to what each member has agreed on. Longer executions add one at a time."""
    checked = 0
    for level in histories(SIZE, count - 1):
        for history in level:
            vertices = vertices_of(history)
            whole = by_candidates(vertices)
            known = [order(SIZE, me).entered(vertices) for me in MEMBERS]
            for me in MEMBERS:
                # What it has agreed on is the beginning of the order of all that is here.
                assert begins(full(whole), known[me])
            for vertex, more in extensions(history, ("m",)):
                checked += 1
                longer = by_candidates(vertices_of(more))
                # [TRA-7] A component without the vertex has the others in the same order.
                assert [each for each in longer if each != vertex] == whole
                for me in MEMBERS:
                    if vertex.sender != me or vertex.acks == everything(history):
                        assert begins(full(longer), known[me])
    return checked


@pytest.mark.rule("TRA-7")
@pytest.mark.rule("TRA-9")
def test_no_vertex_that_comes_later_contradicts_what_is_agreed() -> None:
    assert check_every_execution(4, AllAckOrder) == 4_197


@pytest.mark.soak
@pytest.mark.rule("TRA-7")
def test_nor_in_any_execution_of_six() -> None:
    assert check_every_execution(6, AllAckOrder) > 400_000


def check_every_end(count: int) -> None:
    """In every execution, whoever survives, and whatever each survivor had before it learned what
    the others hold: all deliver the same, in one order, and the same of it before the end."""
    for level in histories(SIZE, count):
        for history in level:
            vertices = vertices_of(history)
            for survivors in (s for n in (1, 2, 3) for s in combinations(MEMBERS, n)):
                ends = {
                    end_at(me, part, history, survivors)
                    for me in survivors
                    for part in closed(history, [0] * SIZE)
                    if part[me] == len(history[me])
                }
                ((regular, transitional),) = ends
                assert [*regular, *transitional] == full(by_candidates(vertices))


def end_at(
    me: int, part: Sequence[int], history: History, survivors: Sequence[int]
) -> tuple[tuple[Vertex, ...], tuple[Vertex, ...]]:
    vertices = vertices_of(history)
    had = vertices_of(part_of(history, part))
    order = AllAckOrder(SIZE, me)
    delivered = order.entered(had)
    delivered += order.entered([vertex for vertex in vertices if vertex not in had])
    rest = order.flush(survivors)
    return (*delivered, *rest.regular), tuple(rest.transitional)


@pytest.mark.rule("TRA-13")
@pytest.mark.rule("TRA-17")
def test_survivors_end_a_configuration_alike() -> None:
    check_every_end(3)


@pytest.mark.soak
@pytest.mark.rule("TRA-13")
def test_survivors_end_every_execution_of_four_alike() -> None:
    check_every_end(4)


# The checks can fail, and what they refute.


class MajorityOrder(AllAckOrder):
    """Decides once a majority cannot send anything that comes first, without the slowest."""

    def _first_to_come(self) -> int:
        return sorted(self._barrier)[self._size // 2]


class CarelessOrder(AllAckOrder):
    """Waits for no quiet member, not even with what a quiet member sends."""

    def _first_to_come(self) -> int:
        return min((each for each in self._barrier if each < QUIET * self._size), default=NEVER)


@pytest.mark.parametrize("order", [MajorityOrder, CarelessOrder])
def test_an_order_that_decides_too_early_is_caught(order: type[AllAckOrder]) -> None:
    with pytest.raises(AssertionError):
        check_every_execution(4, order)


@pytest.mark.rule("TRA-7")
def test_no_majority_can_decide_without_the_slowest() -> None:
    """Ranks 0 and 2 send at the same time. In one world rank 2 is slow, and ranks 0 and 1 decide
    without it; in the other rank 0. The slow one has both vertices, is cut off, and has to deliver
    them: nothing that it holds tells it in which world it is. So it contradicts the others in one
    of them, whatever its order is; here it is that of the all-ack order.

    Numbers that a holder, rank 1, gives to what others sent fail in the same two worlds: they are
    what the one that is cut off does not have. So the token order numbers what the holder sends.
    """
    x, y = Vertex(0, 1, (0, 0, 0), "x"), Vertex(2, 1, (0, 0, 0), "y")
    contradictions = 0
    for fast, slow in ((x, y), (y, x)):
        acks = tuple(int(rank == fast.sender) for rank in MEMBERS)
        majority = MajorityOrder(SIZE, me=1)
        decided = majority.entered([fast, Vertex(1, 1, acks)]) + majority.entered([slow])
        assert decided == [fast, slow]
        alone = AllAckOrder(SIZE, slow.sender)
        delivered = alone.entered([slow, fast])
        contradictions += delivered + alone.flush([slow.sender]).transitional != decided
    assert contradictions == 1


# The clever part and its twin, in executions of any size.


def run(seed: int, size: int, count: int) -> History:
    """Some execution: members send and hear of each other at random."""
    dice = random.Random(seed)
    graphs = [CausalGraph(size, me) for me in range(size)]
    history: list[list[Vertex]] = [[] for _ in range(size)]
    talk = dice.choice((0.2, 0.9))
    for _ in range(count):
        me = dice.randrange(size)
        for vertex in vertices_of(tuple(map(tuple, history))):
            if vertex.sender != me and dice.random() < talk:
                graphs[me].add(vertex)
        vertex = graphs[me].append("m" if dice.random() < 0.6 else None)
        history[me].append(vertex)
    return tuple(map(tuple, history))


def as_they_entered(history: History, me: int, dice: random.Random) -> list[Vertex]:
    """An order in which they may have entered this member's graph: its own when all that they
    acknowledge was there, and no more."""
    passed = [0] * len(history)
    order = []
    while passed != list(everything(history)):
        heads = [row[at] for row, at in zip(history, passed, strict=True) if at < len(row)]
        mine = [head.acks for head in heads if head.sender == me]
        ready = [
            head
            for head in heads
            if all(ack <= at for ack, at in zip(head.acks, passed, strict=True))
            and all(head.sender == me or head.index <= acks[head.sender] for acks in mine)
        ]
        vertex = dice.choice([each for each in ready if each.sender != me] or ready)
        passed[vertex.sender] += 1
        order.append(vertex)
    return order


EXECUTIONS = {
    "seed": st.integers(0, 1 << 32),
    "size": st.integers(1, 5),
    "count": st.integers(1, 24),
}


@pytest.mark.rule("TRA-9")
@given(**EXECUTIONS)
def test_the_all_ack_order_is_its_twin(seed: int, size: int, count: int) -> None:
    history = run(seed, size, count)
    dice = random.Random(seed)
    me = dice.randrange(size)
    others = [rank for rank in range(size) if rank != me]
    vertices = as_they_entered(history, me, dice)
    order = AllAckOrder(size, me)
    delivered: list[Vertex] = []
    for at, vertex in enumerate(vertices, 1):
        delivered += order.entered([vertex])
        assert delivered == full(agreed(vertices[:at], size, others))
    survivors = [me, *(rank for rank in others if dice.random() < 0.5)]
    lost = [rank for rank in range(size) if rank not in survivors]
    rest = order.flush(survivors)
    assert delivered + rest.regular == full(agreed(vertices, size, lost))
    assert delivered + rest.regular + rest.transitional == full(by_candidates(vertices))


@pytest.mark.rule("TRA-6")
@pytest.mark.rule("TRA-7")
@given(**EXECUTIONS)
def test_components_agree_and_answers_follow(seed: int, size: int, count: int) -> None:
    history = run(seed, size, count)
    dice = random.Random(seed)
    whole = by_candidates(vertices_of(history))
    at = {(vertex.sender, vertex.index): place for place, vertex in enumerate(whole)}
    for vertex in whole:
        for rank, ack in enumerate(vertex.acks):
            assert ack == 0 or at[rank, ack] < at[vertex.sender, vertex.index]
    held = as_they_entered(history, 0, dice)[: dice.randrange(count + 1)]
    component = AllAckOrder(size, 0)
    delivered = component.entered(held)
    rest = component.flush(())
    delivered += rest.regular + rest.transitional
    assert delivered == [vertex for vertex in full(whole) if vertex in held]


# Who waits for whom.


def entered(order: AgreedOrder, *vertices: Vertex) -> list[object]:
    return [vertex.payload for vertex in order.entered(vertices)]


def test_a_lone_sender_waits_for_nobody() -> None:
    sender, other = AllAckOrder(SIZE, 2), AllAckOrder(SIZE, 0)
    first = Vertex(2, 1, (0, 0, 0), "a")
    # Its first message: the others could have sent one at the same time.
    assert entered(sender, first) == entered(other, first) == []
    assert other.is_awaited() and not sender.is_awaited()
    answers = Vertex(0, 1, (0, 0, 1)), Vertex(1, 1, (0, 0, 1))
    assert entered(sender, *answers) == entered(other, *answers) == ["a"]
    for index in range(2, 9):
        vertex = Vertex(2, index, (1, 1, index - 1), f"m{index}")
        assert entered(sender, vertex) == entered(other, vertex) == [f"m{index}"]
        assert not other.is_awaited()


def test_a_sender_that_stops_is_awaited_once() -> None:
    order = AllAckOrder(2, 0)
    order.entered([Vertex(1, 1, (0, 0), "b1"), Vertex(0, 1, (0, 1), "a1")])
    order.entered([Vertex(1, 2, (1, 1), "b2"), Vertex(1, 3, (1, 2), "b3")])
    assert order.is_awaited()
    order.entered([Vertex(0, 2, (1, 3))])
    assert not order.is_awaited()
    order.entered([Vertex(1, 4, (1, 3), "b4")])
    assert not order.is_awaited()


@pytest.mark.rule("TRA-9")
def test_members_that_all_send_wait_for_one_vertex_of_each() -> None:
    order = AllAckOrder(SIZE, 0)
    delivered: list[object] = []
    for turn in range(1, 9):
        for me in (2, 1, 0):
            vertex = Vertex(me, turn, (turn - 1,) * SIZE, (turn, me))
            delivered += entered(order, vertex)
        if turn > 1:  # In the first, all were quiet.
            assert sorted(delivered) == [(at, me) for at in range(1, turn + 1) for me in MEMBERS]


# The token.


@pytest.mark.rule("TRA-10")
def test_only_the_holder_emits_and_the_token_revolves() -> None:
    graphs = [CausalGraph(SIZE, me) for me in MEMBERS]
    orders = [TokenOrder(SIZE, me) for me in MEMBERS]
    agreed: list[list[object]] = [[] for _ in MEMBERS]

    def send(me: int, payload: object = None) -> None:
        vertex = graphs[me].append(payload)
        for rank in MEMBERS:
            new = [vertex] if rank == me else graphs[rank].add(vertex)
            agreed[rank] += entered(orders[rank], *new)

    assert [order.may_emit() for order in orders] == [True, False, False]
    send(2)  # [TRA-4] Anyone may say that it is alive.
    send(0, "a")
    assert [order.is_awaited() for order in orders] == [False, True, False]
    send(1)  # With nothing to send, the token is passed on.
    send(2, "c")
    send(0, "d")
    assert agreed == [["a", "c", "d"]] * SIZE
    send(2, "not its turn")
    assert agreed == [["a", "c", "d"]] * SIZE
    assert [len(order.strays) for order in orders] == [1, 1, 1]


def test_when_the_token_rests_follows_from_the_vertices_however_they_come() -> None:
    calls = Vertex(1, 1, (0, 0, 0))  # It has something to send, and not the token.
    first = [Vertex(0, 1, (0, 1, 0)), Vertex(1, 2, (1, 1, 0)), Vertex(2, 1, (1, 2, 0))]
    rounds = [*first, Vertex(0, 2, (1, 2, 1)), Vertex(1, 3, (2, 2, 1)), Vertex(2, 2, (2, 3, 1))]
    one_by_one, at_once = TokenOrder(SIZE, 0), TokenOrder(SIZE, 0)
    assert one_by_one.is_idle()
    for vertex in (calls, *rounds):
        one_by_one.entered([vertex])
        assert one_by_one.is_idle() == (vertex is rounds[-1])
    at_once.entered([calls, *rounds[:-1]])
    assert not at_once.is_idle()
    at_once.entered(rounds[-1:])
    assert at_once.is_idle()


@pytest.mark.rule("TRA-7")
@pytest.mark.rule("TRA-10")
@given(**EXECUTIONS)
def test_the_token_order_is_one_chain_in_every_part(seed: int, size: int, count: int) -> None:
    history = run(seed, size, count)
    dice = random.Random(seed)
    vertices = as_they_entered(history, 0, dice)
    whole = TokenOrder(size, 0).entered(vertices)
    for before, after in pairwise(whole):
        assert after.acks[before.sender] >= before.index
    held = vertices[: dice.randrange(count + 1)]
    component = TokenOrder(size, 0)
    delivered = component.entered(held)
    assert delivered == [vertex for vertex in whole if vertex in held]
    assert component.flush(()) == ([], [])


def lines_run(act: Callable[[], object]) -> int:
    """Lines of Python that it takes: the cost, on any machine."""
    count = 0

    def tracer(frame: object, event: str, arg: object) -> object:
        nonlocal count
        count += event == "line"
        return tracer

    sys.settrace(tracer)
    try:
        act()
    finally:
        sys.settrace(None)
    return count


def cost(size: int, turns: int) -> float:
    """Of a vertex, at a member of a group that all send in turn."""
    graph, order = CausalGraph(size, 0), AllAckOrder(size, 0)

    def act() -> None:
        for turn in range(turns):
            for rank in range(1, size):
                acks = [turn] * size
                acks[0] = max(turn - 1, 0)
                order.entered(graph.add(Vertex(rank, turn + 1, tuple(acks), "m")))
            order.entered([graph.append("m")])
            graph.forget()

    return lines_run(act) / (size * turns)


def test_a_vertex_costs_no_more_than_there_are_members() -> None:
    assert cost(8, 100) < 1.1 * cost(8, 20)
    assert cost(64, 20) < 8 * cost(8, 20)
