"""A short part of the fuzzing, and that it can fail; `make fuzz` goes on for as long as told."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.fuzz.decoders import DECODERS, PACKETS, Decoder, mangle
from tests.fuzz.forging import WIRES, Forger
from tests.fuzz.live import ENEMIES, PROTOCOLS, attack
from tests.fuzz.sockets import attack_sockets
from tests.waiting import run_story
from unisono.protocols.ring.ordering import Ordering


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)
def test_changed_bytes_are_read_or_refused(decoder: Decoder) -> None:
    assert mangle(decoder, 1, 300) == 300


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_most_forged_packets_pass_all_checks_of_the_wire(protocol: str) -> None:
    forger = Forger(protocol, Random(3))
    packets = [packet for name, packet in PACKETS if name == protocol]
    sound = [
        made for packet in packets * 5 for made, is_sound in [forger.forged(packet)] if is_sound
    ]
    assert len(sound) > len(packets)
    assert all(WIRES[protocol].read(made) for made in sound)
    assert not set(sound) <= set(packets)


@pytest.mark.slow
@pytest.mark.parametrize("enemy", ENEMIES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_stand_hostile_packets(protocol: str, enemy: str) -> None:
    found = attack(protocol, enemy, 1, messages=60)
    assert not found.violations, found.replay
    assert found.counts["inputs"] > 50


@pytest.mark.real
@pytest.mark.parametrize("enemy", ["outsider", "impersonator"])
def test_members_on_sockets_stand_hostile_packets(enemy: str) -> None:
    found = run_story(attack_sockets("ring", enemy, 1, 1_000))
    assert not found.violations
    assert found.counts["arrived"] > 1_000


@pytest.fixture
def careless(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ring believes that packets come from its members."""
    note = Ordering.note

    def believe(self: Ordering, key: int, *numbers: Any) -> None:
        assert key in self.ring.index
        note(self, key, *numbers)

    monkeypatch.setattr(Ordering, "note", believe)


@pytest.mark.real
def test_what_a_hostile_packet_makes_raise_on_a_socket_is_found(careless: None) -> None:
    """What arrives when is the kernel's choice: one attack in three finds nothing."""
    assert any(
        "internal error" in text
        for seed in range(10)
        for text in run_story(attack_sockets("ring", "impersonator", seed, 1_000)).violations
    )


def test_what_a_hostile_packet_makes_raise_is_found(careless: None) -> None:
    found = [attack("ring", "impersonator", seed, messages=60).violations for seed in range(3)]
    assert any("no_crash" in text for violations in found for text in violations)


def test_a_decoder_that_raises_anything_else_is_found() -> None:
    def careless(data: bytes) -> int:
        return data[9]

    with pytest.raises(AssertionError, match="raised IndexError"):
        mangle(Decoder("careless", careless, [bytes(12)]), 1, 300)
