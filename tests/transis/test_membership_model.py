"""Three members, every cut and merge, two at once: the worlds of `membership_worlds`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.transis import membership_worlds as model
from tests.transis.membership_worlds import FIRST, Change, Parts, explored
from unisono.protocols.transis.flush import Flush
from unisono.protocols.transis.membership import Membership
from unisono.protocols.transis.packets import Agree

SLICE = 1_200
"""One world of so many is visited by the default suite."""


@pytest.mark.parametrize("token", [0, 1])
def test_some_worlds_of_two_changes(token: int) -> None:
    count, failed = 0, []
    for at, (before, first) in enumerate(FIRST):
        wanted = lambda number, at=at: (number + 17 * at) % SLICE == 600 * token  # noqa: E731
        worlds, broken = explored(before, first, token, wanted)
        count += worlds
        failed += broken
    assert count > 90_000 and not failed


@pytest.mark.soak
@pytest.mark.parametrize("token", [0, 1])
@pytest.mark.parametrize(("before", "first"), FIRST, ids=[f"{'|'.join(b)} > {f}" for b, f in FIRST])
def test_all_worlds_of_two_changes(before: Parts, first: Change, token: int) -> None:
    count, failed = explored(before, first, token)
    assert count and not failed


def by_itself(self: Flush) -> dict[int, Agree]:
    """It ends a configuration with what it holds itself."""
    return {self._local.rank: self._reports[self._local.key]} if self._local.keys else {}


def never(self: Membership, event: object) -> bool:
    """It waits for those that do not answer."""
    return False


@pytest.mark.parametrize(
    ("part", "name", "wrong"),
    [(Flush, "_companions", by_itself), (Membership, "is_overdue", never)],
)
def test_the_worlds_find_what_is_wrong(
    part: type, name: str, wrong: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    model.at_rest.cache_clear()
    monkeypatch.setattr(part, name, wrong)
    try:
        _, failed = explored(("abc",), Change(("ab", "c")), 0, lambda number: number % 40 == 1)
    except AssertionError as error:
        failed = [str(error)]
    finally:
        model.at_rest.cache_clear()
    assert failed
