"""Packets are checked before the core sees them; those that fail are dropped and counted."""

from __future__ import annotations

import pytest

from tests import waiting
from tests.net.ear import Ear, free_port
from unisono.core import EVERYONE
from unisono.model import Address, Buffer
from unisono.net.addresses import Addresses
from unisono.net.packet_check import REJECTED, checked

TAG = b"key:"


def is_tagged(source: Address, packet: Buffer) -> bool:
    return bytes(packet[: len(TAG)]) == TAG


@pytest.mark.rule("RMP-21")
def test_what_fails_the_check_is_dropped_and_counted() -> None:
    one, two = Address("10.0.0.1", 7000), Address("10.0.0.2", 7000)
    counts: dict[str, int] = {}
    good = [TAG + b"1", TAG + b"2"]
    found = checked([(one, good), (two, [b"x", TAG + b"3"]), (two, [b"y"])], is_tagged, counts)
    assert found == [(one, good), (two, [TAG + b"3"])]
    assert found[0][1] is good, "what passes whole is passed on as it is"
    assert counts == {REJECTED: 2}


@pytest.mark.real
@pytest.mark.rule("RMP-21")
def test_an_endpoint_passes_on_only_what_it_has_checked() -> None:
    async def story() -> None:
        at = Addresses(multicast=Address("239.192.77.9", free_port()), interface="127.0.0.1")
        sender, receiver = Ear(at), Ear(at, check=is_tagged)
        sender.endpoint.send(EVERYONE, [b"forged"])
        sender.endpoint.send(EVERYONE, [TAG + b"good"])
        assert await receiver.hears(1) == [TAG + b"good"]
        assert receiver.endpoint.counts[REJECTED] == 1
        for ear in (sender, receiver):
            ear.close()

    waiting.run_story(story())
