"""The parts of the network that need no socket: timers, destinations, storage, addresses."""

from __future__ import annotations

import random

import pytest

from unisono.errors import Misuse
from unisono.model import Address
from unisono.net import addresses
from unisono.net.destinations import FORMER_US, PROVED_US, Destinations
from unisono.net.timers import Timers

ME, A, B, C = (Address("10.0.0.1", port) for port in (1, 2, 3, 4))


def test_timers_equal_their_slow_twin() -> None:
    dice = random.Random(7)
    timers, twin = Timers(), dict[str, int]()
    for now_us in range(0, 4000, 3):
        name = dice.choice("abcdefgh")
        if dice.random() < 0.7:
            twin[name] = now_us + dice.randrange(1, 100)
            timers.arm(name, twin[name])
        else:
            twin.pop(name, None)
            timers.disarm(name)
        expired = set()
        while (timer := timers.pop(now_us)) is not None:
            expired.add(timer)
        assert expired == {name for name, at_us in twin.items() if at_us <= now_us}
        twin = {name: at_us for name, at_us in twin.items() if at_us > now_us}
        next_us = timers.next_us()
        assert not twin or (next_us is not None and next_us <= min(twin.values()))


def test_a_timer_set_to_sooner_expires_once() -> None:
    timers = Timers()
    timers.arm("a", 100)
    timers.arm("a", 50)
    assert timers.pop(50) == "a"
    assert timers.pop(1000) is None


def test_everyone_is_the_list_the_view_and_guests_but_not_me() -> None:
    audience = Destinations([ME, A], ME)
    assert audience.everyone(0) == (A,)
    audience.proved(B, 0)
    audience.installed([ME, A, B], 0)
    audience.proved(C, 0)
    assert set(audience.everyone(1)) == {A, B, C}
    assert set(audience.everyone(PROVED_US)) == {A, B}


def test_former_members_are_called_until_they_are_forgotten() -> None:
    audience = Destinations([], ME)
    audience.installed([ME, B], 0)
    audience.proved(B, 0)
    audience.installed([ME], 10)
    assert audience.everyone(11) == (B,)
    assert audience.everyone(10 + FORMER_US) == ()


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("10.0.0.1:7400", ("10.0.0.1", 7400)),
        ("host", ("host", 9)),
        ("[::1]:7400", ("::1", 7400)),
        ("[::1]", ("::1", 9)),
        ("fe80::1%eth0", ("fe80::1%eth0", 9)),
    ],
)
def test_host_and_port_are_split(text: str, split: tuple[str, int]) -> None:
    assert addresses.host_and_port(text, "peer", 9) == split


@pytest.mark.parametrize("text", ["[::1", "[::1]7400", ":7400", "host:x", "host:70000", "host:-1"])
def test_a_bad_address_is_reported_in_one_line(text: str) -> None:
    with pytest.raises(Misuse) as told:
        addresses.host_and_port(text, "peer")
    assert "\n" not in str(told.value) and text.strip(":") in str(told.value)


def test_a_link_local_address_has_the_scope_of_our_interface() -> None:
    assert addresses.sockaddr(Address("fe80::1", 5), 3) == ("fe80::1", 5, 0, 3)
    assert addresses.sockaddr(Address("fd00::1%eth0", 5), 3) == ("fd00::1", 5, 0, 0)
    with pytest.raises(Misuse, match="link-local: add the interface"):
        addresses.index_of("", "fe80::1")


def test_a_name_without_an_address_is_reported() -> None:
    with pytest.raises(Misuse, match="cannot be resolved"):
        addresses.resolve("no-such-host.invalid", 1)
    with pytest.raises(Misuse, match="does not exist"):
        addresses.local_address("nosuchinterface0", addresses.family_of("10.0.0.1"))
