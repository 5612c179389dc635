"""The work queue of the examples, through kills: each job is held by a majority, and done."""

from __future__ import annotations

import json

import pytest

from tests.harness import ROOT, output_of
from tests.net.recorder import free_port

pytestmark = [pytest.mark.real, pytest.mark.slow]


def test_jobs_are_stable_and_done_while_workers_are_killed() -> None:
    words = (str(ROOT / "examples" / "jobs.py"), "--json", "--jobs", "12", "--kill-s", "1")
    found = json.loads(output_of(*words, "--port", str(free_port())))
    assert found["jobs"] == found["stable"] == found["done"] == 12
    assert found["kills"] >= 1 and sum(found["by"].values()) == 12
