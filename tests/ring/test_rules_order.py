"""What the paper asks of order and atomicity, rule by rule: the token, repair, what is safe."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.ring.harness import (
    EVERYONE,
    S,
    at_rest,
    control,
    delivered_in,
    handed,
    header_of,
    holder_of,
    lawful,
    losing,
    packets_in,
    quiet,
    ring_order,
    sealed,
    site,
    step,
    together,
    turn,
    turns_of,
)
from unisono.core import Multicast
from unisono.layout import encode
from unisono.model import Service
from unisono.parts.turn import OriginRun, write_runs
from unisono.protocols.ring.codes import Code
from unisono.protocols.ring.ordering import HISTORY_ROUNDS
from unisono.protocols.ring.packets import NO_HEADER, TURN, WHOLE, Flag, ResendRequest

NORMAL = {Code.TOKEN_BC, Code.FAST_ACK, Code.DATA_BC_RQU}


# -- RNG-2 virtual token ------------------------------------------------------------------------


@pytest.mark.rule("RNG-2")
def test_whose_turn_it_is_follows_from_s_and_each_turn_raises_it_by_one() -> None:
    """Member number (S+1) mod n holds the token; one ordered multicast per turn; no token packet
    exists."""
    room = together("a", "b", "c", "d")
    order = ring_order(room)
    for word in ("one", "two", "three"):
        room.obey(f"say a {word}\nsay c {word}\nadvance 20ms")
    said = [sent for sent in room.sent if sent.code is Code.TOKEN_BC]
    turns = [sent.packet.header.s for sent in said]
    assert len(turns) > 20
    assert turns == list(range(turns[0], turns[0] + len(turns))), "each turn is sent once"
    assert [sent.by for sent in said] == [order[s % len(order)] for s in turns]
    assert all(sent.to == EVERYONE for sent in said)
    assert {sent.code for sent in room.sent} <= NORMAL, "nothing is sent to pass the token on"
    assert {S(room, name) for name in order} <= {turns[-1], turns[-1] - 1}


@pytest.mark.rule("RNG-2")
def test_a_turn_of_one_that_does_not_hold_the_token_is_not_taken() -> None:
    room = quiet("a", "b", "c")
    s = at_rest(room)
    holder, (second, third) = holder_of(room, s), others(room, holder_of(room, s))
    wrong = turn(room, s + 1, "mine", by=second)
    assert delivered_in(step(room, third, handed(room, second, wrong))) == []
    assert S(room, third) == s
    assert site(room, third).counts["drop.turn"] == 1
    right = turn(room, s + 1, "yours")
    assert delivered_in(step(room, third, handed(room, holder, right))) == ["yours"]
    assert S(room, third) == s + 1


@pytest.mark.rule("RNG-2")
def test_no_loss_loses_the_token() -> None:
    """Of every packet in turn one is lost, and the ring goes on as it was."""
    room = quiet("a", "b", "c")
    version = site(room, "a").state.ring.version
    count = 0

    def loses(by: str, to: str, packet: Any) -> bool:
        nonlocal count
        count += 1
        return count % 5 == 0

    room.loses = loses
    for number in range(20):
        room.obey(f"say a {number}\nadvance 20ms")
    room.loses = None
    room.pass_ms(300)
    assert {name: room.words(name) for name in "abc"} == {
        name: [str(number) for number in range(20)] for name in "abc"
    }
    assert {site(room, name).state.ring.version for name in "abc"} == {version}


def others(room: Any, *names: str) -> list[str]:
    return [name for name in ring_order(room) if name not in names]


# -- RNG-3 null ---------------------------------------------------------------------------------


@pytest.mark.rule("RNG-3")
def test_a_holder_with_nothing_to_send_multicasts_null_after_t_send() -> None:
    """With the paper's half a second: the token moves on though all are idle."""
    room = together("a", "b", "c", t_send_us=500_000, idle_us=500_000, t_rt_us=1_000_000)
    room.pass_ms(2_000)
    room.hush()
    room.pass_ms(5_000)
    said = room.of(Code.TOKEN_BC)
    assert len(said) >= 9
    assert all(not sent.packet.pieces[0] for sent in said), "NULL"
    assert {sent.by for sent in said} == {"a", "b", "c"}
    waits = [after.at_us - before.at_us for before, after in pairwise(said)]
    assert set(waits) == {501_000}, "T_SEND, and a millisecond on the way"
    assert {sent.code for sent in room.sent} == {Code.TOKEN_BC}


