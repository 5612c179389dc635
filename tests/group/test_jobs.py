"""The work queue of the examples, through kills: each job is held by a majority, and done."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.harness import ENVIRONMENT, ROOT
from tests.net.ear import free_port
from tests.waiting import LIMIT_S

pytestmark = [pytest.mark.real, pytest.mark.slow]


def test_jobs_are_stable_and_done_while_workers_are_killed() -> None:
    program = [sys.executable, str(ROOT / "examples" / "jobs.py"), "--json", "--jobs", "12"]
    done = subprocess.run(
        [*program, "--kill-s", "1", "--port", str(free_port())],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=ENVIRONMENT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["jobs"] == found["stable"] == found["done"] == 12
    assert found["kills"] >= 1 and sum(found["by"].values()) == 12
