"""`--stable`: what a member must not forget, in a file that one process has at a time."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.cli.running import refused, unisono
from tests.harness import Cat
from tests.net.recorder import free_port
from tests.waiting import until
from unisono.net.stable import StableFile

pytestmark = pytest.mark.real


def seen(cat: Cat) -> bool:
    return bool(cat.view)


def test_a_killed_cat_leaves_its_records_and_its_number(tmp_path: Path) -> None:
    arguments = ("talk", "--name", "a", "--port", str(free_port()), "--settle", "0")
    numbers = []
    for _ in range(2):
        with Cat(*arguments, "--stable", str(tmp_path / "a")) as cat:
            until(partial(seen, cat), what="a view")
            cat.kill()
        store = StableFile(tmp_path / "a")
        numbers.append(store.incarnation)
        assert [record for piece in store.pieces() for record in piece], (
            "the ring keeps its promise"
        )
        store.close()
    assert 0 < numbers[0] < numbers[1]


def test_two_members_are_not_given_one_file(tmp_path: Path) -> None:
    port, file = str(free_port()), str(tmp_path / "a")
    with Cat("talk", "--name", "a", "--port", port, "--stable", file) as cat:
        until(partial(seen, cat), what="a view")
        second = unisono("cat", "talk", "--name", "b", "--port", port, "--stable", file)
        refused(second, "in use by another member: give each member another file")


def test_a_client_of_a_daemon_leaves_the_file_to_it(tmp_path: Path) -> None:
    found = unisono("cat", "talk", "--daemon", "unix:/tmp/none", "--stable", str(tmp_path / "a"))
    refused(found, "stable= cannot be used with daemon=")
