"""A web of `unisono cat`s: what a user sees of its master."""

from __future__ import annotations

import contextlib
import signal

import pytest

from tests.cli.running import refused, unisono
from tests.harness import Cat
from tests.net.recorder import free_port
from tests.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.slow]


def web(port: int, **parameters: int) -> str:
    given = "".join(f"&{name}={value}" for name, value in parameters.items())
    return f"unisono://239.192.77.1:{port}/orders?protocol=mtp{given}"


def reasons(cat: Cat) -> list[str]:
    return [each["reason"] for each in cat.objects if each["kind"] == "rejoined"]


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({}, "no master answers: start one member with master=1"),
        ({"masters": 3}, "start at least 2 of master=1, master=2, master=3"),
        ({"masters": 3, "master": 2}, "start at least 1 of master=1, master=3"),
    ],
)
def test_without_a_master_one_line_names_what_to_start(
    parameters: dict[str, int], words: str
) -> None:
    refused(unisono("cat", web(free_port(), join_s=1, **parameters)), words, code=3)


def test_a_second_master_learns_of_the_first() -> None:
    port = free_port()
    with Cat(web(port, master=1), "--name", "a") as a:
        until(lambda: a.view == ["a"], what="a web")
        for name in ("b", "a"):
            found = unisono("cat", web(port, master=1), "--name", name)
            refused(found, "master=1 is a#", "already", code=3)
        with Cat(web(port), "--name", "b") as b:
            until(lambda: a.view == b.view == ["a", "b"], what="a member beside them")


def test_members_learn_that_the_master_ended_the_web_and_join_the_next() -> None:
    port = free_port()
    with contextlib.ExitStack() as stack:
        a = stack.enter_context(Cat(web(port, master=1), "--name", "a"))
        b = stack.enter_context(Cat(web(port), "--name", "b", "--no-rejoin"))
        c = stack.enter_context(Cat(web(port, join_s=3), "--name", "c"))
        until(lambda: a.view == b.view == c.view == ["a", "b", "c"], what="one view")
        a.signal(signal.SIGINT)
        assert a.ended() == 130
        assert b.ended() == 3
        assert b.errors == "unisono: stopped: the master ended the web\n"
        a = stack.enter_context(Cat(web(port, master=1), "--name", "a"))
        until(lambda: a.view == c.view == ["a", "c"], what="c in the next web")
        c.write("again")
        until(lambda: [text for _, _, text in a.messages] == ["again"], what="c's message")
        a.kill()
        until(
            lambda: (
                "c has not rejoined, still trying: no master answers: start one member" in c.errors
            ),
            what="what to do",
        )
        a = stack.enter_context(Cat(web(port, master=1), "--name", "a"))
        # The view of the second web reads the same: c has come back twice when it is the third's.
        until(lambda: len(reasons(c)) == 2 and a.view == ["a", "c"], what="c in the third web")
        assert reasons(c)[-1] == "the master is dead"
