"""Sealed packets: only what a member of the group sent is believed, once, and now."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sealing.stage import KEY, OTHER_KEY, Sealed, acquainted, carry
from unisono.errors import BadPacket
from unisono.model import Burst
from unisono.sealing.greeting import CHALLENGE_BYTES
from unisono.sealing.keys import Keyring
from unisono.sealing.records import FRONT_BYTES, OVERHEAD_BYTES, TRAIN_COUNT_MIN
from unisono.sealing.replay import WINDOW, ReplayWindow
from unisono.sealing.seal import SINGLY_COUNT
from unisono.sealing.sessions import HELD_BYTES_MAX, HELD_SESSIONS_MAX, MOVE_US
from unisono.wire import seal, tag_of, unseal

TRAIN = [bytes([n]) * 200 for n in range(9)] + [b"last"]


@settings(max_examples=150, deadline=None)
@given(
    size=st.integers(1, 1400),
    count=st.integers(1, 64),
    last=st.integers(1, 1400),
    as_train=st.booleans(),
    together=st.booleans(),
)
def test_a_train_and_single_packets_open_to_the_same(
    size: int, count: int, last: int, as_train: bool, together: bool
) -> None:
    """Sealing singly is the slow twin of sealing a train."""
    a, b = acquainted()
    roll = Random(size)
    said = [roll.randbytes(size) for _ in range(count - 1)] + [roll.randbytes(min(size, last))]
    sent = a.packets(*said, as_train=as_train)
    assert len(sent) == count
    assert max(map(len, sent)) <= size + OVERHEAD_BYTES
    carry(a, b, sent, together)
    assert b.heard == said
    assert not [name for name in b.counts if name.startswith("drop.")]


def test_a_train_is_one_record() -> None:
    a, b = acquainted()
    sent = a.packets(*TRAIN)
    assert sum(map(len, sent)) < sum(map(len, TRAIN)) + 2 * OVERHEAD_BYTES
    carry(a, b, sent)
    assert b.heard == TRAIN


@pytest.mark.rule("RMP-21")
@pytest.mark.parametrize("as_train", [True, False])
def test_a_changed_bit_anywhere_is_never_believed(as_train: bool) -> None:
    a, b = acquainted()
    sent = b"".join(a.packets(*TRAIN[:4], as_train=as_train))
    length = -(-len(sent) // 4)
    for at in range(0, len(sent)):
        forged = bytearray(sent)
        forged[at] ^= 1 << at % 8
        b.take(a, [forged[n : n + length] for n in range(0, len(forged), length)])
        assert all(packet in TRAIN for packet in b.heard), at
        if as_train:
            assert not b.heard, at
    drops = sum(count for name, count in b.counts.items() if name.startswith("drop."))
    assert drops >= len(sent)


@pytest.mark.rule("RMP-21")
def test_what_is_not_sealed_is_dropped_and_told() -> None:
    a, b = acquainted()
    open_packet = seal(3, 1, tag_of("g"), 0, b"forged")
    b.take(a, [open_packet])
    assert not b.heard and b.dropped("open") == 1
    assert "not sealed: give key=" in b.seal.unread
    others = [b"noise", bytes(200), seal(3, 1, tag_of("other"), 0, b"of another group")]
    b.take(a, others, together=False)
    assert b.dropped("foreign") == 3 and not b.heard


def test_an_open_member_learns_that_its_group_is_sealed() -> None:
    a = Sealed("a")
    for group, reason in (("g", "sealed"), ("other", "foreign")):
        with pytest.raises(BadPacket, match=reason):
            unseal(a.packets(bytes(100))[0], 3, tag_of(group))


def test_a_packet_is_believed_once() -> None:
    a, b = acquainted()
    for sent in (a.packets(b"single" * 9), a.packets(*TRAIN)):
        carry(a, b, sent)
        heard = len(b.heard)
        carry(a, b, sent)
        assert len(b.heard) == heard
    assert b.dropped("replay")


def test_packets_of_a_former_life_are_not_believed() -> None:
    """Recorded, and played to a process that began later and never met the session."""
    a, b = acquainted()
    recorded = [*a.packets(b"old" * 40), *a.packets(*TRAIN)]
    newcomer = Sealed("c")
    replies = newcomer.take(a, recorded, together=False)
    assert replies and not newcomer.heard, "who sent it is challenged, and gone"
    # Whoever recorded an answer of that time has none to this challenge.
    hello = a.seal.open([(b.address, [replies[0][1]])], 0)[1][0][1]
    later = Sealed("d")
    later.take(a, [hello])
    later.take(a, recorded, together=False)
    assert not later.heard and later.dropped("replay") == 1


def test_a_challenge_grows_old() -> None:
    a, b = Sealed("a"), Sealed("b")
    ((_, challenge),) = b.take(a, a.packets(bytes(100)))
    ((_, hello),) = a.take(b, [challenge])
    b.now_us = 9_000_000
    b.take(a, [hello])
    assert b.dropped("replay") == 1 and not b.heard


def test_one_session_is_challenged_once_and_by_no_more_than_it_sent() -> None:
    a, b = Sealed("a"), Sealed("b")
    assert len(b.take(a, a.packets(bytes(100)))) == 1
    assert not b.take(a, a.packets(bytes(100))), "an answer is under way"
    short = Sealed("c").packets(b"x")[0]
    assert len(short) < CHALLENGE_BYTES and not b.take(Sealed("c"), [short])


def test_strangers_fill_no_memory() -> None:
    b = Sealed("b")
    for life in range(3 * HELD_SESSIONS_MAX):
        stranger = Sealed("s", life=life)
        for _ in range(2):
            b.take(stranger, stranger.packets(*[bytes(1300)] * 60, as_train=False))
    held = b.seal._peers._held
    assert len(held) <= HELD_SESSIONS_MAX
    for some in held.values():
        assert some.nbytes == sum(len(each.buffer) for each in some.bursts) <= HELD_BYTES_MAX
    assert b.dropped("stranger")


def test_a_train_in_pieces_is_put_together() -> None:
    a, b = acquainted()
    sent = a.packets(*TRAIN)
    for piece in (sent[:3], sent[3:4], sent[4:]):
        carry(a, b, piece)
    assert b.heard == TRAIN


@pytest.mark.parametrize("lost", [0, 4, 9])
def test_a_train_that_lacks_a_packet_is_lost_and_the_next_are_sealed_singly(lost: int) -> None:
    a, b = acquainted()
    sent = a.packets(*TRAIN)
    carry(a, b, sent[:lost] + sent[lost + 1 :])
    assert not b.heard
    carry(a, b, a.packets(*TRAIN))
    assert b.heard == TRAIN
    if lost == 0:
        return  # Nobody can tell which train it was.
    singly = a.packets(*TRAIN)
    assert b.dropped("incomplete") == 1
    del singly[3]
    carry(a, b, singly)
    assert b.heard[len(TRAIN) :] == TRAIN[:3] + TRAIN[4:]
    for _ in range(SINGLY_COUNT):
        last = a.packets(*TRAIN)
    assert len(last[1]) < len(TRAIN[1]) + OVERHEAD_BYTES, "then in trains again"


def test_a_forged_packet_beside_a_train_does_not_cost_it() -> None:
    a, b = acquainted()
    sent = a.packets(*TRAIN)
    forged = bytearray(a.packets(*TRAIN)[0])  # It claims all that follows.
    carry(a, b, [bytes(forged), *sent])
    assert b.heard == TRAIN
    assert b.dropped("bad_tag") == 1


def test_a_forged_packet_within_a_train_costs_no_more_than_that_train() -> None:
    a, b = acquainted()
    sent = a.packets(*TRAIN)
    carry(a, b, [*sent[:4], bytes(len(sent[0])), *sent[4:]])
    assert not b.heard
    for _ in range(3):
        sent = a.packets(*TRAIN)
        carry(a, b, [*sent[:4], bytes(len(sent[0])), *sent[4:]])
    assert b.heard == 3 * TRAIN


def test_only_a_member_can_ask_for_single_packets() -> None:
    a, b = acquainted()
    forged = bytearray(b.packets(bytes(8))[0])
    forged[2] = 3
    carry(b, a, [forged])
    assert a.seal._singly_left == 0


def test_a_packet_from_another_address_is_not_believed_until_it_is_proved() -> None:
    a, b = acquainted()
    thief = Sealed("t")
    b.now_us = MOVE_US
    replies = b.take(thief, a.packets(bytes(100)))
    assert not b.heard and [to for to, _ in replies] == [thief.address]
    moved = Sealed("a")
    moved.seal, moved.address = a.seal, thief.address
    ((_, hello),) = moved.take(b, [replies[0][1]])
    b.take(Sealed("u"), [hello])
    assert not b.heard and b.dropped("replay") == 1, "an answer counts where it was asked for"
    b.take(moved, [hello])
    assert b.heard == [bytes(100)], "where addresses are translated, it may move"


def test_who_relays_challenges_and_answers_takes_no_member_away() -> None:
    """It copies a packet, has the member itself answer, and gives the answer for its own."""
    a, b = acquainted()
    thief = Sealed("t")
    ((_, challenge),) = b.take(thief, a.packets(bytes(100)))
    ((to, hello),) = a.take(thief, [challenge])
    assert to == thief.address
    b.take(thief, [hello])
    assert b.dropped("moved") == 1
    carry(a, b, a.packets(b"still heard" * 9))
    assert b.heard == [b"still heard" * 9]


def test_a_member_that_seals_what_no_member_sends_is_counted() -> None:
    a, b = acquainted()
    carry(a, b, [a.seal._sealed(9, bytes(50))])
    assert not b.heard and b.dropped("malformed") == 1


# -- keys ------------------------------------------------------------------------------------------


def test_members_with_different_keys_do_not_hear_each_other_and_are_told() -> None:
    a, b = Sealed("a", Keyring((OTHER_KEY,))), Sealed("b")
    carry(a, b, a.packets(bytes(100)))
    assert not b.heard and b.dropped("no_key") == 1
    assert "not in this keyring: install it" in b.seal.unread
    assert KEY.hex() not in b.seal.unread and OTHER_KEY.hex() not in b.seal.unread


def test_the_same_key_is_another_in_another_group() -> None:
    a, b = Sealed("a", group="other"), Sealed("b")
    carry(a, b, a.packets(bytes(100)))
    assert not b.heard and b.dropped("foreign") == 1


def test_a_key_is_changed_without_losing_a_packet() -> None:
    a, b = acquainted()
    both, swapped, new = Keyring((KEY, OTHER_KEY)), Keyring((OTHER_KEY, KEY)), Keyring((OTHER_KEY,))
    said = 0
    for who, keyring in [(w, k) for k in (both, swapped, new) for w in (a, b)]:
        who.seal.rekey(keyring)
        for sender, receiver in ((a, b), (b, a)):
            carry(sender, receiver, sender.packets(*TRAIN))
            carry(sender, receiver, sender.packets(b"x" * 70))
        said += 1
    for one in (a, b):
        assert one.heard == [*TRAIN, b"x" * 70] * said
        assert not one.seal.unread


def test_a_member_that_was_absent_while_the_key_changed_is_told() -> None:
    a, b = acquainted()
    b.seal.rekey(Keyring((OTHER_KEY, KEY)))
    b.seal.rekey(Keyring((OTHER_KEY,)))
    carry(a, b, a.packets(bytes(100)))
    carry(b, a, b.packets(bytes(100)))
    assert b.dropped("old_key") and a.dropped("no_key")
    assert a.seal.unread and b.seal.unread
    a.seal.rekey(Keyring((OTHER_KEY,)))
    carry(a, b, a.packets(bytes(100)))
    assert b.heard == [bytes(100)]


# -- forging in volume -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_mangled_packets_never_raise_and_are_never_believed(seed: int) -> None:
    a, b = acquainted()
    roll = Random(seed)
    said: set[bytes] = set(TRAIN)
    for _ in range(1500):
        sent = bytearray(b"".join(a.packets(*TRAIN[: roll.randint(1, 10)])))
        for _ in range(roll.randint(0, 3)):
            at = roll.randrange(
                min(len(sent), FRONT_BYTES + 8) if roll.random() < 0.7 else len(sent)
            )
            sent[at] = roll.randrange(256)
        if roll.random() < 0.3:
            del sent[roll.randrange(1, len(sent)) :]
        b.seal.open([(a.address, Burst(memoryview(sent), roll.randint(1, len(sent))))], 0)
        carry(a, b, [bytes(sent)])
    assert set(b.heard) <= said


@given(st.lists(st.integers(0, 3 * WINDOW), max_size=200))
def test_the_window_equals_a_set(counters: list[int]) -> None:
    window, seen = ReplayWindow(), set[int]()
    for counter in counters:
        newest = max(seen, default=-1)
        assert window.is_new(counter) == (counter not in seen and counter > newest - WINDOW)
        if window.is_new(counter):
            window.add(counter)
            seen.add(counter)


def test_few_packets_are_no_train() -> None:
    a, b = acquainted()
    sent = a.packets(*TRAIN[: TRAIN_COUNT_MIN - 1])
    carry(a, b, sent[1:])
    assert b.heard == TRAIN[1 : TRAIN_COUNT_MIN - 1], "a lost one costs no other"