@pytest.mark.rule("RNG-3")
def test_a_holder_with_something_to_send_does_not_wait() -> None:
    room = quiet("a", "b", "c")
    s = at_rest(room)
    holder = holder_of(room, s)
    ((to, said),) = packets_in(step(room, holder, Multicast([b"now"], Service.AGREED)))
    assert (to, said.header.s) == (EVERYONE, s + 1)
    assert b"now" in bytes(said.pieces[0])


# -- RNG-4 fast ---------------------------------------------------------------------------------


@pytest.mark.rule("RNG-4")
def test_urgent_messages_are_delegated_to_the_holder() -> None:
    """On a quiet ring all is urgent: it would wait for the token to come round."""
    room = quiet("a", "b", "c", "d")
    s = at_rest(room)
    holder = holder_of(room, s)
    far = holder_of(room, s + 2)
    ((to, request),) = packets_in(step(room, far, Multicast([b"urgent"], Service.AGREED)))
    assert to == (room.actors[holder].address,), "to the holder alone"
    asked = sealed(Code.DATA_BC_RQU, request.header, bytes(request.piece))
    ((to, said),) = packets_in(step(room, holder, handed(room, far, asked)))
    assert (to, said.header.s, said.header.sender) == (
        EVERYONE,
        s + 1,
        site(room, holder).state.key,
    )
    turn = handed(room, holder, room_packet(said))
    heard = step(room, far, turn)
    ((to, ack),) = packets_in(heard)
    assert (to, ack.code, ack.header.s) == (EVERYONE, Code.FAST_ACK, s + 1)
    has_it = handed(room, far, sealed(Code.FAST_ACK, ack.header))
    for name in room.actors.keys() - {far}:
        if name != holder:
            assert not delivered_in(step(room, name, turn)), "its originator may not have it"
        heard = step(room, name, has_it)
        (message,) = [m for effect in heard for m in getattr(effect, "messages", ())]
        assert (message.sender.name, message.payload, message.number) == (far, b"urgent", 1)


def room_packet(said: Any) -> bytes:
    """A turn of a core, as it is on the wire."""
    return sealed(
        Code.TOKEN_BC, said.header, TURN.pack(said.of, said.flags, said.at) + bytes(said.pieces[0])
    )


@pytest.mark.rule("RNG-4")
def test_a_delegated_message_precedes_the_originators_own_turn() -> None:
    room = quiet("a", "b", "c", "d", "e", idle_us=4_000_000)
    room.pass_ms(5_000)
    s = at_rest(room)
    far = holder_of(room, s + 2)
    at_us = room.now_us
    room.obey(f"service agreed\nsay {far} urgent")
    room.until(lambda: all(room.words(name) == ["urgent"] for name in "abcde"))
    assert room.now_us - at_us <= 5_000
    assert [m.sender.name for _, m in room.heard["a"]] == [far]


@pytest.mark.rule("RNG-4")
def test_a_delegated_message_has_one_position_though_its_turn_is_lost() -> None:
    """The turn reaches one member alone, which is lost with the holder: the originator sends its
    message again, and no member has delivered it at its former position."""
    room = quiet("a", "b", "c", "d", "e")
    s = at_rest(room)
    holder, other, far = holder_of(room, s), holder_of(room, s + 1), holder_of(room, s + 2)

    def only_to_other(source: str, target: str, packet: Any) -> bool:
        return {source, target} & {holder, other} != set() and (
            (source, target) != (holder, other) if source == holder else source == other
        )

    room.obey("service agreed")
    room.loses = only_to_other
    room.obey(f"say {far} once")
    room.until(lambda: S(room, other) > s)
    assert not room.words(holder)
    assert not room.words(other)
    rest = set("abcde") - {holder, other}
    room.until(lambda: all(room.words(name) == ["once"] for name in rest))
    room.loses = None
    room.pass_ms(2_000)
    lawful(room)


