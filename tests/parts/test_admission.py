"""Terms, and the note that tells them: what members have alike, and who must yield."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.core import (
    Arm,
    CoreConfig,
    Disarm,
    Effect,
    Event,
    Expired,
    Fail,
    Install,
    Join,
    Received,
    Send,
    Timer,
    Warn,
)
from unisono.errors import BadPacket
from unisono.model import Address, Member
from unisono.parts.admission import NOTED_MAX, NOTES_PAUSE_US, Admission, Note, Terms
from unisono.parts.codec import PacketCodec
from unisono.protocols import spec
from unisono.wire import note_in, seal

HERE, THERE = Address("10.0.0.1", 7000), Address("10.0.0.2", 7000)


def terms(protocol: str = "ring", with_state: bool = False, **options: int) -> Terms:
    setting = CoreConfig(Member("a", HERE, 1), "orders", seed=0, with_state=with_state)
    return Terms.of(setting, protocol, options)


def door_of(mine: Terms, protocol: int = 3) -> PacketCodec:
    return PacketCodec(protocol, {1: "one"}, mine)


def told(mine: Terms, *packets: bytes, size: int, now_us: int = 0) -> tuple[str, list[Effect]]:
    codec, out = door_of(mine), list[Effect]()
    list(codec.admit(packets))
    return Admission(codec, mine).look(THERE, now_us, size, out), out


def note(theirs: Terms, size: int, age_ms: int = 0) -> bytes:
    return Note(theirs.tag >> 32, size, age_ms, theirs.fields).sealed()


def test_the_order_of_options_does_not_matter_and_their_values_do() -> None:
    assert terms(sites=3, tries=2).tag == terms(tries=2, sites=3).tag
    assert len({terms(sites=n).tag for n in range(1000)}) == 1000
    assert len({terms(sites=n).tag >> 32 for n in range(1000)}) == 1, "the name's half"
    assert terms().tag != terms("mtp").tag != terms(with_state=True).tag


def test_a_joiner_with_other_terms_is_refused_with_the_reason() -> None:
    mine, theirs = terms(sites=3), terms(sites=2)
    reason, out = told(mine, seal(3, 1, theirs.tag, 0, b"let me in"), size=2)
    assert reason == "" and isinstance(out[0], Send) and out[0].to == (THERE,)
    (packet,) = out[0].packets
    reason, out = told(theirs, bytes(packet), size=0)
    assert reason == (
        "the group 'orders' has sites=3 and this member has sites=2: give sites=3, or join a group"
        " of another name"
    )
    assert not out


@pytest.mark.parametrize(
    ("mine", "words"),
    [
        (terms("mtp", tokens=3), "protocol=ring and this member has protocol=mtp: give"),
        (terms(with_state=True), "state=false and this member has state=true: leave out snapshot="),
        (terms(tries=2), "tries=unknown and this member has tries=2: leave out tries="),
    ],
)
def test_the_reason_names_what_differs_with_both_values(mine: Terms, words: str) -> None:
    reason, _ = told(mine, note(terms(), size=1), size=0)
    assert words in reason


def test_packets_of_the_group_under_another_protocol_or_version_are_answered() -> None:
    mine = terms()
    good = seal(3, 1, mine.tag, 0, b"")
    for odd in (seal(1, 1, mine.tag, 0, b""), good[:2] + b"\x63" + good[3:]):
        _, out = told(mine, odd, size=1)
        assert len(out) == 1
    _, out = told(mine, good, seal(3, 1, Terms("other").tag, 0, b""), size=1)
    assert not out, "nor is another group's"


def test_a_member_that_is_not_alone_never_yields() -> None:
    reason, out = told(terms(), note(terms(sites=2), size=60_000, age_ms=1 << 31), size=2)
    assert (reason, out) == ("", [])


def test_one_alone_yields_to_more_or_to_the_elder() -> None:
    mine, theirs = terms(), terms(sites=2)
    assert told(mine, note(theirs, size=2), size=1)[0]
    assert told(mine, note(theirs, size=1, age_ms=1), size=1)[0]
    codec, out = door_of(mine), list[Effect]()
    admission = Admission(codec, mine)
    admission.entered(0)
    list(codec.admit([note(theirs, size=1, age_ms=4_000)]))
    assert admission.look(THERE, 5_000_000, 1, out) == ""


@pytest.mark.parametrize(
    "protocol, options", [("ring", {"sites": 1}), ("mtp", {"master": 1}), ("rmcast", {})]
)
def test_a_member_is_as_old_as_its_first_view(protocol: str, options: dict[str, int]) -> None:
    """Alone for 5 s, it does not yield to one that has been alone for 4 s."""
    core = spec(protocol).make(CoreConfig(Member("a", HERE, 1), "orders", 0, options=options))
    timers: dict[Timer, int] = {}
    now_us, entered_us = 0, 0
    event: Event = Join()
    while not entered_us or now_us < entered_us + 5_000_000:
        for effect in core.step(now_us, event):
            if isinstance(effect, Arm):
                timers[effect.timer] = now_us + effect.after_us
            elif isinstance(effect, Disarm):
                timers.pop(effect.timer, None)
            elif isinstance(effect, Install):
                entered_us = entered_us or now_us
        timer = min(timers, key=timers.__getitem__)
        now_us, event = timers.pop(timer), Expired(timer)
    theirs = note(Terms("orders", (("protocol", "other"),)), size=1, age_ms=4_000)
    out = core.step(now_us, Received(THERE, [theirs]))
    assert not any(isinstance(effect, Fail) for effect in out)


def test_of_two_that_came_at_once_just_one_yields() -> None:
    mine, theirs = terms(), terms(sites=2)
    yields = [
        bool(told(one, note(other, size=1), size=1)[0])
        for one, other in ((mine, theirs), (theirs, mine))
    ]
    assert sorted(yields) == [False, True]


def test_two_outside_warn_each_other_and_wait() -> None:
    reason, out = told(terms(), note(terms(sites=2), size=0), size=0)
    assert reason == "" and isinstance(out[0], Warn) and "sites=2" in out[0].text


def test_a_note_that_is_equal_or_of_another_group_changes_nothing() -> None:
    other = Terms("other", terms(sites=2).fields)
    assert told(terms(), note(terms(), size=9), note(other, size=9), size=0) == ("", [])


def test_notes_to_one_address_and_to_many_are_bounded() -> None:
    mine = terms()
    codec, out = door_of(mine), list[Effect]()
    admission = Admission(codec, mine)

    def knock(host: int, now_us: int) -> int:
        list(codec.admit([seal(3, 1, mine.tag ^ 1, 0, b"")]))
        out.clear()
        admission.look(Address(f"10.1.{host // 256}.{host % 256}", 7), now_us, 1, out)
        return len(out)

    assert [knock(1, n) for n in range(100)].count(1) == 1
    assert sum(knock(n, 200) for n in range(2, 1000)) == NOTED_MAX - 1
    assert knock(1, NOTES_PAUSE_US + 1) == 1


@given(st.binary(max_size=200))
def test_hostile_notes_raise_nothing_else(body: bytes) -> None:
    with contextlib.suppress(BadPacket):
        Note.read(memoryview(body))


@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**16 - 1),
    st.integers(0, 2**32 - 1),
    st.lists(st.tuples(st.text("abc=_", max_size=9), st.text("0189", max_size=9)), max_size=9),
)
def test_notes_round_trip(
    group: int, size: int, age_ms: int, fields: list[tuple[str, str]]
) -> None:
    made = Note(group, size, age_ms, tuple(fields))
    body = note_in(made.sealed())
    assert body is not None and Note.read(body) == made
    broken = bytearray(made.sealed())
    broken[-1] ^= 1
    assert note_in(broken) is None
