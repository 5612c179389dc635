"""A killed member is excluded at once, since its kernel refuses; a stopped one is not."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from tests.harness import Cat
from tests.net.recorder import free_port
from tests.waiting import LIMIT_S, until

pytestmark = [pytest.mark.real, pytest.mark.slow]

NAMES = "abcd"
OPTIONS = {"ring": ("--option", "sites=4"), "mtp": (), "rmcast": (), "rmp": ()}


@contextlib.contextmanager
def group(protocol: str, detect_s: int) -> Iterator[tuple[dict[str, Cat], Callable[[str], None]]]:
    """The members, and a function that waits until a, b and c have a view of these."""
    patient = f"unisono://239.192.77.1:{free_port()}/g?join_s={LIMIT_S:g}"
    arguments = (patient, "--protocol", protocol, "--settle", "0")
    arguments += ("--option", f"detect_us={detect_s * 1_000_000}", *OPTIONS[protocol])
    with contextlib.ExitStack() as undo:
        found: dict[str, Cat] = {}
        for name in NAMES:
            master = ("--option", "master=1") if protocol == "mtp" and name == "a" else ()
            found[name] = undo.enter_context(Cat(*arguments, *master, "--name", name))

        def all_see(names: str) -> None:
            until(
                lambda: all(found[name].view == list(names) for name in "abc"),
                f"a view of {names}",
                lambda: str({name: each.view for name, each in found.items()}),
            )

        all_see(NAMES)
        yield found, all_see


@pytest.mark.parametrize("protocol", OPTIONS)
def test_a_killed_member_is_found_by_its_closed_port(protocol: str) -> None:
    """A process is asked about after a fraction of the time that its silence would take: so much
    less that no busy machine makes up for it."""
    with group(protocol, detect_s=20) as (found, all_see):
        killed = time.monotonic()
        found["d"].kill()
        all_see("abc")
        assert time.monotonic() - killed < 20


@pytest.mark.parametrize("protocol", OPTIONS)
def test_a_stopped_member_is_found_by_its_silence(protocol: str) -> None:
    with group(protocol, detect_s=3) as (found, all_see):
        stopped = time.monotonic()
        found["d"].signal(signal.SIGSTOP)
        all_see("abc")
        assert time.monotonic() - stopped > 2, "not sooner"