@pytest.mark.rule("RNG-4")
def test_a_message_delegated_twice_is_delivered_once() -> None:
    """Two holders were asked, for the first answer was lost: the second copy is passed over."""
    room = quiet("a", "b", "c")
    s = at_rest(room)
    first, second, third = (holder_of(room, s + more) for more in range(3))
    one = turn(room, s + 1, "word", by=first, origin=third)
    two = turn(room, s + 2, "word", "next", by=second, origin=third)
    assert delivered_in(step(room, third, handed(room, first, one))) == ["word"]
    assert delivered_in(step(room, third, handed(room, second, two))) == ["next"]


# -- RNG-5 queues -------------------------------------------------------------------------------


@pytest.mark.rule("RNG-5")
def test_what_is_early_waits_and_is_linked_when_the_gap_closes() -> None:
    """In-order messages to QDAT, early ones to QSUS."""
    room = quiet("a", "b", "c", "d")
    s = at_rest(room)
    first, second, third, last = (holder_of(room, s + more) for more in range(4))
    early = turn(room, s + 3, "three", by=third)
    later = turn(room, s + 2, "two", by=second)
    assert delivered_in(step(room, last, handed(room, third, early))) == []
    assert delivered_in(step(room, last, handed(room, second, later))) == []
    assert S(room, last) == s
    assert site(room, last).receive.state.name == "RESEND"
    closing = step(room, last, handed(room, first, turn(room, s + 1, "one", by=first)))
    assert delivered_in(closing) == ["one", "two", "three"], "nothing had to come again"
    assert S(room, last) == s + 3
    assert site(room, last).receive.state.name == "NORMAL"
    again = step(room, last, handed(room, second, later))
    assert delivered_in(again) == [], "and nothing is delivered twice"


# -- RNG-6 repair -------------------------------------------------------------------------------


@pytest.mark.rule("RNG-6")
def test_a_gap_is_asked_from_the_sender_that_revealed_it() -> None:
    room = quiet("a", "b", "c", "d")
    s = at_rest(room)
    second, last = holder_of(room, s + 1), holder_of(room, s + 3)
    asked = packets_in(step(room, last, handed(room, second, turn(room, s + 2, "two", by=second))))
    ((to, request),) = [(to, p) for to, p in asked if not hasattr(p, "code")]
    assert to == (room.actors[second].address,)
    assert request.ranges == ((s + 1, 0, WHOLE),)


@pytest.mark.rule("RNG-6")
def test_a_repair_goes_to_the_requester_alone_unchanged() -> None:
    room = quiet("a", "b", "c", "d")
    s = at_rest(room)
    first, third, last = (holder_of(room, s + more) for more in (0, 2, 3))
    step(room, third, handed(room, first, turn(room, s + 1, "word", by=first)))
    ask = encode(ResendRequest(NO_HEADER, ((s + 1, 0, WHOLE),)))
    asked = handed(room, last, sealed(Code.RESEND_RQU, header_of(room, last), ask))
    ((to, again),) = packets_in(step(room, third, asked))
    assert to == (room.actors[last].address,)
    assert again.again
    assert (again.header.s, again.header.origin) == (s + 1, site(room, first).state.key)
    assert b"word" in bytes(again.pieces[0])


@pytest.mark.rule("RNG-6")
def test_a_sender_seen_to_be_behind_is_sent_what_it_lacks() -> None:
    """It is helped without a request: its S shows what it lacks."""
    room = quiet("a", "b", "c", "d")
    s = at_rest(room)
    first, second, last = (holder_of(room, s + more) for more in (0, 1, 3))
    step(room, last, handed(room, first, turn(room, s + 1, "one", by=first)))
    step(room, last, handed(room, second, turn(room, s + 2, "two", by=second)))
    sent = packets_in(step(room, last, control(room, second, Code.TS_ALIVE_RQU, s=s)))
    helped = [(to, p.header.s) for to, p in sent if getattr(p, "again", False)]
    assert helped == [((room.actors[second].address,), n) for n in (s + 1, s + 2)]


