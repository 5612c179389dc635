"""The first thing a newcomer sees."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.running import children_of, heeding_ctrl_c, is_alive, unisono
from tests.harness import ENVIRONMENT, UNISONO
from tests.waiting import LIMIT_S, until
from unisono.cli.demo import MARKER
from unisono.cli.members import DemoCluster
from unisono.protocols import spec

pytestmark = [pytest.mark.real, pytest.mark.slow]


PATIENT = ("--option", "detect_us=3000000")
"""A member that does not run for long is excluded, on a busy machine too."""


def test_the_demo_reports_each_step_and_keeps_the_laws(tmp_path: Path) -> None:
    found = unisono("demo", "--no-spark", "--seconds", "5", *PATIENT, cwd=tmp_path)
    assert found.returncode == 0, found.stderr + found.stdout
    for words in ("see each other", "killed", "comes back", "delivered the same", "safe"):
        assert words in found.stdout
    assert not found.stderr
    assert unisono("verify", "unisono-demo/trace", cwd=tmp_path).returncode == 0


def test_the_network_of_a_group_whose_parts_go_on_is_cut(tmp_path: Path) -> None:
    arguments = ("--no-spark", "--seconds", "4", "--members", "3", "--protocol", "transis")
    found = unisono("demo", *arguments, cwd=tmp_path)
    assert found.returncode == 0, found.stderr + found.stdout
    for words in ("cut between a b and c", "both go on", "the sides merge", "delivered the same"):
        assert words in found.stdout
    assert not found.stderr


@pytest.mark.parametrize("masters", [pytest.param(1, marks=pytest.mark.soak), 3])
def test_a_second_demo_with_masters_replaces_the_first_as_json(
    tmp_path: Path, masters: int
) -> None:
    first = tmp_path / "unisono-demo"
    (first / "trace" / "run=former").mkdir(parents=True)
    (first / MARKER).touch()
    arguments = ("demo", "--no-spark", "--seconds", "4", "--members", "4", "--protocol", "mtp")
    arguments += ("--option", f"masters={masters}", *PATIENT, "--json")
    found = unisono(*arguments, cwd=tmp_path)
    assert found.returncode == 0, found.stderr + found.stdout
    assert not found.stderr
    told = json.loads(found.stdout)
    assert told["demo"]["members"] == ["a", "b", "c", "d"]
    assert told["demo"]["same"]
    assert list(told["runs"]) == ["demo"]
    assert not (first / "trace" / "run=former").exists()


def test_each_member_is_started_with_its_role_in_every_life(tmp_path: Path) -> None:
    def first_is_master(index: int, count: int, options: Mapping[str, int]) -> Mapping[str, int]:
        return {**options, "master": int(index == 0)}

    roles = replace(spec("rmcast"), assign_roles=first_is_master)
    cluster = DemoCluster(roles, {"tokens": 3}, ["a", "b"], tmp_path)
    for name, role in (("a", "master=1"), ("b", "master=0"), ("a", "master=1")):
        words = cluster.arguments(name)
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
    until(lambda: len(children_of(process.pid)) == 5, "five members")
    members = children_of(process.pid)
    process.send_signal(number)
    assert process.wait(LIMIT_S) in (130, 143)
    assert process.stderr is not None
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()
    until(lambda: not any(map(is_alive, members)), "their end")
