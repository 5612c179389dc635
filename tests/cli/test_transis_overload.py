"""Five machines, nearly, on a bridge whose ports are slow and have short queues. All send as fast
as they may, and the network window keeps the queues from overflowing [TRA-11].

`UNISONO_SECONDS` says for how long.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.cli.namespaces import address, do, inside
from tests.waiting import LIMIT_S
from unisono.bench.hosts import bridged

pytestmark = [pytest.mark.root, pytest.mark.real, pytest.mark.slow]

COUNT = 5
SECONDS = float(os.environ.get("UNISONO_SECONDS") or 30)
QUEUE = ("tbf", "rate", "20mbit", "burst", "15kb", "limit", "100kb")
"""Of each port of the bridge, towards a member."""
WINDOW_BYTES_MAX = 1 << 19
"""What a member sends ahead of its group: the run ends soon after the sending."""
LOSS_MAX = 0.01


def loss(seconds: float, unbridled: bool = False) -> float:
    """The share of packets that found a queue full, while all sent for so long."""
    tag = f"uni{os.getpid()}"
    hub, spaces = f"{tag}-hub", [f"{tag}-{at}" for at in range(COUNT)]
    with contextlib.ExitStack() as undo:
        undo.enter_context(bridged(hub, spaces))
        ports = [f"port{at}" for at in range(COUNT)]
        for port in ports:
            do(*inside(hub), "tc", "qdisc", "add", "dev", port, "root", *QUEUE)
        members = [
            undo.enter_context(started(space, at, seconds, unbridled))
            for at, space in enumerate(spaces)
        ]
        told = [json.loads(answer(member)) for member in members]
        shown = [do(*inside(hub), "tc", "-s", "-j", "qdisc", "show", "dev", port) for port in ports]
    counts = [json.loads(text)[0] for text in shown]
    drops = sum(count["drops"] for count in counts)
    share = drops / (drops + sum(count["packets"] for count in counts))
    rate = min(each["heard"] / each["took_s"] for each in told)
    print(json.dumps({"loss": round(share, 4), "drops": drops, "messages_per_s": round(rate)}))
    assert len({each["heard"] for each in told}) == 1, "all have received the same"
    assert {each["members"] for each in told} == {COUNT}, "nobody was excluded"
    return share


@contextlib.contextmanager
def started(
    space: str, at: int, seconds: float, unbridled: bool
) -> Iterator[subprocess.Popen[str]]:
    join = {
        "name": f"m{at}",
        "protocol": "transis",
        "interface": address(at + 1),
        "join_s": LIMIT_S,
        "window_bytes_max": WINDOW_BYTES_MAX,
    }
    how = {"count": COUNT, "seconds": seconds, "unbridled": unbridled, "join": join}
    command = (sys.executable, "-m", "tests.cli.overload_member", json.dumps(how))
    member = subprocess.Popen(
        (*inside(space), *command), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        yield member
    finally:
        member.kill()
        member.communicate(timeout=LIMIT_S)


def answer(member: subprocess.Popen[str]) -> str:
    assert member.stdout is not None
    return member.stdout.readline()


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_under_overload_less_than_one_percent_is_lost() -> None:
    assert loss(SECONDS) < LOSS_MAX


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_without_the_window_much_is_lost() -> None:
    assert loss(10, unbridled=True) > 10 * LOSS_MAX
