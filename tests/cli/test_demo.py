"""The first thing a newcomer sees."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.running import ENVIRONMENT, UNISONO, children_of, heeding_ctrl_c, is_alive, unisono
from unisono.cli.troupe import Troupe
from unisono.protocols import offer

pytestmark = [pytest.mark.real, pytest.mark.slow]


def test_the_demo_tells_its_story_and_keeps_the_laws(tmp_path: Path) -> None:
    found = unisono("demo", "--no-spark", "--seconds", "5", cwd=tmp_path)
    assert found.returncode == 0, found.stderr + found.stdout
    for words in ("see each other", "killed", "comes back", "heard the same", "safe"):
        assert words in found.stdout
    assert not found.stderr
    assert unisono("verify", "unisono-demo/trace", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("masters", [1, 3])
def test_the_demo_plays_with_masters(tmp_path: Path, masters: int) -> None:
    arguments = ("demo", "--no-spark", "--seconds", "4", "--members", "4", "--protocol", "mtp")
    arguments += ("--option", f"masters={masters}")
    found = unisono(*arguments, cwd=tmp_path)
    assert found.returncode == 0, found.stderr + found.stdout
    assert "heard the same" in found.stdout
    assert not found.stderr


def test_a_second_demo_replaces_the_first_as_json(tmp_path: Path) -> None:
    arguments = ("demo", "--no-spark", "--seconds", "4", "--members", "3", "--json")
    # More than usual: who is kept from its work for long is left out, on a busy machine too.
    arguments += ("--option", "tries=60")
    for _ in range(2):
        found = unisono(*arguments, cwd=tmp_path)
        assert found.returncode == 0, found.stderr + found.stdout
        told = json.loads(found.stdout)
        assert told["demo"]["members"] == ["a", "b", "c"]
        assert list(told["runs"]) == ["demo"]


def test_each_member_is_started_with_its_role_in_every_life(tmp_path: Path) -> None:
    def first_is_master(index: int, count: int, options: Mapping[str, int]) -> Mapping[str, int]:
        return {**options, "master": int(index == 0)}

    roles = replace(offer("rmcast"), appoint=first_is_master)
    troupe = Troupe(roles, {"tokens": 3}, ["a", "b"], tmp_path)
    for name, role in (("a", "master=1"), ("b", "master=0"), ("a", "master=1")):
        words = troupe.arguments(name)
        given = [words[at + 1] for at, word in enumerate(words) if word == "--option"]
        assert given == ["tokens=3", role]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_no_process_behind(tmp_path: Path, number: int) -> None:
    process = subprocess.Popen(
        [*UNISONO, "demo", "--no-spark"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        preexec_fn=heeding_ctrl_c,
    )
    members: list[int] = []
    end = time.monotonic() + 20
    while len(members) < 5 and time.monotonic() < end:
        time.sleep(0.05)
        members = children_of(process.pid)
    time.sleep(0.5)
    process.send_signal(number)
    assert process.wait(20) in (130, 143)
    assert process.stderr is not None
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()
    time.sleep(0.2)
    assert [pid for pid in members if is_alive(pid)] == []