@pytest.mark.rule("RNG-6")
def test_a_holder_that_lags_is_helped_and_not_suspected() -> None:
    """It lacks the turn before its own, so it does not know that the token is here."""
    room = quiet("a", "b", "c", "d")
    version = site(room, "a").state.ring.version
    s = at_rest(room)
    first, second = holder_of(room, s), holder_of(room, s + 1)
    room.loses = losing(Code.TOKEN_BC, by=first, to=second)
    room.obey(f"say {first} word")
    room.until(lambda: S(room, first) > s)
    room.loses = None
    room.until(lambda: all(room.words(name) == ["word"] for name in "abcd"), late_ms=500)
    assert {site(room, name).state.ring.version for name in "abcd"} == {version}
    assert room.of(Code.RESEND_DATA)
    assert not room.of(Code.REF_INV_BC, Code.COORD_RQU)


# -- RNG-7 atomic by rotation -------------------------------------------------------------------


@pytest.mark.rule("RNG-7")
def test_without_acks_a_message_is_safe_after_a_full_round() -> None:
    room = quiet("a", "b", "c", "d")
    room.loses = losing(Code.FAST_ACK)
    s = at_rest(room)
    speaker = holder_of(room, s)
    room.obey(f"service safe\nsay {speaker} safe")
    room.until(lambda: len(room.heard) == 4)
    (said,) = [sent for sent in room.of(Code.TOKEN_BC) if b"safe" in bytes(sent.packet.pieces[0])]
    number = said.packet.header.s
    round_us = {
        sent.packet.header.s: sent.at_us
        for sent in room.of(Code.TOKEN_BC)
        if number < sent.packet.header.s
    }
    for name in "abcd":
        (when_us, _) = room.heard[name][0]
        spoken = {holder_of(room, n - 1) for n, at_us in round_us.items() if at_us <= when_us}
        assert spoken | {speaker} == set("abcd"), "all have had their turn, and so had the message"
        assert when_us <= round_us[number + 3] + 1_000, "and no longer"


@pytest.mark.rule("RNG-7")
def test_nothing_that_is_to_be_safe_is_delivered_on_receipt() -> None:
    room = quiet("a", "b", "c", "d")
    s = at_rest(room)
    first, second, third, last = (holder_of(room, s + more) for more in range(4))
    said = turn(room, s + 1, "safe", service=Service.SAFE, by=first, flags=Flag.SAFE)
    assert delivered_in(step(room, last, handed(room, first, said))) == []
    plain = turn(room, s + 2, "plain", by=second)
    assert delivered_in(step(room, last, handed(room, second, plain))) == [], "the order holds"
    round_ = step(room, last, handed(room, third, turn(room, s + 3, by=third)))
    assert delivered_in(round_) == ["safe", "plain"], "all others had it when they sent"


@pytest.mark.rule("RNG-7", "RNG-8")
def test_the_token_does_not_wait_for_missing_acks() -> None:
    """To keep the protocol alive, the holder continues though its messages are not atomic yet."""
    room = quiet("a", "b", "c", "d")
    room.loses = losing(Code.FAST_ACK)
    s = at_rest(room)
    room.obey(f"service safe\nsay {holder_of(room, s)} safe")
    room.pass_ms(10)
    assert min(S(room, name) for name in "abcd") >= s + 2
    assert not room.of(Code.TS_ALIVE_RQU)


# -- RNG-8 atomic by safety parameter -----------------------------------------------------------


