"""rmcast at its edges: what a review of its arguments found, and what its bounds promise."""

from __future__ import annotations

import pytest

from tests.rmcast.harness import GROUP, beat, core, packets_in, step, together
from tests.scenarios.stage import Stage
from unisono.core import EVERYONE, Congested, Deliver, Expired, Multicast, Received, Send
from unisono.model import Address, Member
from unisono.protocols.rmcast import ordering, state_transfer
from unisono.protocols.rmcast.control import Add, read_control, write_control
from unisono.protocols.rmcast.packets import (
    PROTOCOL,
    AckEntry,
    Beat,
    Data,
    Header,
    MessagePart,
    PacketKind,
    StreamStatus,
    write_header,
)
from unisono.protocols.rmcast.parameters import Parameters
from unisono.protocols.rmcast.roster import PeerState
from unisono.protocols.rmcast.states import Timer
from unisono.wire import seal


def data_from(stage: Stage, sender: str, origin: str, number: int, payload: bytes) -> Received:
    """A packet of `sender` that carries chunk `number` of the stream of `origin`."""
    who = core(stage, sender)
    header = write_header(who.roster.header())
    chunk = MessagePart(3, 3, payload, number, ())
    body = Data.body(header, core(stage, origin).roster.key, number, [chunk])
    packet = seal(PROTOCOL, PacketKind.DATA, GROUP, who.codec.life, body)
    return Received(stage.actors[sender].address, [packet])


# -- additions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(900, 1100, 20))
def test_a_newcomer_between_two_parts_does_not_stop_both(at: int) -> None:
    stage = together("a", "b", "c")
    stage.obey(f"start rmcast n\nsplit a | b c\nadvance {at}ms\njoin n\nadvance 4000ms")
    states = stage.obey("state a b c n")
    assert "MEMBER" in states, states


def test_an_addition_larger_than_a_packet_still_adds() -> None:
    name = "c" * 60
    stage = together("a", "b", packet=512)
    said = stage.obey(f"start rmcast {name}\njoin {name}\nadvance 1500ms")
    assert f"b view 3-{core(stage, 'b').views.id[2:]}" in said
    assert len(core(stage, "b").roster.group()) == 3


def test_many_newcomers_take_the_state_and_nothing_of_it_is_kept() -> None:
    names = [f"n{number}" for number in range(12)]
    stage = together("a", state=1)
    stage.actors["a"].log = ["x" * 100_000]
    stage.obey(f"start rmcast {' '.join(names)}\njoin {' '.join(names)}\nadvance 3000ms")
    assert len(core(stage, "a").roster.group()) == 13
    assert all(stage.actors[name].log[0] == "x" * 100_000 for name in names)
    stage.obey("advance 500ms")
    assert len(core(stage, "a").transfer._server) == 0
    assert core(stage, "a").sponsor._welcomes == {}


def test_packets_fit_the_path_with_many_members_and_state() -> None:
    sizes: list[int] = []
    carry = Stage._carry

    def listen(self: Stage, actor: object, to: object, packets: list[bytes]) -> None:
        sizes.extend(map(len, packets))
        carry(self, actor, to, packets)  # type: ignore[arg-type]

    names = [f"n{number}" for number in range(19)]
    stage = together("a", state=1)
    stage.actors["a"].log = ["x" * 20_000]
    Stage._carry = listen  # type: ignore[method-assign]
    try:
        stage.obey(f"start rmcast {' '.join(names)}\njoin {' '.join(names)}\nadvance 3000ms")
        stage.obey("shout a 20000\nadvance 100ms")
    finally:
        Stage._carry = carry  # type: ignore[method-assign]
    assert len(core(stage, "a").roster.group()) == 20
    assert max(sizes) <= 1400


def test_a_state_over_the_limit_stops_the_newcomer_with_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_transfer, "STATE_BYTES_MAX", 1_000)
    stage = together("a", state=1)
    stage.actors["a"].log = ["x" * 2_000]
    said = stage.obey("start rmcast b\njoin b\nadvance 300ms")
    assert "b stops: the group's state has 2000 bytes, over the limit of 1000" in said


def test_a_rank_out_of_bounds_is_malformed() -> None:
    member = Member("x", Address("10.0.0.9", 1), 1)
    good = write_control(Add(member, 5))
    assert read_control(good) == Add(member, 5)
    for bad in (write_control(Add(member, 2**32 - 1)), good + b"more", b"\x09"):
        with pytest.raises(ValueError, match=r"malformed|long"):
            read_control(bad)


# -- the failed ---------------------------------------------------------------------------------


@pytest.mark.rule("RMC-6")
def test_of_a_failed_member_only_what_a_survivor_delivered_is_delivered() -> None:
    """a has given up on c when b passes on a message of c's that b holds and did not deliver."""
    stage = together("a", "b", "c", "d")
    a, b, c_key = core(stage, "a"), core(stage, "b"), core(stage, "c").roster.key
    entries = dict(b.roster.header().entries)
    entries[c_key] = AckEntry(0, 1, StreamStatus.FAILED)
    step(stage, "a", beat(stage, "b", "a", Header(b.roster.key, entries)))
    assert a.roster.peers[c_key].status is StreamStatus.FAILED
    out = step(stage, "a", data_from(stage, "b", "c", 1, b"unheard"))
    assert a.roster.peers[c_key].window.received == 1, "it is here"
    assert not any(isinstance(effect, Deliver) for effect in out)
    entries[c_key] = AckEntry(1, 1, StreamStatus.FAILED)
    out = step(stage, "a", beat(stage, "b", "a", Header(b.roster.key, entries)))
    assert [e.messages[0].payload for e in out if isinstance(e, Deliver)] == [b"unheard"]


