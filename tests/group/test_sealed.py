"""Sealed groups on real sockets: members with the key are one group, others are refused."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path
from typing import Any

import pytest

import unisono
from tests import waiting
from tests.group.sessions import session_of
from tests.net.recorder import free_port
from tests.sealing.stage import KEY, OTHER_KEY
from unisono.errors import WrongKey
from unisono.group import Group
from unisono.model import Message
from unisono.net import key_files
from unisono.net.key_files import save_identity, save_keyring
from unisono.sealing.identity import Identity, named_key_text
from unisono.sealing.keys import Keyring
from unisono.wire import seal, tag_of

pytestmark = pytest.mark.real


def joining(port: int, name: str, **options: Any) -> unisono.Joining:
    return unisono.join("orders", name=name, port=port, rejoin=False, **options)


async def heard(group: Group, count: int) -> list[bytes]:
    found: list[bytes] = []
    async for item in group:
        if isinstance(item, Message):
            found.append(item.payload)
        if len(found) == count:
            break
    return found


async def together(*groups: Group) -> None:
    await waiting.eventually(
        lambda: all(group.view and len(group.view.members) == len(groups) for group in groups)
    )


@pytest.mark.parametrize("protocol", ["ring", "rmcast", "mtp", "rmp"])
@pytest.mark.parametrize("peers", [False, True])
async def test_members_with_the_key_are_one_group(protocol: str, peers: bool) -> None:
    port = free_port()
    options: dict[str, Any] = {"protocol": protocol, "key": KEY}
    places: list[dict[str, Any]] = [{"port": port}, {"port": port}]
    if peers:
        ports = [free_port(), free_port()]
        listed = [f"127.0.0.1:{port}" for port in ports]
        places = [{"peers": listed, "bind": at} for at in listed]
    roles = [{"master": 1}, {}] if protocol == "mtp" else [{}, {}]
    async with (
        unisono.join("orders", name="a", **places[0], **roles[0], **options) as a,
        unisono.join("orders", name="b", **places[1], **roles[1], **options) as b,
    ):
        await together(a, b)
        said = [b"%d" % n * 500 for n in range(400)]
        await a.multicast_many(said)
        assert await asyncio.gather(heard(a, 400), heard(b, 400)) == [said, said]
        sent = session_of(b).counts()
        assert sent["seal.met"] >= 1 and not sent["drop.bad_tag"]


async def test_nothing_of_a_message_is_seen_on_the_wire_and_nothing_forged_is_believed() -> None:
    port = free_port()
    ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    ear.bind(("239.192.77.1", port))
    mine = socket.inet_aton("239.192.77.1") + socket.inet_aton("127.0.0.1")
    ear.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, mine)
    ear.setblocking(False)
    async with joining(port, "a", key=KEY) as a, joining(port, "b", key=KEY) as b:
        await together(a, b)
        secret = b"the secret" * 20
        await a.multicast(secret)
        assert await heard(b, 1) == [secret]
        seen = []
        while True:
            try:
                seen.append(ear.recv(65536))
            except BlockingIOError:
                break
        assert seen and not [packet for packet in seen if b"the secret" in packet]
        to = session_of(b).endpoint.address
        for forged in (*seen, seal(3, 1, tag_of("orders"), 0, bytes(50)), b"noise"):
            ear.sendto(forged, tuple(to))
        await a.multicast(b"after")
        assert await heard(b, 1) == [b"after"]
        await waiting.eventually(lambda: session_of(b).counts()["drop.open"])
        assert session_of(b).counts()["drop.open"] == 1
        assert a.view and len(a.view.members) == 2
    ear.close()


@pytest.mark.parametrize(
    ("inside", "outside", "told"),
    [
        ({"key": KEY}, {}, "sealed: give key="),
        ({}, {"key": KEY}, "not sealed: give key= at every member"),
        ({"key": KEY}, {"key": OTHER_KEY}, "not in this keyring: install it"),
    ],
)
async def test_a_member_with_another_key_founds_no_second_group_and_is_stopped(
    inside: dict[str, Any], outside: dict[str, Any], told: str
) -> None:
    """However quiet the group is: what its protocol would send is kept back here."""
    port = free_port()
    async with joining(port, "a", **inside) as a:
        endpoint = session_of(a).endpoint
        endpoint.send = lambda to, packets: None  # type: ignore[method-assign]
        with pytest.raises(WrongKey, match=told):
            await joining(port, "b", **outside)
        del endpoint.send
        assert a.view and [member.name for member in a.view.members] == ["a"]


async def test_keys_change_under_load_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One member is absent meanwhile: it is told that its key is old, and is back with the new."""
    monkeypatch.setattr(key_files, "RELOAD_S", 0.02)
    files = [tmp_path / name for name in "abc"]
    for file in files:
        save_keyring(file, Keyring((KEY,)))

    port = free_port()
    async with joining(port, "a", key=files[0]) as a, joining(port, "b", key=files[1]) as b:
        async with joining(port, "c", key=files[2]) as c:
            await together(a, b, c)
        await together(a, b)
        said: list[bytes] = []
        done = asyncio.Event()

        async def speak() -> None:
            while not done.is_set():
                said.append(b"%06d" % len(said) * 100)
                await a.multicast(said[-1])
                await asyncio.sleep(0.001)

        speaking = asyncio.create_task(speak())
        seals = [session_of(group).endpoint.seal for group in (a, b)]
        rings = (Keyring((KEY, OTHER_KEY)), Keyring((OTHER_KEY, KEY)), Keyring((OTHER_KEY,)))
        for ring in rings:
            for file, its in zip(files[:2], seals, strict=True):
                save_keyring(file, ring)
                wanted = ring.keys
                await waiting.eventually(
                    lambda its=its, wanted=wanted: (
                        its and tuple(key.key for key in its._keys.values()) == wanted
                    )
                )
        with pytest.raises(WrongKey, match="not in this keyring: install it"):
            await joining(port, "c", key=files[2])
        assert session_of(a).counts()["drop.old_key"]
        save_keyring(files[2], rings[-1])
        async with joining(port, "c", key=files[2]) as c:
            await together(a, b, c)
            (first,) = await heard(c, 1)
            done.set()
            await speaking
            late = said[said.index(first) + 1 :]
            assert not late or await heard(c, len(late)) == late
            for group in (a, b):
                assert await heard(group, len(said)) == said


