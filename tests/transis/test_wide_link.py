"""Three clusters in network namespaces, and a process between them that forwards late."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.namespaces import do, inside

HERE = Path(__file__).parent
PLACES = (1, 2, 3)
DELAY_MS = 40
LIMIT_S = 240

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("ip") is None or not Path("/dev/net/tun").exists(),
        reason="needs root, ip and /dev/net/tun",
    ),
]


@contextlib.contextmanager
def sites() -> Iterator[list[str]]:
    """A namespace a cluster, joined by wide links."""
    spaces = [f"uni{os.getpid()}-wide{place}" for place in PLACES]
    with contextlib.ExitStack() as undo:
        for space in spaces:
            do("ip", "netns", "add", space)
            undo.callback(do, "ip", "netns", "delete", space)
        link = undo.enter_context(
            subprocess.Popen(
                (sys.executable, str(HERE / "wide_link.py"), str(DELAY_MS), *spaces),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        undo.callback(link.kill)
        assert link.stdout is not None
        assert link.stdout.readline() == "ready\n"
        yield spaces


def test_three_real_clusters_are_one_group() -> None:
    with sites() as spaces, contextlib.ExitStack() as undo:
        members = []
        for place, space in zip(PLACES, spaces, strict=True):
            words = (*inside(space), sys.executable, str(HERE / "wide_members.py"), f"c{place}")
            process = undo.enter_context(
                subprocess.Popen(
                    words,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            undo.callback(process.kill)
            members.append(process)
        for process in members:
            assert process.stdout is not None
            assert [process.stdout.readline() for _ in range(3)] == ["done\n"] * 3
        found = [json.loads(each.communicate("\n" * 3, LIMIT_S)[0]) for each in members]
    assert len({tuple(each["order"]) for each in found}) == 1, "one order for all nine"
    took_ms = [each for one in found for each in one["took_ms"]]
    assert min(took_ms) >= DELAY_MS
    round_trip_ms = 2 * DELAY_MS
    print(f"median {statistics.median(took_ms) / round_trip_ms:.2f} round trips")