@pytest.mark.rule("RNG-8")
def test_receivers_ack_to_the_next_holder_which_informs_all_a_phase_later() -> None:
    room = quiet("a", "b", "c", "d", "e")
    s = at_rest(room)
    speaker, following = holder_of(room, s), holder_of(room, s + 1)
    room.obey(f"service safe\nsay {speaker} safe")
    room.until(lambda: len(room.heard) == 5)
    (said,) = [sent for sent in room.of(Code.TOKEN_BC) if b"safe" in bytes(sent.packet.pieces[0])]
    acks = [a for a in room.of(Code.FAST_ACK) if a.at_us <= said.at_us + 1_000]
    assert {a.by for a in acks} == set("abcde") - {speaker, following}, "n - 2 of them"
    assert {a.to for a in acks} == {(room.actors[following].address,)}
    assert {a.packet.header.s for a in acks} == {s + 1}
    told = next(sent for sent in room.of(Code.TOKEN_BC) if sent.packet.header.s == s + 2)
    assert (told.by, told.packet.header.k) == (following, s + 1)
    assert told.at_us == said.at_us + 2_000, "with the last ack, at once"
    for name in "abcde":
        (when_us, _) = room.heard[name][0]
        assert when_us <= told.at_us + 1_000, "everyone delivers with the next turn"


@pytest.mark.rule("RNG-8")
def test_k_is_the_least_that_any_has() -> None:
    room = quiet("a", "b", "c", "d")
    s = at_rest(room)
    first, second, third, last = (holder_of(room, s + more) for more in range(4))
    said = turn(room, s + 1, "safe", service=Service.SAFE, by=first, flags=Flag.SAFE | Flag.ACK)
    step(room, second, handed(room, first, said))
    step(room, second, control(room, third, Code.FAST_ACK, s=s + 1))
    step(room, second, control(room, last, Code.FAST_ACK, s=s - 1))
    ((_, told),) = packets_in(step(room, second, Multicast([b"next"], Service.AGREED)))
    assert told.header.s == s + 2
    assert told.header.k < s + 1, "the last has not acknowledged it"


@pytest.mark.rule("RNG-8")
def test_all_up_to_k_is_delivered() -> None:
    room = quiet("a", "b", "c", "d")
    s = at_rest(room)
    first, second, last = holder_of(room, s), holder_of(room, s + 1), holder_of(room, s + 3)
    said = turn(room, s + 1, "safe", service=Service.SAFE, by=first, flags=Flag.SAFE | Flag.ACK)
    assert delivered_in(step(room, last, handed(room, first, said))) == []
    told = turn(room, s + 2, by=second, k=s + 1)
    assert delivered_in(step(room, last, handed(room, second, told))) == ["safe"]


# -- RNG-9 memory -------------------------------------------------------------------------------


@pytest.mark.rule("RNG-9")
def test_about_one_rings_worth_of_turns_is_kept() -> None:
    room = together("a", "b", "c", "d")
    for number in range(60):
        room.obey(f"say a {number}\nsay c {number}\nadvance 10ms")
        held = {name: len(site(room, name).ordering.window) for name in "abcd"}
        assert max(held.values()) <= (HISTORY_ROUNDS + 2) * 4, held
    assert len(room.words("d")) >= 110


@pytest.mark.rule("RNG-9")
def test_what_a_member_may_still_ask_for_is_kept() -> None:
    """One member receives nothing for a while; all that it lacks is still kept for it."""
    room = together("a", "b", "c", "d")
    room.pass_ms(20)
    deaf = "d"
    room.loses = lambda by, to, packet: to == deaf
    for number in range(10):
        room.obey(f"say a {number}\nsay b {number}")
        room.pass_ms(8)
    behind = S(room, deaf)
    room.loses = None
    for name in "abc":
        ordering = site(room, name).ordering
        here = [n for n in range(behind + 1, ordering.S + 1) if ordering.window.get(n)]
        assert here == list(range(behind + 1, ordering.S + 1))
    room.until(lambda: room.words(deaf) == room.words("a") and len(room.words("a")) == 20)
    assert seen_versions(room) == 1


def seen_versions(room: Any) -> int:
    return len({site(room, name).state.ring.version for name in room.actors})


# -- what a run is, for these tests -------------------------------------------------------------


def test_a_turn_of_our_making_is_as_one_of_theirs() -> None:
    room = quiet("a", "b", "c")
    s = at_rest(room)
    holder = holder_of(room, s)
    ((_, said),) = packets_in(step(room, holder, Multicast([b"word"], Service.AGREED)))
    mine = write_runs([OriginRun.of(site(room, holder).state.key, 1, [4], [b"word"])])
    assert bytes(said.pieces[0]) == mine
    assert turns_of(room) == []
