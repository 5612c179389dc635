"""What the commands share in showing: a console, verdicts, progress on standard error."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table

from unisono.laws.verdict import Violation, sentence

VIOLATIONS_SHOWN_MAX: Final = 5
MARKS: Final = {
    "broken": "[bold red]✗ broken[/]",
    "kept": "[green]✓ kept[/]",
    "not yet": "[yellow]… not judged yet[/]",
    "not claimed": "[dim]· not claimed[/]",
}


def out() -> Console:
    return Console(highlight=False, soft_wrap=True)


def err() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(told: Mapping[str, Any]) -> None:
    print(json.dumps(told), flush=True)


@contextmanager
def status(words: str) -> Iterator[Status | None]:
    """A moving sign on a terminal, nothing elsewhere."""
    console = err()
    if not console.is_terminal:
        yield None
        return
    with console.status(words) as moving:
        yield moving


def verdicts(laws: Mapping[str, str], sentences: Mapping[str, str]) -> Table:
    """The laws by verdict; of a broken one also what it says."""
    table = Table.grid(padding=(0, 2, 0, 0))
    by_verdict = {each: [law for law in laws if laws[law] == each] for each in MARKS}
    for law in by_verdict["broken"]:
        table.add_row(MARKS["broken"], f"[bold]{law}[/]: {escape(sentences.get(law, ''))}")
    for verdict in ("kept", "not yet", "not claimed"):
        if by_verdict[verdict]:
            table.add_row(MARKS[verdict], ", ".join(by_verdict[verdict]))
    return table


def print_violations(console: Console, violations: Sequence[Violation]) -> None:
    for violation in violations[:VIOLATIONS_SHOWN_MAX]:
        console.print(f"  [red]•[/] {escape(sentence(violation))}")
    if (more := len(violations) - VIOLATIONS_SHOWN_MAX) > 0:
        console.print(f"  [dim]and {more} more; --json tells them all[/]")
