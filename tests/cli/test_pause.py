"""A member that is stopped for seconds is left out, and comes back by itself."""

from __future__ import annotations

import signal
import time

import pytest

from tests.cli.running import cats
from tests.net.recorder import free_port
from tests.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.slow]


def test_seconds_of_sigstop_are_not_the_end_of_a_member() -> None:
    arguments = ("g", "--port", str(free_port()), "--option", "sites=3", "--settle", "0")
    with cats("abc", *arguments) as found:
        found["c"].write("before")
        until(lambda: all(each.messages for each in found.values()), what="a word of c")
        found["c"].signal(signal.SIGSTOP)
        until(lambda: found["a"].view == found["b"].view == ["a", "b"], what="a view without c")
        found["a"].write("meanwhile")
        time.sleep(1)
        found["c"].signal(signal.SIGCONT)
        until(
            lambda: all(each.view == ["a", "b", "c"] for each in found.values()),
            what="all in one view again",
        )
        found["c"].write("after")
        for each in found.values():
            until(lambda each=each: each.messages[-1][2] == "after", what="a word of c, again")
        (back,) = [each for each in found["c"].objects if each["kind"] == "rejoined"]
        assert back["missed"] >= 1, "a's messages meanwhile"
        assert back["lost"] == 0
        assert not any(each["kind"] == "rejoined" for name in "ab" for each in found[name].objects)
