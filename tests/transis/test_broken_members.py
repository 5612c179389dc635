"""A member that is broken, or hostile: it is believed no more than it can know."""

from __future__ import annotations

from typing import Any

import pytest

from tests.transis.test_rules import Room, together
from unisono.core import Adopt, Received
from unisono.parts.identity import key_of
from unisono.protocols.transis.packets import PACKETS, Refuse, TransferPiece


def told(room: Room, name: str, sender: str, *packets: Any) -> None:
    """Packets come from the address of another member."""
    core = room.core(name)
    life = core.local.configuration.life
    made = PACKETS.sealed(core.codec, list(packets), life)
    room._step(room.actors[name], Received(room.core(sender).me.address, made))


def test_a_state_is_believed_of_the_member_that_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    room = together("ab", state=1)
    room.obey("say a one\nadvance 300ms")
    room.actors["c"] = type(room.actors["a"])("c", 2)
    adopted: list[bytes] = []
    perform = type(room)._perform

    def noting(self: Room, actor: Any, effect: Any) -> Any:
        if isinstance(effect, Adopt):
            adopted.append(effect.state)
        return perform(self, actor, effect)

    monkeypatch.setattr(type(room), "_perform", noting)
    room.obey("join c")
    for _ in range(300):
        room.obey("advance 10ms")
        life = room.core("c").local.configuration.life
        told(room, "c", "b", TransferPiece(life, 6, 0, b"forged"))
    assert room.members("c") == "abc" and room.count("c", "drop.stranger")
    assert len(adopted) == 1 and adopted != [b"forged"]
    room.keeps_the_laws()


def test_nobody_is_refused_for_an_incarnation_that_is_not_later() -> None:
    room = together("abc")
    me = room.core("b").me
    for known in (0, me.incarnation - 1, me.incarnation):
        told(room, "b", "a", Refuse(key_of(me), "go away", known))
    room.obey("say b word\nadvance 500ms")
    assert {room.members(name) for name in "abc"} == {"abc"}
    assert room.delivered("a") == ["b#1:1"]
