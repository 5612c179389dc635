"""Daemons that are cut off from each other and find each other again: all groups are the same."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.namespaces import do, inside
from tests.daemon.stage import RING, joining, patient
from tests.daemon.test_deaths import Tally
from tests.harness import UNISONO, Child
from tests.waiting import eventually

pytestmark = [pytest.mark.root, pytest.mark.real, pytest.mark.slow]

PORTS = (7411, 7412, 7413)
RULES = """
table inet cut {{
    chain input {{
        type filter hook input priority 0;
        udp sport {port} drop
        udp dport {port} drop
    }}
}}
"""


class Space:
    """A loopback interface of its own, on which ports can be cut off."""

    def __init__(self) -> None:
        self.name = f"uni{os.getpid()}-split"

    def __enter__(self) -> Space:
        do("ip", "netns", "add", self.name)
        do("ip", "-n", self.name, "link", "set", "lo", "up")
        return self

    def __exit__(self, *_: object) -> None:
        do("ip", "netns", "del", self.name)

    def cut(self, port: int) -> None:
        do(*inside(self.name), "nft", "-f", "-", rules=RULES.format(port=port))

    def heal(self) -> None:
        do(*inside(self.name), "nft", "delete", "table", "inet", "cut")


OPTIONS = {"ring": ("--option", "tries=40"), "transis": ("--option", "one_history=1")}
APART = {"ring": "members are heard", "transis": "not in the primary component"}


def daemon_in(space: Space, place: Path, at: int, protocol: str, sites: int) -> Child:
    peers = ",".join(f"127.0.0.1:{port}" for port in PORTS)
    command = [*inside(space.name), *UNISONO, "daemon", "--listen", f"unix:{place}/d{at}"]
    command += [
        "--json",
        "--config",
        patient(place),
        "--name",
        f"d{at}",
        "--peers",
        peers,
        "--bind",
        peers.split(",")[at],
    ]
    options = [*OPTIONS[protocol], "--option", f"sites={sites}"]
    return Child(f"d{at}", *command, "--protocol", protocol, *options)


@pytest.mark.skipif(RING != "ring", reason="it names its protocols")
@pytest.mark.parametrize(
    ("protocol", "sites"),
    [("ring", 0), ("ring", 3), ("transis", 3)],
    ids=["those that came", "three in all", "transis"],
)
async def test_a_daemon_that_was_apart_agrees_with_the_others_again(
    protocol: str, sites: int, place: Path
) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        space = stack.enter_context(Space())
        daemons = [
            stack.enter_context(daemon_in(space, place, at, protocol, sites)) for at in range(3)
        ]
        for each in daemons:
            await loop.run_in_executor(None, each.expect, "listening")
        tallies = [Tally() for _ in range(3)]
        groups: list[Any] = []
        tasks: list[asyncio.Task[None]] = []
        for at, tally in enumerate(tallies):
            state: Any = {"snapshot": tally.snapshot, "restore": tally.restore}
            groups.append(await joining(place, f"m{at}", at=at, rejoin=True, **state))
            tasks.append(asyncio.create_task(tally.follow(groups[-1])))
        await eventually(lambda: all(len(group.members) == 3 for group in groups))
        space.cut(PORTS[2])
        saying = asyncio.create_task(groups[2].multicast(b"from the few", "safe"))
        await eventually(lambda: len(groups[0].members) == len(groups[1].members) == 2)
        await eventually(lambda: APART[protocol] in groups[2].blocked)
        for i in range(20):
            await groups[i % 2].multicast(b"%d" % i)
        await eventually(lambda: len(tallies[0].lines) == len(tallies[1].lines) == 20)
        assert not tallies[2].lines, "the minority delivers nothing"
        space.heal()
        await eventually(lambda: bool(tallies[2].lives) and len(groups[2].members) == 3)
        assert "join again" in tallies[2].lives[0].reason
        await saying
        await eventually(lambda: not any(group.blocked for group in groups))
        await groups[2].multicast(b"back")
        await eventually(lambda: all(tally.lines[-1:] == [b"back"] for tally in tallies))
        assert tallies[0].lines == tallies[1].lines == tallies[2].lines
        assert sorted(tallies[0].lines[:20], key=int) == [b"%d" % i for i in range(20)]
        assert not tallies[0].lives and not tallies[1].lives
        assert len({(group.view.id, group.members) for group in groups}) == 1
        for group in groups:
            await group.leave()
        await asyncio.gather(*tasks)