def test_a_late_header_is_ignored() -> None:
    stage = together("a", "b", "c")
    a, b = core(stage, "a"), core(stage, "b")
    c_key = core(stage, "c").roster.key
    now = dict(a.roster.header().entries)
    newer = Header(a.roster.key, now | {c_key: AckEntry(1, 1, StreamStatus.FAILED)})
    older = Header(a.roster.key, now | {c_key: AckEntry(0, 0, StreamStatus.FAILED)})
    step(stage, "b", beat(stage, "a", "b", newer))
    step(stage, "b", beat(stage, "a", "b", older))
    assert b.roster.peers[a.roster.key].row[c_key].delivered == 1


def test_a_header_counts_once_all_its_sender_had_multicast_is_delivered() -> None:
    """Else an addition that it knew of, and we do not, could be overlooked."""
    peer = PeerState(Member("s", Address("10.0.0.9", 1), 1), 0, 5, 5, 0)
    ahead = {peer.key: AckEntry(6, 6, StreamStatus.MEMBER), 77: AckEntry(9, 9, StreamStatus.MEMBER)}
    peer.report(ahead)
    assert not peer.promote()
    assert peer.trusted == {}
    peer.delivered = 6
    assert peer.promote()
    assert peer.trusted == ahead


# -- asking and bounds --------------------------------------------------------------------------


@pytest.mark.rule("RMC-4")
def test_open_requests_ride_on_every_heartbeat() -> None:
    stage = together("a", "b", "c")
    stage.obey("lose 1 a > c\nsay a lost\nadvance 1ms\ncut a > c\ncut b > c")
    a = core(stage, "a")
    step(stage, "c", beat(stage, "a", "c", a.roster.header()))
    stage.now_us += 100_000
    sent = packets_in(step(stage, "c", Expired(Timer.BEAT)))
    to, packet = sent[0]
    assert isinstance(packet, Beat)
    assert [key for key, _, _ in packet.asks] == [a.roster.key]
    assert len(to) == 2, "to everyone"


@pytest.mark.rule("RMC-8")
def test_what_lies_too_far_ahead_is_not_taken() -> None:
    stage = together("a", "b")
    b = core(stage, "b")
    far = ordering.AHEAD_COUNT_MAX + 10
    step(stage, "b", data_from(stage, "a", "a", far, b"far"))
    assert b.counts["drop.window"] == 1
    assert len(b.roster.peers[core(stage, "a").roster.key].window) == 0


@pytest.mark.rule("RMC-8")
def test_a_congested_application_has_no_send_credit() -> None:
    stage = together("a")
    assert core(stage, "a").send_credit() > 0
    step(stage, "a", Congested(True))
    assert core(stage, "a").send_credit() == 0
    step(stage, "a", Congested(False))
    assert core(stage, "a").send_credit() > 0


def test_own_messages_are_sent_once_to_each_member() -> None:
    stage = together("a", "b", "c")
    sends = [e for e in step(stage, "a", Multicast([b"x"])) if isinstance(e, Send)]
    assert [len(send.packets) for send in sends] == [1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"detect_us": 19_999}, "detect_us must be 20000 to"),
        ({"detect_us": 10**20}, "detect_us must be 20000 to"),
        ({"members_count_max": 65}, "must be 1 to 64"),
        ({"found_us": -1}, "must not be negative"),
        ({"speed": 1}, "it has: detect_us, found_us, members_count_max"),
    ],
)
def test_options_out_of_bounds_are_refused_with_the_range(
    options: dict[str, int], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        Parameters.of(options)


# -- those who cannot deliver, and those who cannot be asked ---------------------------------------


@pytest.mark.parametrize("newcomer", ["n", "n" * 60])
def test_a_slow_reader_is_not_removed_by_a_newcomer_that_it_cannot_see_yet(newcomer: str) -> None:
    """The addition waits in the stream behind what the application has not read."""
    stage = together("a", "b", packet=512)
    stage.obey(f"congest b on\nstart rmcast {newcomer} packet=512\njoin {newcomer}\nadvance 5000ms")
    assert len(core(stage, newcomer).roster.group()) == 3
    stage.obey("congest b off\nsay a hello\nadvance 500ms")
    assert len(core(stage, "b").roster.group()) == 3


def test_a_joiner_founds_no_second_group_while_the_oldest_is_dead() -> None:
    """b does not admit before it has found a failed, and n waits no longer than half of that."""
    stage = together("a", "b")
    stage.obey("crash a\nstart rmcast n\njoin n\nadvance 3000ms")
    assert core(stage, "n").codec.life == core(stage, "b").codec.life
    assert len(core(stage, "b").roster.group()) == 2


def test_a_lower_incarnation_is_rejected_while_the_oldest_member_is_dead() -> None:
    """The oldest is its own former life, of which nobody else hears."""
    stage = Stage()
    stage.obey("start rmcast a b\nnumber a 5\njoin a\nadvance 800ms\njoin b\nadvance 500ms")
    said = stage.obey("crash a\nnumber a 4\njoin a\nadvance 200ms")
    assert "a later incarnation of a is known" in said


def test_a_member_announces_its_component_only_when_the_sponsor_is_known_to_be_quiet() -> None:
    """One that was suspended has not read yet what the sponsor sent meanwhile."""
    stage = together("a", "b")

    def announces() -> bool:
        effects = step(stage, "b", Expired(Timer.ANNOUNCE))
        return any(isinstance(each, Send) and each.to is EVERYONE for each in effects)

    assert not announces()
    stage.now_us += 600_000
    assert not announces()
    step(stage, "b", Expired(Timer.BEAT))
    assert announces()
