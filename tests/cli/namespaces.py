"""Machines, nearly: network namespaces on a bridge that loses packets."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Sequence

from tests.waiting import LIMIT_S

RULES = """
table inet lossy {{
    chain input {{
        type filter hook input priority 0;
        iifname != "lo" meta l4proto udp numgen random mod 100 < {percent} counter drop
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
        timeout=LIMIT_S,
        check=False,
    )
    assert found.returncode == 0, f"{' '.join(words)}: {found.stderr}"
    return found.stdout


@contextlib.contextmanager
def machines(names: Sequence[str], loss_percent: int) -> Iterator[dict[str, str]]:
    """A namespace a name, at 10.77.0.1 and so on, all on one bridge in a namespace of its own."""
    tag = f"uni{os.getpid()}"
    spaces = {name: f"{tag}-{name}" for name in names}
    hub = f"{tag}-hub"
    with contextlib.ExitStack() as undo:
        for space in (hub, *spaces.values()):
            do("ip", "netns", "add", space)
            undo.callback(do, "ip", "netns", "del", space)
        do("ip", "-n", hub, "link", "add", "bridge", "type", "bridge", "mcast_snooping", "0")
        do("ip", "-n", hub, "link", "set", "bridge", "up")
        for place, (name, space) in enumerate(spaces.items(), 1):
            pair = ("eth0", "type", "veth", "peer", "name", f"port-{name}", "netns", hub)
            do("ip", "-n", space, "link", "add", *pair)
            do("ip", "-n", hub, "link", "set", "dev", f"port-{name}", "master", "bridge", "up")
            do("ip", "-n", space, "link", "set", "lo", "up")
            do("ip", "-n", space, "addr", "add", address(place) + "/24", "dev", "eth0")
            do("ip", "-n", space, "link", "set", "eth0", "up")
            rules = RULES.format(percent=loss_percent)
            do("ip", "netns", "exec", space, "nft", "-f", "-", rules=rules)
        yield spaces


def address(place: int) -> str:
    """Of the machine at this place, from 1."""
    return f"10.77.0.{place}"


def inside(space: str) -> tuple[str, ...]:
    """What to write before a command so that it runs there."""
    return ("ip", "netns", "exec", space)


def dropped(space: str) -> int:
    """Packets that were lost on their way in."""
    told = json.loads(do("ip", "netns", "exec", space, "nft", "-j", "list", "ruleset"))
    rules = [each["rule"]["expr"] for each in told["nftables"] if "rule" in each]
    return sum(word["counter"]["packets"] for rule in rules for word in rule if "counter" in word)
