"""Three namespaces on a bridge that loses packets, and a member killed midway."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.namespaces import address, dropped, inside, machines
from tests.cli.running import unisono
from tests.harness import Cat
from tests.waiting import until

pytestmark = [pytest.mark.root, pytest.mark.real, pytest.mark.slow]

NAMES = ("a", "b", "c")
LOSS_PERCENT = 10


@pytest.fixture
def spaces() -> Iterator[dict[str, str]]:
    with machines(NAMES, LOSS_PERCENT) as found:
        yield found


def reached(way: str, place: int) -> list[str]:
    if way == "multicast":
        return ["--interface", address(place), "--port", "7400"]
    peers = ",".join(f"{address(each)}:7400" for each in range(1, len(NAMES) + 1))
    return ["--peers", peers, "--bind", f"{address(place)}:7400"]


@pytest.mark.parametrize("way", ["multicast", "peers"])
def test_survivors_of_loss_and_a_kill_agree(
    way: str, spaces: dict[str, str], tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        cats = {}
        for place, name in enumerate(NAMES, 1):
            before = inside(spaces[name])
            arguments = ("far", "--name", name, "--rejoin", "--trace", str(tmp_path))
            cats[name] = stack.enter_context(Cat(*arguments, *reached(way, place), before=before))
        until(
            lambda: all(cat.view == list(NAMES) for cat in cats.values()),
            "one view",
            lambda: str({name: (cat.code, cat.objects) for name, cat in cats.items()}),
        )
        for batch in range(10):
            for name, cat in cats.items():
                cat.write(*(f"{name} {batch}.{n}" for n in range(20)))
        until(lambda: _count(cats["a"], "c") >= 20, "some of c's messages")
        cats["c"].write(*(f"c last {n}" for n in range(2000)))
        cats["c"].kill()
        for name in ("a", "b"):
            cats[name].write(*(f"{name} after {n}" for n in range(50)))
        until(
            lambda: all(_count(cats[x], y) == 250 for x in "ab" for y in "ab"),
            "all messages of the survivors",
        )
        until(lambda: cats["a"].view == cats["b"].view == ["a", "b"], "the view without c")
        until(lambda: sorted(cats["a"].messages) == sorted(cats["b"].messages), "agreement")
        # Few packets carry many messages: one of them may have been lucky.
        assert any(dropped(spaces[name]) > 0 for name in NAMES), "nothing was lost"
        for name in ("a", "b"):
            cats[name].close_input()
            assert cats[name].ended() == 0, cats[name].errors
        assert sorted(cats["a"].messages) == sorted(cats["b"].messages)
    verified = unisono("verify", str(tmp_path), "--json")
    told = json.loads(verified.stdout)
    assert verified.returncode == 0, told
    (run,) = told["runs"].values()
    assert run["laws"]["causal"] == run["laws"]["agreement"] == "kept"


def _count(cat: Cat, sender: str) -> int:
    return sum(each[0] == sender for each in cat.messages)
