"""Figures: the first row that holds wins, and a figure that decides too little is told so."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

import pytest

from unisono.core import Effect, Expired, Fail, Join, Leave
from unisono.fsa import Arrow, Figure, Machine, always, bound, impossible, stay, unwalked


class State(Enum):
    UP = auto()
    DOWN = auto()


class Timer(Enum):
    TICK = auto()


UP, DOWN = State


def tired(me: dict[str, int], event: object) -> bool:
    return me["energy"] <= 0


def work(me: dict[str, int], event: object, out: list[Effect]) -> None:
    me["energy"] -= 1


def say_so(me: dict[str, int], event: object, out: list[Effect]) -> None:
    out.append(Fail("tired"))


def rest(me: dict[str, int], event: object, out: list[Effect]) -> None:
    me["energy"] = 2


# fmt: off
WORKER = Figure("worker", start=UP, arrows=(
    Arrow(UP,         Timer.TICK, always,     work,       UP),
    Arrow(UP,         None,       tired,      say_so,     DOWN),
    Arrow(DOWN,       Timer.TICK, always,     stay,       DOWN),
    Arrow(DOWN,       Join,       always,     rest,       UP),
    Arrow(UP,         Join,       always,     stay,       None),
    Arrow((UP, DOWN), Leave,      always,     impossible, None),
))
# fmt: on


def test_a_complete_figure_has_nothing_undecided() -> None:
    assert WORKER.undecided() == []


def test_the_machine_follows_the_table() -> None:
    me = {"energy": 2}
    machine = Machine(WORKER, me)
    out: list[Effect] = []
    machine.fire(Expired(Timer.TICK), out)
    assert (machine.state, out) == (UP, [])
    machine.fire(Expired((Timer.TICK, "b")), out)
    assert machine.state is DOWN, "as soon as it is tired"
    assert out == [Fail("tired")]
    machine.fire(Join(), out)
    assert machine.state is UP
    assert machine.walked["UP --soon[tired]/say_so--> DOWN"] == 1
    assert unwalked(WORKER, [machine.walked]) == [
        "DOWN --TICK/stay--> DOWN",
        "UP --Join/stay--> UP",
        "UP --Leave/impossible--> UP",
        "DOWN --Leave/impossible--> DOWN",
    ]


def test_impossibility_is_our_bug() -> None:
    with pytest.raises(AssertionError, match="impossible"):
        Machine(WORKER, {"energy": 1}).fire(Leave(), [])


def test_an_event_the_figure_does_not_know_is_our_bug() -> None:
    with pytest.raises(AssertionError, match="undecided"):
        Machine(WORKER, {"energy": 1}).fire(Fail("x"), [])


@pytest.mark.parametrize(
    ("arrows", "wrong"),
    [
        ((Arrow(UP, Join, tired, stay, DOWN), Arrow(DOWN, Join, always, stay, UP)), "undecided"),
        ((Arrow(UP, Join, always, stay, DOWN),), "DOWN on Join is undecided"),
        (
            (
                Arrow((UP, DOWN), Join, always, stay, DOWN),
                Arrow(UP, Join, always, rest, UP),
            ),
            "never reached",
        ),
        ((Arrow((UP, DOWN), Join, always, stay, UP),), "DOWN is never reached"),
        (
            (Arrow((UP, DOWN), Join, always, stay, DOWN), Arrow(UP, None, always, rest, UP)),
            "never stop",
        ),
    ],
)
def test_a_figure_with_a_flaw_is_refused(arrows: tuple[Arrow, ...], wrong: str) -> None:
    assert any(wrong in sentence for sentence in Figure("flawed", UP, arrows).undecided())


def test_a_figure_that_never_settles_is_our_bug() -> None:
    def ever(me: Any, event: Any) -> bool:
        return True

    figure = Figure(
        "restless", UP, (Arrow(UP, Join, always, stay, UP), Arrow(UP, None, ever, stay, UP))
    )
    with pytest.raises(AssertionError, match="never settles"):
        Machine(figure, None).fire(Join(), [])


def test_the_drawing_shows_what_is_done_and_leaves_out_what_is_discarded() -> None:
    drawing = WORKER.mermaid()
    assert "[*] --> UP" in drawing
    assert "UP --> DOWN: soon [tired] / say_so" in drawing
    assert "stay" not in drawing


class Lamp:
    def __init__(self) -> None:
        self.lit = 0

    def is_dark(self, event: Join) -> bool:
        return not self.lit

    def light(self, event: Join, out: list[Effect]) -> None:
        self.lit += 1


class Bell:
    def __init__(self) -> None:
        self.rung = 0

    def ring(self, event: Join, out: list[Effect]) -> None:
        self.rung += 1


class LoudBell(Bell):
    def ring(self, event: Join, out: list[Effect]) -> None:
        self.rung += 10


def test_an_arrow_is_done_by_the_part_whose_method_it_names() -> None:
    figure = Figure(
        "parts",
        UP,
        (Arrow(UP, Join, Lamp.is_dark, Lamp.light, UP), Arrow(UP, Join, always, Bell.ring, UP)),
    )
    lamp, bell = Lamp(), LoudBell()
    machine = Machine(figure, lamp, bell)
    for _ in range(3):
        machine.fire(Join(), [])
    assert (lamp.lit, bell.rung) == (1, 20), "a derived class is a part too"
    assert machine.walked == {"UP --Join[is_dark]/light--> UP": 1, "UP --Join/ring--> UP": 2}


def test_an_arrow_that_names_a_method_of_no_part_is_refused() -> None:
    class Present:
        """A part that the machine has."""

    class Absent:
        def act(self, event: object, out: list[Effect]) -> None:
            raise AssertionError("run on another part")

    with pytest.raises(AssertionError, match=r"Absent\.act: no part is a"):
        bound(Absent.act, (Present(),))
