"""Simulated machines: network namespaces on a bridge that loses packets."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Sequence

from tests.waiting import LIMIT_S
from unisono.bench.hosts import address_of, bridged
from unisono.processes import PATH

RULES = """
table inet lossy {{
    chain input {{
        type filter hook input priority 0;
        iifname != "lo" meta l4proto udp numgen random mod 100 < {percent} counter drop
    }}
}}
"""


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
    with bridged(f"{tag}-hub", list(spaces.values())):
        for space in spaces.values():
            do(*inside(space), "nft", "-f", "-", rules=RULES.format(percent=loss_percent))
        yield spaces


def address(place: int) -> str:
    """Of the machine at this place, from 1."""
    return address_of(place - 1)


def inside(space: str) -> tuple[str, ...]:
    """What to write before a command so that it runs there."""
    return ("ip", "netns", "exec", space)


def dropped(space: str) -> int:
    """Packets that were lost on their way in."""
    told = json.loads(do("ip", "netns", "exec", space, "nft", "-j", "list", "ruleset"))
    rules = [each["rule"]["expr"] for each in told["nftables"] if "rule" in each]
    return sum(word["counter"]["packets"] for rule in rules for word in rule if "counter" in word)
