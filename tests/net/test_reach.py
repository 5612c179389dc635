"""The scope of multicasts is set by the core, at the request of the application."""

from __future__ import annotations

import asyncio
import socket

import pytest

import unisono
from unisono.model import Address
from unisono.net.addresses import Addresses
from unisono.net.udp import Endpoint


@pytest.mark.real
def test_the_reach_of_multicasts_is_set_on_the_socket() -> None:
    endpoint = Endpoint(Addresses(multicast=Address("239.192.77.9", 7477), interface="127.0.0.1"))
    try:
        endpoint.reach(7)
        assert endpoint._own.getsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL) == 7
        endpoint.reach(9_999)
        assert endpoint._own.getsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL) == 255
    finally:
        endpoint.close()


@pytest.mark.real
def test_an_unknown_request_is_refused_with_the_known_ones() -> None:
    async def ask() -> None:
        async with unisono.join(
            "requests", protocol="rmcast", port=7478, detect_us=80_000
        ) as group:
            with pytest.raises(unisono.Misuse, match="rmcast takes no request 'lock', but none"):
                group.request("lock", number=3)

    asyncio.run(ask())
