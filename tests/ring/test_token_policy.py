"""How long the token rests, as a pure function of the turns."""

from __future__ import annotations

import pytest

from unisono.model import Address, Member
from unisono.parts.turn import Turn
from unisono.protocols.ring.packets import Flag
from unisono.protocols.ring.ring import Ring, Seat
from unisono.protocols.ring.token_policy import REST_STEPS, TokenPolicy

T_SEND_US = 2_000
IDLE_US = 1_000_000
MEMBERS = tuple(Member(name, Address("10.0.0.1", port), 1) for port, name in enumerate("abc", 7000))
RING = Ring(seats=tuple(map(Seat, MEMBERS)))


def after(*turns: tuple[int, bytes], sender: Member | None = None) -> tuple[TokenPolicy, int]:
    """The policy after turns of these flags and contents, 10 ms apart, and the last S."""
    policy = TokenPolicy(T_SEND_US, IDLE_US)
    policy.start(len(MEMBERS))
    for s, (flags, content) in enumerate(turns, 1):
        policy.note(Turn(s, 0, flags, content, 100), 10_000 * s)
    if sender is not None:
        policy.note_sender(sender)
    return policy, len(turns)


NULL = (0, b"")
DATA = (0, b"data")


@pytest.mark.rule("RNG-3")
def test_for_a_round_after_a_message_the_token_does_not_rest() -> None:
    for nulls in range(len(MEMBERS) - 1):
        policy, s = after(DATA, *[NULL] * nulls)
        assert policy.wait_us(RING, s) == 0


def test_for_two_rounds_after_a_safe_message_the_token_does_not_rest() -> None:
    policy, s = after((Flag.SAFE, b"data"), *[NULL] * (len(MEMBERS) - 1))
    assert policy.wait_us(RING, s) == 0, "so that all learn what all have"
    policy, s = after((Flag.SAFE, b"data"), *[NULL] * len(MEMBERS))
    assert policy.wait_us(RING, s) > 0


def test_the_token_rests_with_the_last_sender_only() -> None:
    turns = [DATA, *[NULL] * 5]
    waits = []
    for member in MEMBERS:
        policy, s = after(*turns, sender=member)
        waits.append(policy.wait_us(RING, s))
    holder = RING.holder(len(turns))
    assert waits[holder] == T_SEND_US << REST_STEPS
    assert not any(wait for at, wait in enumerate(waits) if at != holder)


def test_each_idle_round_doubles_the_rest_up_to_its_bound() -> None:
    count = len(MEMBERS)
    found = []
    for rounds in range(1, 12):
        policy, s = after(*[NULL] * (rounds * count))
        found.append(policy.wait_us(RING, s))
    assert found[:3] == [T_SEND_US, 2 * T_SEND_US, 4 * T_SEND_US]
    assert found[-1] == IDLE_US


def test_the_first_null_after_a_lone_message_waits_half_of_t_send() -> None:
    idle = [NULL] * len(MEMBERS)
    policy, s = after(*idle, (Flag.LONE, b"data"))
    assert policy.wait_us(RING, s) == T_SEND_US // 2
    policy, s = after(*idle, (Flag.LONE, b"data"), NULL)
    assert policy.wait_us(RING, s) == 0


def test_a_message_is_lone_after_a_silence() -> None:
    policy, s = after(DATA)
    sent_us = 10_000 * s
    assert not policy.is_lone(sent_us + 2 * T_SEND_US)
    assert policy.is_lone(sent_us + 2 * T_SEND_US + 1)


def test_the_token_is_wanted_for_a_round_after_a_turn_that_left_messages_behind() -> None:
    wanted = (Flag.WANTED, b"data")
    for nulls in range(len(MEMBERS)):
        policy, _ = after(wanted, *[NULL] * nulls)
        assert policy.is_wanted(len(MEMBERS))
    policy, _ = after(wanted, *[NULL] * len(MEMBERS))
    assert not policy.is_wanted(len(MEMBERS))
    assert not after(wanted)[0].is_wanted(1), "a member alone passes it to no other"


@pytest.mark.rule("RNG-8")
def test_acks_are_awaited_for_the_turn_that_asked_for_them() -> None:
    policy, s = after((Flag.SAFE | Flag.ACK, b"data"))
    assert policy.awaits_acks(s, s - 1) and not policy.awaits_acks(s, s)
    assert not policy.awaits_acks(s + 1, s)


def test_a_turn_that_was_passed_early_is_remembered_until_the_next_ring() -> None:
    policy, s = after(DATA)
    policy.note_passed(s + 2)
    policy.note_passed(s + 1)
    assert policy.was_passed(s + 1) and not policy.was_passed(s + 2)
    policy.new_ring()
    assert not policy.was_passed(s)
