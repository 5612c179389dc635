"""Three machines, nearly: namespaces on a bridge that loses packets, and a member killed midway."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import Cat, unisono, until

pytestmark = [pytest.mark.root, pytest.mark.real, pytest.mark.slow]

NAMES = ("a", "b", "c")
LOSS_PERCENT = 10
RULES = f"""
table inet lossy {{
    chain input {{
        type filter hook input priority 0;
        iifname != "lo" meta l4proto udp numgen random mod 100 < {LOSS_PERCENT} counter drop
    }}
}}
"""
PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))


def do(*words: str, rules: str | None = None) -> str:
    """Run one system command; the answer is what it printed."""
    found = subprocess.run(
        words,
        input=rules,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": PATH},
        timeout=20,
        check=False,
    )
    assert found.returncode == 0, f"{' '.join(words)}: {found.stderr}"
    return found.stdout


@pytest.fixture
def machines() -> Iterator[dict[str, str]]:
    """A namespace a name, at 10.77.0.1 and so on, all on one bridge in a namespace of its own."""
    tag = f"uni{os.getpid()}"
    spaces = {name: f"{tag}-{name}" for name in NAMES}
    hub = f"{tag}-hub"
    with contextlib.ExitStack() as undo:
        for space in (hub, *spaces.values()):
            do("ip", "netns", "add", space)
            undo.callback(do, "ip", "netns", "del", space)
        do("ip", "-n", hub, "link", "add", "bridge", "type", "bridge", "mcast_snooping", "0")
        do("ip", "-n", hub, "link", "set", "bridge", "up")
        for place, (name, space) in enumerate(spaces.items(), 1):
            wire = (
                "link",
                "add",
                "eth0",
                "type",
                "veth",
                "peer",
                "name",
                f"port-{name}",
                "netns",
                hub,
            )
            do("ip", "-n", space, *wire)
            do("ip", "-n", hub, "link", "set", "dev", f"port-{name}", "master", "bridge", "up")
            do("ip", "-n", space, "link", "set", "lo", "up")
            do("ip", "-n", space, "addr", "add", f"10.77.0.{place}/24", "dev", "eth0")
            do("ip", "-n", space, "link", "set", "eth0", "up")
            do("ip", "netns", "exec", space, "nft", "-f", "-", rules=RULES)
        yield spaces


def dropped(space: str) -> int:
    told = json.loads(do("ip", "netns", "exec", space, "nft", "-j", "list", "ruleset"))
    rules = [each["rule"]["expr"] for each in told["nftables"] if "rule" in each]
    return sum(word["counter"]["packets"] for rule in rules for word in rule if "counter" in word)


def reached(way: str, place: int) -> list[str]:
    address = f"10.77.0.{place}"
    if way == "multicast":
        return ["--interface", address, "--port", "7400"]
    peers = ",".join(f"10.77.0.{each}:7400" for each in range(1, len(NAMES) + 1))
    return ["--peers", peers, "--bind", f"{address}:7400"]


@pytest.mark.parametrize("way", ["multicast", "peers"])
def test_survivors_of_loss_and_a_kill_agree(
    way: str, machines: dict[str, str], tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        cats = {}
        for place, name in enumerate(NAMES, 1):
            before = ("ip", "netns", "exec", machines[name])
            arguments = ("far", "--name", name, "--rejoin", "--trace", str(tmp_path))
            cats[name] = stack.enter_context(Cat(*arguments, *reached(way, place), before=before))
        until(
            lambda: all(cat.view == list(NAMES) for cat in cats.values()),
            60,
            "one view",
            lambda: str({name: (cat.process.poll(), cat.objects) for name, cat in cats.items()}),
        )
        for batch in range(10):
            for name, cat in cats.items():
                cat.say(*(f"{name} {batch}.{n}" for n in range(20)))
        until(lambda: _count(cats["a"], "c") >= 20, 30, "some of c's messages")
        cats["c"].say(*(f"c last {n}" for n in range(2000)))
        cats["c"].process.kill()
        for name in ("a", "b"):
            cats[name].say(*(f"{name} after {n}" for n in range(50)))
        until(
            lambda: all(_count(cats[x], y) == 250 for x in "ab" for y in "ab"),
            60,
            "all messages of the survivors",
        )
        until(lambda: cats["a"].view == cats["b"].view == ["a", "b"], 30, "the view without c")
        until(lambda: sorted(cats["a"].messages) == sorted(cats["b"].messages), 10, "agreement")
        # c was killed early, and may have been lucky.
        assert all(dropped(machines[name]) > 0 for name in "ab"), "nothing was lost"
        for name in ("a", "b"):
            cats[name].close()
            assert cats[name].ended(60) == 0, cats[name].errors()
        assert sorted(cats["a"].messages) == sorted(cats["b"].messages)
    verified = unisono("verify", str(tmp_path), "--json")
    told = json.loads(verified.stdout)
    assert verified.returncode == 0, told
    (run,) = told["runs"].values()
    assert run["laws"]["causal"] == run["laws"]["agreement"] == "kept"


def _count(cat: Cat, sender: str) -> int:
    return sum(each[0] == sender for each in cat.messages)
