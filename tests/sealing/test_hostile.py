"""Strangers between members: what they repeat, forge and squeeze in costs no member a session."""

from __future__ import annotations

import pytest

from tests.sealing.stage import OTHER_KEY, Sealed, acquainted, carry, identified
from unisono.sealing.identity import Signer
from unisono.sealing.keys import Keyring
from unisono.sealing.records import FRONT_BYTES, SignedChallenge, SignedHello
from unisono.sealing.seal import SINGLY_COUNT, SINGLY_COUNT_MAX
from unisono.sealing.sessions import ASK_AGAIN_US, SIGNED_COUNT_MAX, SIGNED_US
from unisono.wire import seal, tag_of

TRAIN = [bytes([n]) * 200 for n in range(9)]


def test_who_repeats_the_name_of_a_session_does_not_keep_it_from_being_asked() -> None:
    a, b, thief = Sealed("a"), Sealed("b"), Sealed("t")
    for n in range(5):
        b.now_us = a.now_us = n * ASK_AGAIN_US
        packet = a.packets(b"%d" % n * 100)
        assert b.take(thief, packet), "the thief is asked, and cannot answer"
        carry(a, b, packet)
    assert b.heard == [b"%d" % n * 100 for n in range(5)]


@pytest.mark.parametrize("as_train", [True, False])
@pytest.mark.parametrize("known", [True, False])
def test_a_forged_front_swallows_nothing_behind_it(known: bool, as_train: bool) -> None:
    """It arrives with the sender's address, and in one burst with what the sender sent."""
    a, b = acquainted()
    sent = a.packets(*TRAIN, as_train=as_train)
    forged = bytearray(a.packets(*TRAIN)[0].ljust(len(sent[0]), b"\0")[: len(sent[0])])
    forged[FRONT_BYTES + 2 : FRONT_BYTES + 6] = (65_000).to_bytes(4, "big")
    if not known:
        forged[11:19] = b"nobody's"
    carry(a, b, [bytes(forged), *sent])
    assert b.heard == TRAIN


def lose(a: Sealed, b: Sealed) -> None:
    """A packet of a train is lost; the receiver says so with the next train."""
    sent = a.packets(*TRAIN)
    b.now_us += ASK_AGAIN_US
    for piece in (sent[:4], sent[5:], a.packets(b"next" * 50)):
        carry(a, b, piece)


def test_losses_in_a_row_are_dearer_and_rare_ones_are_not() -> None:
    a, b = acquainted()

    def trains_until(singly: int) -> None:
        for _ in range(singly):
            assert a.seal._singly_left
            a.packets(*TRAIN)
        assert not a.seal._singly_left

    for singly in (SINGLY_COUNT, 2 * SINGLY_COUNT, 4 * SINGLY_COUNT):
        lose(a, b)
        trains_until(singly)
    for _ in range(4 * SINGLY_COUNT):
        a.packets(*TRAIN)
    lose(a, b)
    trains_until(SINGLY_COUNT)
    assert SINGLY_COUNT_MAX > SINGLY_COUNT


def test_many_receivers_that_lose_one_train_count_once() -> None:
    a, b = acquainted()
    others = [Sealed(name) for name in "cde"]
    for other in others:
        carry(a, other, a.packets(bytes(100)))
        carry(other, a, other.packets(bytes(100)))
    sent, after = a.packets(*TRAIN), a.packets(b"next" * 50)
    for each in (b, *others):
        each.now_us = ASK_AGAIN_US
        for piece in (sent[:4], after):
            carry(a, each, piece)
    assert a.seal._singly_left == SINGLY_COUNT


def test_replayed_greetings_cost_few_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    """And who is under way is met as soon as they are fewer."""
    a, b, c = identified("abc")
    ((_, challenge),) = b.take(a, a.packets(bytes(200)))
    signed = 0
    sign = Signer._signed

    def counting(signer: Signer, greeting: SignedChallenge | SignedHello) -> bytes:
        nonlocal signed
        signed += 1
        return sign(signer, greeting)

    monkeypatch.setattr(Signer, "_signed", counting)
    for n in range(3 * SIGNED_COUNT_MAX):
        a.take(b, [challenge])
        front = bytearray(c.packets(bytes(400))[0])
        front[11:19] = n.to_bytes(8, "big")
        a.take(c, [front])
    assert signed <= SIGNED_COUNT_MAX and a.dropped("busy")
    a.now_us = b.now_us = c.now_us = SIGNED_US
    carry(c, a, c.packets(bytes(400)))
    assert a.heard == [bytes(400)]


def test_members_with_different_keys_answer_each_other_once() -> None:
    a, b = Sealed("a", Keyring((OTHER_KEY,))), Sealed("b")
    ((to, notice),) = b.take(a, a.packets(bytes(100)))
    assert to == a.address and not a.take(b, [notice])
    assert "not in this keyring" in a.seal.unread
    assert not b.take(a, a.packets(bytes(100))), "not for every packet"
    short = seal(3, 1, tag_of("g"), 0, b"open")
    b.now_us = ASK_AGAIN_US
    assert not b.take(a, [short]) and b.dropped("open") == 1


def test_a_notice_that_was_drawn_to_a_member_is_nothing_to_it() -> None:
    """A stranger had it sent to the address of a member, which can read it: it is empty."""
    a, b = acquainted()
    ((to, notice),) = b.take(a, [seal(3, 1, tag_of("g"), 0, bytes(50))])
    assert to == a.address
    a.take(b, [notice])
    assert not a.heard and not a.seal.unread
