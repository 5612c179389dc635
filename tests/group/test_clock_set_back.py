"""A clock that was set back: an incarnation is never taken for a former one, nor shut out."""

from __future__ import annotations

import asyncio
import socket
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import unisono
from tests.group.sessions import session_of
from tests.net.recorder import free_port
from tests.waiting import LIMIT_S, eventually
from unisono.fields import INCARNATION_MAX
from unisono.layout import encode
from unisono.net import identity
from unisono.protocols.ring.codes import Code
from unisono.protocols.ring.packets import HEADER_BYTES, PROTOCOL, MemberRecord, Rejection, read
from unisono.wire import seal, unseal

pytestmark = pytest.mark.real

DAY_NS = 86_400 * 10**9


@pytest.mark.parametrize("protocol", ["rmcast", "mtp", "ring"])
async def test_a_clock_set_back_a_day_gets_a_higher_incarnation(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """b is killed, and its next process begins with the clock a day back, at the same address."""

    port, own = free_port(), free_port()
    peers = [f"127.0.0.1:{port}", f"127.0.0.1:{own}"]
    common: dict[str, Any] = {"protocol": protocol, "peers": peers, "join_s": LIMIT_S}
    common["rejoin"] = False
    master: dict[str, Any] = {"options": {"master": 1}} if protocol == "mtp" else {}
    at_a, at_b = f"127.0.0.1:{port}", f"127.0.0.1:{own}"
    async with unisono.join("g", name="a", bind=at_a, **common, **master) as a:
        b = await unisono.join("g", name="b", bind=at_b, **common)
        await eventually(lambda: len(a.members) == 2)
        first = b.me
        session_of(b).close()  # killed: it sends nothing more
        now_ns = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: now_ns() - DAY_NS)
        monkeypatch.setattr(identity, "_last_incarnation", 0)
        async with unisono.join("g", name="b", bind=at_b, **common) as again:
            assert again.me.incarnation > first.incarnation, "though its clock was set back"
            await eventually(lambda: again.me in a.members and first not in a.members)
            await again.multicast(b"here")
            async with asyncio.timeout(LIMIT_S):
                async for item in a:
                    if isinstance(item, unisono.Message) and item.payload == b"here":
                        assert item.sender == again.me
                        break


async def test_with_a_stable_file_the_next_life_is_higher_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = []
    now_ns = time.time_ns
    for day in range(3):
        then_ns = now_ns() - day * DAY_NS
        monkeypatch.setattr(time, "time_ns", partial(int, then_ns))
        monkeypatch.setattr(identity, "_last_incarnation", 0)
        place, file = [f"127.0.0.1:{free_port()}"], str(tmp_path / "b")
        async with unisono.join("g", name="b", peers=place, stable=file) as b:
            numbers.append(b.me.incarnation)
    assert numbers == sorted(set(numbers))


async def test_a_forged_later_incarnation_does_not_exhaust_the_numbers(tmp_path: Path) -> None:
    """One packet claimed that the highest number is taken: the member hung, and so would any other
    life of its process; a little lower, its stable file kept it out for good."""
    path = tmp_path / "b"

    port, own = free_port(), free_port()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as liar:
        liar.bind(("127.0.0.1", port))
        liar.setblocking(False)
        common: dict[str, Any] = {"protocol": "ring", "peers": [f"127.0.0.1:{port}"]}
        common |= {"bind": f"127.0.0.1:{own}", "stable": str(path), "join_s": 15}
        joining = asyncio.ensure_future(unisono.join("g", name="b", **common))
        loop, told = asyncio.get_running_loop(), 0
        while told < 2 and not joining.done():
            packet, source = await loop.sock_recvfrom(liar, 65536)
            envelope = unseal(packet, PROTOCOL, int.from_bytes(packet[6:14], "big"))
            said = read(envelope.kind, envelope.life, envelope.body)
            if isinstance(said, MemberRecord):
                known = INCARNATION_MAX - (told << 21)
                stale = Rejection(Code.STALE, said.header, "later", said.member, known)
                octets = encode(stale)
                header = said.header._replace(sender=1, origin=1)
                whole = header.packed(HEADER_BYTES + len(octets)) + octets
                tag = int.from_bytes(packet[6:14], "big")
                liar.sendto(seal(PROTOCOL, Code.STALE, tag, envelope.life, whole), source)
                told += 1
        b = await joining
        assert b.members == (b.me,)
        assert b.me.incarnation < identity.BELIEVED_MAX
        await b.leave()