async def test_members_with_identities_are_one_group_until_one_is_taken_off_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_files, "RELOAD_S", 0.02)
    lines = {}
    for name in "abc":
        identity = Identity(name, name.encode() * 32)
        save_identity(tmp_path / name, identity)
        lines[name] = named_key_text(name, identity.public())
    listed = tmp_path / "allowed"
    listed.write_text("".join(lines.values()))
    port = free_port()

    def with_identity(name: str) -> unisono.Joining:
        return joining(port, name, key=KEY, identity=tmp_path / name, allowed=listed)

    async with with_identity("a") as a, with_identity("b") as b:
        async with with_identity("c") as c:
            await together(a, b, c)
            await c.multicast(b"from c")
            for group in (a, b, c):
                assert await heard(group, 1) == [b"from c"]
        await together(a, b)
        listed.write_text(lines["a"] + lines["b"])
        with pytest.raises(unisono.Misuse, match="does not allow c with the key"):
            await with_identity("c")
        with pytest.raises(unisono.Misuse, match="is of a: join with name='a'"):
            await joining(port, "c", key=KEY, identity=tmp_path / "a", allowed=listed)
        with pytest.raises(unisono.Misuse, match="go together: give all three"):
            await joining(port, "c", key=KEY, allowed=listed)
        with pytest.raises(WrongKey, match="identity= and allowed= at every member"):
            await joining(port, "c", key=KEY)
        await a.multicast(b"after")
        assert await heard(b, 1) == [b"after"]


async def test_sending_beyond_the_machine_without_a_key_warns_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for options, warnings in (({}, 1), ({"insecure": True}, 0), ({"key": KEY}, 0)):
        caplog.clear()
        port = free_port()
        at = {"peers": [f"0.0.0.0:{port}"], "bind": f"0.0.0.0:{port}", "advertise": "127.0.0.1"}
        with caplog.at_level(logging.WARNING):
            group = await unisono.join("orders", name="a", **at, **options)  # type: ignore[arg-type]
            await group.leave()
        told = [each for each in caplog.messages if "unsealed" in each]
        assert len(told) == warnings
