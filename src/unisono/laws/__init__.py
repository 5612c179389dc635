"""A guarantee as a function: history to violations. Plain Python, and the reference for Spark.

Each law's docstring is its definition, in terms that joins, windows and groups can express.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Final

from unisono.errors import Misuse
from unisono.laws.agreed_state import minimum_size, one_lock_holder
from unisono.laws.cuts import cut
from unisono.laws.delivery import agreement, no_creation, no_duplication, progress, safe, validity
from unisono.laws.exclusion import accuracy, exclusion
from unisono.laws.holding import receipts, received, stable
from unisono.laws.linearizable import OPERATION_LAWS
from unisono.laws.local import local_order
from unisono.laws.membership import (
    same_view,
    sender_in_view,
    sending_view,
    transitional_set,
)
from unisono.laws.order import causal, fifo, fifo_by_level, prefix, total_order, view_prefix
from unisono.laws.places import every_place, gap_free, one_place, uniform_order
from unisono.laws.primary import begun, one_component, one_founding, one_primary, quorum
from unisono.laws.unread import BROKEN, KEPT, NOT_CLAIMED, UNCERTAIN, outcome, weighed
from unisono.laws.verdict import (
    VIOLATIONS_MAX,
    Finding,
    Law,
    Verdict,
    Violation,
    sentence,
    violations,
)
from unisono.laws.views import self_inclusion, view_order, virtual_synchrony
from unisono.trace.history import History

__all__ = [
    "LAWS",
    "OPERATION_LAWS",
    "SENTENCES",
    "VIOLATIONS_MAX",
    "Law",
    "Verdict",
    "Violation",
    "judge",
    "judge_all",
    "sentence",
]


def _law(find: Callable[[History], Iterable[Finding]]) -> Law:
    """A law has its function's name; the first line of the docstring is its sentence."""
    name = find.__name__

    def check(history: History) -> list[Violation]:
        return violations(name, history.run, find(history))

    return Law(name, (find.__doc__ or "").strip().splitlines()[0], check)


LAWS: Final[dict[str, Law]] = {
    law.name: law
    for law in map(
        _law,
        (
            no_creation,
            no_duplication,
            fifo,
            fifo_by_level,
            causal,
            total_order,
            prefix,
            view_prefix,
            one_place,
            uniform_order,
            gap_free,
            every_place,
            agreement,
            validity,
            virtual_synchrony,
            view_order,
            self_inclusion,
            local_order,
            cut,
            same_view,
            sending_view,
            sender_in_view,
            transitional_set,
            one_primary,
            one_component,
            quorum,
            one_founding,
            begun,
            minimum_size,
            one_lock_holder,
            exclusion,
            accuracy,
            safe,
            received,
            receipts,
            stable,
            progress,
        ),
    )
}


SENTENCES: Final[dict[str, str]] = {
    **{name: law.sentence for name, law in LAWS.items()},
    **{name: law.sentence for name, law in OPERATION_LAWS.items()},
}
"""Of all laws, those of shared objects last."""


def judge(history: History, claimed: Iterable[str]) -> Verdict:
    """The laws claimed, on one history."""
    wanted = set(claimed)
    unknown = sorted(wanted - LAWS.keys())
    if unknown:
        raise Misuse(f"no law {', '.join(unknown)}; there are {', '.join(LAWS)}")
    laws: dict[str, str] = {}
    broken: list[Violation] = []
    for name, law in LAWS.items():
        found = law.check(history)[:VIOLATIONS_MAX] if name in wanted else []
        found = weighed(name, found, history.unread)
        laws[name] = outcome(found) if name in wanted else NOT_CLAIMED
        broken += found
    return Verdict(laws, sorted(broken))


def judge_all(
    histories: Sequence[History], claims: Callable[[str], Iterable[str]]
) -> dict[str, Verdict]:
    """A verdict per run; `claims` maps a protocol to the laws it claims. A run of several groups
    keeps a law when each group that claims it does; the bound on violations is per run."""
    verdicts: dict[str, Verdict] = {}
    for history in histories:
        mine = judge(history, claims(history.protocol))
        yours = verdicts.get(history.run)
        verdicts[history.run] = mine if yours is None else _both(mine, yours)
    return verdicts


def _both(one: Verdict, two: Verdict) -> Verdict:
    ranks = (NOT_CLAIMED, KEPT, UNCERTAIN, BROKEN)
    laws = {name: max(one.laws[name], two.laws[name], key=ranks.index) for name in LAWS}
    both = sorted(one.violations + two.violations)
    bounded = (
        [found for found in both if found.law == name][:VIOLATIONS_MAX] for name in sorted(LAWS)
    )
    return Verdict(laws, list(chain.from_iterable(bounded)))
