"""The verdict on a history: each law's violations, with witnesses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeAlias

from unisono.trace.history import History

VIOLATIONS_MAX: Final = 100
"""The most violations of one law that are reported for a run: the first in their order."""


class Finding(NamedTuple):
    """A breach of a law, as the law's function yields it."""

    life: str
    message: str
    other: str
    detail: str


class Violation(NamedTuple):
    """A breach of a law in a run. All strings, so that they have one order everywhere."""

    law: str
    run: str
    life: str
    """The incarnation that broke the law, `name#incarnation`; empty for the group."""
    message: str
    """`name#incarnation:number`, or empty."""
    other: str
    """The second witness: an incarnation or a message, or empty."""
    detail: str


Check: TypeAlias = Callable[[History], list[Violation]]


def violations(law: str, run: str, findings: Iterable[Finding]) -> list[Violation]:
    """In order, each once."""
    return sorted({Violation(law, run, *finding) for finding in findings})


class Law(NamedTuple):
    """A guarantee: its name, its sentence, and the function from history to violations."""

    name: str
    sentence: str
    check: Check


class Verdict(NamedTuple):
    """The verdict on one run, by law, with its violations."""

    laws: dict[str, str]
    """Of every law: `kept`, `broken` or `not claimed`; `uncertain` if all its violations may be
    explained by rows that could not be read; `not yet` while a run is followed and the
    law is about its end."""
    violations: list[Violation]
    """In order; at most `VIOLATIONS_MAX` of each law."""

    @property
    def kept(self) -> bool:
        return "broken" not in self.laws.values()

    @property
    def uncertain(self) -> bool:
        return "uncertain" in self.laws.values()


def sentence(violation: Violation) -> str:
    """The violation as one line of text."""
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
    """One violation as `--json` prints it, below its run."""
    fields = violation._asdict()
    del fields["run"]
    return {**fields, "sentence": sentence(violation)}
