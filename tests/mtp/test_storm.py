"""Many members miss the same packet: which of them request it, and which are answered."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.mtp.storm import BEHIND, DALLIES, HEAD, MESSAGES, OUTSIDE, Tally, storm, table
from unisono.core import EVERYONE, Effect, Send
from unisono.core import Target as To
from unisono.model import Address
from unisono.parts.admission import Terms
from unisono.parts.codec import PacketCodec
from unisono.protocols.mtp.message_sender import Held, MessageSender
from unisono.protocols.mtp.pacing import Pacing
from unisono.protocols.mtp.packets import KINDS, PROTOCOL, Header, write_header

PAGE = Path(__file__).parents[2] / "docs" / "PROTOCOLS.md"
HEARTBEAT_US = 10_000
A, B, C, D = (Address(f"10.0.0.{n}", 7000) for n in range(1, 5))


@cache
def tally(dally: int) -> Tally:
    return storm(dally)


pytestmark = pytest.mark.xdist_group("storm")


@pytest.mark.rule("MTP-17")
@pytest.mark.slow
def test_dallying_spares_four_of_five_naks_behind_a_lossy_router() -> None:
    at_once, dallied = tally(0), tally(8)
    assert at_once.dropped > 300, "the router did lose"
    assert at_once.packets >= 5 * dallied.packets
    assert at_once.ranges >= 5 * dallied.ranges


@pytest.mark.rule("MTP-17", "MTP-12")
@pytest.mark.slow
@pytest.mark.parametrize("dally", DALLIES)
def test_behind_a_lossy_router_everything_arrives(dally: int) -> None:
    told = tally(dally)
    assert told.broken == () and told.stopped == 0
    assert told.delivered == MESSAGES * (OUTSIDE + BEHIND)


@pytest.mark.slow
def test_the_table_of_the_storm_is_what_the_runs_make(rewrite: bool) -> None:
    made, text = table([tally(dally) for dally in DALLIES]), PAGE.read_text(encoding="utf-8")
    start = text.index(HEAD)
    end = text.index("\n\n", start) + 1
    if rewrite:
        text = text[:start] + made + text[end:]
        PAGE.write_text(text, encoding="utf-8", newline="\n")
        end = start + len(made)
    assert text[start:end] == made, "read it, then pytest tests/mtp/test_storm.py --rewrite"


# -- answers ---------------------------------------------------------------------------------------


def write(number: int) -> bytes:
    return write_header(Header(1, 1, 0, 1, 1, HEARTBEAT_US, 64, 3, 8))


class Sender:
    """An outlet that has sent one message of three packets."""

    def __init__(self, dally: int) -> None:
        codec, pace = PacketCodec(PROTOCOL, KINDS, Terms("g")), Pacing(HEARTBEAT_US, 64, 3)
        self.outbound = MessageSender(codec, pace, dally)
        self.outbound.send(Held(1, 1, [b"x", b"y", b"z"]))
        self.outbound.pump(HEARTBEAT_US, write, [])

    def asked(self, after_us: int, *askers: Address) -> list[To]:
        """Where the second packet goes when these request it at once."""
        out: list[Effect] = []
        at_us = HEARTBEAT_US + after_us
        for asker in askers:
            self.outbound.repair(1, 1, 1, asker, at_us)
        self.outbound.pump(at_us, write, out)
        return [effect.to for effect in out if isinstance(effect, Send)]


@pytest.mark.rule("MTP-12")
def test_a_repair_is_unicast_to_few_and_multicast_to_many() -> None:
    assert Sender(0).asked(1_000, A) == [(A,)]
    assert Sender(0).asked(1_000, A, B) == [(A, B)]
    assert Sender(0).asked(1_000, A, B, C) == [EVERYONE]


@pytest.mark.rule("MTP-12")
def test_a_repair_for_one_does_not_keep_another_from_getting_it() -> None:
    sender = Sender(0)
    assert sender.asked(1_000, A) == [(A,)]
    assert sender.asked(1_500, A) == [], "it is on its way"
    assert sender.asked(1_500, B) == [(B,)]
    assert sender.asked(2_000, C) == [EVERYONE], "the third within half a heartbeat"
    assert sender.asked(2_500, D, A) == [], "it is on its way to all"
    assert sender.asked(2_500 + HEARTBEAT_US, D) == [(D,)], "and was lost on it"


@pytest.mark.rule("MTP-17")
def test_with_dally_a_repair_goes_to_all_that_may_wait_to_request_it() -> None:
    sender = Sender(8)
    assert sender.asked(1_000, A) == [EVERYONE]
    assert sender.asked(1_500, B) == []
