"""What happens at a bound: a burst, a limit, a number that differs. Each went wrong once."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest

from tests.ring.harness import (
    S,
    armed_in,
    control,
    delivered_in,
    gather,
    handed,
    header_of,
    holder_of,
    lawful,
    losing,
    ring_order,
    sealed,
    seen,
    site,
    started,
    step,
    together,
    turn,
)
from unisono.core import Core, CoreConfig, Depart, Expired, Multicast
from unisono.model import Service
from unisono.parts.window import Window
from unisono.protocols.ring.codes import Code, Timer
from unisono.protocols.ring.core import Site
from unisono.protocols.ring.parameters import PRESETS

# -- leaving --------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [1, 2])
def test_a_leaver_takes_no_turn_of_the_ring_without_it(place: int) -> None:
    """The word to resume and the first turn came in one burst: it delivered a message of a view
    that it is not in."""
    room = together("a", "b", "c", sites=0)
    leader, leaver = ring_order(room)[0], ring_order(room)[place]
    before = site(room, leader).state.ring.version
    room.loses = losing(Code.RESUME, Code.TOKEN_BC, to=leaver)
    room.obey(f"leave {leaver}")
    room.until(
        lambda: (
            site(room, leader).state.ring.version != before and site(room, leader).state.is_normal
        )
    )
    base = site(room, leaver).state.ring.base
    first = holder_of(room, base, leaver)
    burst = (
        sealed(Code.RESUME, header_of(room, first)),
        turn(room, base + 1, "hello", by=first),
    )
    effects = step(room, leaver, handed(room, first, *burst))
    assert delivered_in(effects) == []
    assert effects[-1] == Depart(str(site(room, leader).state.ring.version))


def test_a_leaver_whose_application_is_slow_takes_no_turn_either() -> None:
    """It stays until the application has taken all that is its own, and took more meanwhile."""
    room = together("a", "b", "c", sites=0)
    room.obey("say a yours\ncongest b on\nadvance 100ms\nleave b")
    room.until(lambda: site(room, "b").lifecycle.released)
    gather(room, *"ac")
    room.obey("say a not-yours\nadvance 1000ms")
    assert "b has left" in room.obey("congest b off")
    assert room.words("b") == ["yours"]
    assert room.words("a") == room.words("c") == ["yours", "not-yours"]
    lawful(room)


# -- bounds ---------------------------------------------------------------------------------------


def test_one_that_is_alone_lets_the_world_in_between_its_turns() -> None:
    """Alone, one passes the token to itself: as much as there was room for took thousands of turns
    in one step, and the machines were held to be in a loop."""
    room = started("a", **{**PRESETS["paper"], "sites": 1})
    room.obey("join a")
    gather(room, "a", late_ms=20_000)
    s, count = S(room, "a"), site(room, "a").send_credit() // (700 + 32)
    assert count > 5_000
    step(room, "a", Multicast([b"x" * 700] * count, Service.SAFE))
    for more in range(1, 6):
        assert S(room, "a") == s + more, "one turn a step"
        effects = step(room, "a", Expired(Timer.T_SEND))
        assert armed_in(effects)[Timer.T_SEND] == 0, "and the next as soon as may be"
        assert 0 < len(delivered_in(effects)) <= 2, "no more than a packet holds"


def test_help_is_no_more_than_what_is_kept() -> None:
    """One packet that claims to have nothing of a ring that has run for long was answered with a
    list of all turns there ever were: seconds, and hundreds of megabytes."""
    room = together("a", "b", "c", sites=3)
    site(room, "a").ordering.window = Window(200_000)
    tracemalloc.start()
    try:
        step(room, "a", control(room, "b", Code.TS_ALIVE_RQU, s=0))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1 << 20


def test_a_group_of_known_size_remembers_no_more_names_than_it_has() -> None:
    """Failed members were absent for ever: with each new name the ring's description grew."""
    room = started("a", "b", "c", "d", "e", "f", "g", sites=3)
    room.obey("join a b c")
    gather(room, *"abc")
    for old, new in ("cd", "de", "ef", "fg"):
        room.obey(f"crash {old}")
        gather(room, *"ab")
        assert [seat.member.name for seat in site(room, "a").state.ring.absent] == [old]
        room.obey(f"join {new}")
        gather(room, "a", "b", new)
        assert site(room, "a").state.ring.absent == ()


# -- members with different options ----------------------------------------------------------------


@pytest.mark.parametrize("other", [2, 5])
def test_members_that_differ_about_the_size_of_the_group_do_not_found_one(other: int) -> None:
    """Only joiners were checked, not the founder: some counted a majority of two, some
    of five."""
    room = started("a", "b", "c", sites=other)
    room.has_terms = True
    room.obey("join a")
    room._options["sites"] = 3
    told = room.obey("join b c\nadvance 3000ms")
    assert "stops: the group 'stage' has sites=" in told or "warns: nobody is inside" in told
    sizes = {name: site(room, name).parameters.sites for name in "abc"}
    for name in "abc":
        assert {sizes[each] for each in seen(room, name)} <= {sizes[name]}


def test_a_member_that_cannot_take_a_message_that_others_take_stops() -> None:
    """It dropped the message, and with it all later ones of its sender, and continued as if nothing
    had happened: members of one view had delivered different things."""
    room = started("a", "b", "c", sites=3, turn_packets=1)

    def make(setting: CoreConfig) -> Core:
        small = setting.me.name == "c"
        return Site(replace(setting, message_bytes_max=5_000) if small else setting)

    room._spec = replace(room._spec, make=make)
    room.obey("join a b c")
    gather(room, *"abc")
    room.obey("shout a 5000\nadvance 200ms")
    assert len(room.words("c")) == 1, "so much it takes"
    told = room.obey("shout a 5001\nsay a next\nadvance 200ms")
    assert "c stops: a message is larger than message_bytes_max allows here" in told
    assert len(room.words("c")) == 1
    gather(room, *"ab")
    room.until(lambda: len(room.words("a")) == len(room.words("b")) == 3)
    lawful(room)
