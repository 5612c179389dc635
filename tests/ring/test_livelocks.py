"""Stories in which one process kept others from ever coming together: each went wrong once."""

from __future__ import annotations

import pytest

from tests.ring.harness import (
    Room,
    are_together,
    gather,
    handed,
    lawful,
    losing,
    site,
    started,
    together,
)
from unisono.protocols.ring.codes import Code
from unisono.protocols.ring.states import ReformationState


def deafen(room: Room, name: str) -> None:
    """The others receive from it, and it receives from none."""
    for other in room.actors:
        if other != name:
            room.obey(f"cut {other} > {name}")


@pytest.mark.parametrize("deaf", ["a", "b", "c"])
def test_a_deaf_process_does_not_keep_the_others_from_beginning(deaf: str) -> None:
    """It invited without end, got promises without end, and received no answer: the two
    others, who were a majority, never began."""
    room = started("a", "b", "c", sites=3)
    deafen(room, deaf)
    room.obey("join a b c")
    gather(room, *(set("abc") - {deaf}))
    lawful(room)


@pytest.mark.parametrize(("deaf", "captive"), ["ab", "ba"])
def test_a_process_that_receives_nothing_does_not_block_one_that_receives_all(
    deaf: str, captive: str
) -> None:
    """Two of five were cut off, and one of them stays deaf. The other promised it a ring again and
    again, and would not see that the majority's goes on."""
    room = together("a", "b", "c", "d", "e", sites=5)
    room.obey("split a b | c d e")
    gather(room, *"cde")
    room.obey("advance 1500ms\nheal")
    deafen(room, deaf)
    for _ in range(60):
        room.pass_ms(100)
        if site(room, captive)._over:
            room.obey(f"join {captive}")
        if are_together(room, {captive, *"cde"}):
            break
    assert are_together(room, {captive, *"cde"})
    lawful(room)


def test_a_founder_that_dies_before_resume_is_not_waited_for() -> None:
    """The size is unknown. A member that had accepted the founder's ring required a majority of
    it without end, and kept out all later joiners."""
    room = started("a", "b", "c", sites=0)
    room.loses = losing(Code.RESUME, Code.TOKEN_BC)
    room.obey("join a b")

    def waiting() -> list[str]:
        return [n for n in "ab" if site(room, n).reformation.state is ReformationState.W_RSU]

    room.until(waiting)
    (left,) = waiting()
    room.obey(f"crash {'b' if left == 'a' else 'a'}")
    room.loses = None
    room.obey("join c")
    gather(room, left, "c", late_ms=20_000)
    lawful(room)


def test_a_late_copy_of_an_invitation_is_none() -> None:
    """It took one that had accepted the ring back to waiting for a description: the word to resume
    and the turns passed it by, and at last it was stopped."""
    room = started("a", "b", "c", "d", sites=0)
    room.obey("join a b c")
    gather(room, *"abc")
    room.hush()
    room.obey("join d")

    def accepted() -> list[str]:
        return [n for n in "abc" if site(room, n).reformation.state is ReformationState.W_RSU]

    room.until(accepted)
    name, late = accepted()[0], room.of(Code.REF_INV_BC)[-1]
    room._step(room.actors[name], handed(room, late.by, late.sealed))
    assert site(room, name).reformation.state is ReformationState.W_RSU
    gather(room, *"abcd")
    assert all(room.actors[each].incarnation == 1 for each in "abcd")
    assert len(room.of(Code.REF_INV_BC)) == 1, "one change was enough"
    lawful(room)
