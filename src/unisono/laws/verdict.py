"""What a law says of a history: its violations, each with witnesses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from unisono.trace.history import History

VIOLATIONS_MAX: Final = 100
"""How many violations of one law in one run are told: the first in their order."""


class Violation(NamedTuple):
    """One thing that should not have been. All strings, so that they have one order everywhere."""

    law: str
    run: str
    life: str
    """Where it was seen, or who failed to do something: `name#incarnation`."""
    message: str
    """`name#incarnation:number`, or empty."""
    other: str
    """The second witness: a life or a message, or empty."""
    detail: str


Check: TypeAlias = Callable[[History], list[Violation]]


class Law(NamedTuple):
    """A guarantee: its name, its sentence, and the function from history to violations."""

    name: str
    sentence: str
    check: Check


class Verdict(NamedTuple):
    """The verdict on one run, by law, with its violations."""

    laws: dict[str, str]
    """Of every law: `kept`, `broken` or `not claimed`; `not yet` of a run that is followed, where
    the law is about what must come in the end."""
    violations: list[Violation]
    """In order; at most `VIOLATIONS_MAX` of each law."""

    @property
    def kept(self) -> bool:
        return "broken" not in self.laws.values()


def sentence(violation: Violation) -> str:
    """The violation for people, on one line."""
    parts = [violation.law, ":"]
    parts.append(f" {violation.life}" if violation.life else " the group")
    if violation.message:
        parts.append(f", message {violation.message}")
    if violation.other:
        parts.append(f", with {violation.other}")
    return f"{''.join(parts)}: {violation.detail} (run {violation.run})"


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """The verdict on one run as `--json` prints it."""
    return {
        "laws": dict(verdict.laws),
        "violations": [violation_json(violation) for violation in verdict.violations],
    }


def violation_json(violation: Violation) -> dict[str, str]:
    """One violation as `--json` prints it; the run it belongs to stands above it."""
    told = violation._asdict()
    del told["run"]
    return {**told, "sentence": sentence(violation)}
