"""A member that is killed is left out at once, for its kernel tells; one that is stopped is not."""

from __future__ import annotations

import contextlib
import signal
import time

import pytest

from tests.cli.running import free_port
from tests.harness import Cat
from tests.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.slow]

DETECT_S = 4
"""Far more than a busy machine needs, so that only the kernel's word can be sooner."""
NAMES = "abcde"
OPTIONS = {"ring": ("--option", "sites=5"), "mtp": (), "rmcast": ()}


@pytest.mark.parametrize("protocol", OPTIONS)
def test_a_killed_member_is_found_by_its_closed_port_and_a_stopped_one_by_its_silence(
    protocol: str,
) -> None:
    arguments = ("g", "--protocol", protocol, "--port", str(free_port()), "--settle", "0")
    arguments += ("--option", f"detect_us={DETECT_S * 1_000_000}", *OPTIONS[protocol])
    with contextlib.ExitStack() as undo:
        found: dict[str, Cat] = {}
        for name in NAMES:
            master = ("--option", "master=1") if protocol == "mtp" and name == "a" else ()
            cat = Cat(*arguments, *master, "--name", name)
            found[name] = undo.enter_context(cat)

        def all_see(names: str) -> None:
            until(
                lambda: all(found[name].view == list(names) for name in "abc"),
                f"a view of {names}",
                lambda: str({name: each.view for name, each in found.items()}),
            )

        all_see("abcde")
        killed = time.monotonic()
        found["e"].kill()
        all_see("abcd")
        stopped = time.monotonic()
        found["d"].signal(signal.SIGSTOP)
        all_see("abc")
        took = (stopped - killed, time.monotonic() - stopped)
        assert took[0] < DETECT_S, took
        assert took[1] > DETECT_S - 1, took
