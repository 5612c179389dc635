"""The two machines are whole, and name what the paper names."""

from __future__ import annotations

import pytest

from tests.rmp.theatre import Room, together
from unisono.fsa import Figure
from unisono.protocols.rmp.agreement import NewList
from unisono.protocols.rmp.figure import REFORMATION, TOKEN
from unisono.protocols.rmp.packets import PacketKind
from unisono.protocols.rmp.reform_packets import Accept, Sync
from unisono.protocols.rmp.reformation import ListDecided


@pytest.mark.parametrize("figure", [TOKEN, REFORMATION], ids=lambda figure: figure.name)
def test_every_event_is_decided_in_every_state(figure: Figure) -> None:
    assert figure.undecided() == []


@pytest.mark.rule("RMP-11")
def test_a_reformation_walks_the_papers_states() -> None:
    """[RMP §3.1] The reform site gathers, then sends the list; a slave answers, then confirms."""
    room = together("a", "b", "c", "d")
    seen: dict[str, list[str]] = {name: ["NORMAL"] for name in "abc"}
    room.obey("crash d")

    def walked() -> bool:
        for name in "abc":
            if seen[name][-1] != (state := room.reform_state(name)):
                seen[name].append(state)
        return all(room.views(name) and room.members(name) == "abc" for name in "abc")

    room.until(walked)
    reformer = room.of(PacketKind.COMMIT)[0].by
    assert seen.pop(reformer) == ["NORMAL", "START_RECOVERY", "SENT_NEW_LIST", "NORMAL"]
    for states in seen.values():
        assert states[:2] == ["NORMAL", "SLAVE"]
        assert states[-2:] == ["CONFIRMED", "NORMAL"]


# -- a decided list, in states in which few runs hear of one --------------------------------------


def in_state(state: str) -> tuple[Room, str]:
    """A ring with a site that is in this state of a reformation."""
    room = together("a", "b", "c", "d")
    if state == "NORMAL":
        return room, "a"
    lost = {"SENT_NEW_LIST": Accept, "ABORT_RECOVERY": Sync}.get(state)
    if lost is not None:
        room.loses = lambda by, to, packet: isinstance(packet, lost)
    room.obey("crash d")
    room.until(lambda: any(room.reform_state(name) == state for name in "abc"))
    return room, next(name for name in "abc" if room.reform_state(name) == state)


@pytest.mark.parametrize("state", ["NORMAL", "SLAVE", "SENT_NEW_LIST", "ABORT_RECOVERY"])
@pytest.mark.parametrize(
    ("action", "to"),
    [("install", "NORMAL"), ("stop_excluded", "NORMAL"), ("catch_up", "CONFIRMING")],
)
def test_a_decided_list_is_followed_in_every_state(state: str, action: str, to: str) -> None:
    room, name = in_state(state)
    site = room.site(name)
    ring, held = site._state, site._queue.held
    members = tuple(key for key in ring.token_list if action != "stop_excluded" or key != ring.key)
    sync = held + 3 if action == "catch_up" else held
    decided = NewList(members, sync, (), ring.epoch + 1, 12345, True)
    machine = site._reform_machine
    machine.fire(ListDecided(decided), [])
    assert machine.state.name == to
    walked = [arrow for arrow in machine.walked if f"/{action}--" in arrow]
    assert any(arrow.startswith(f"{state} --ListDecided") for arrow in walked)
    assert (ring.trid == 12345) == (action == "install")
    assert (ring.verdict is not None) == (action == "stop_excluded")
