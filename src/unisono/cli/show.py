"""Output that commands share: consoles, verdicts, progress on standard error."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.status import Status
from rich.table import Table

from unisono.laws import SENTENCES
from unisono.laws.verdict import Violation, sentence

VIOLATIONS_SHOWN_MAX: Final = 5
MARKS: Final = {
    "broken": "[bold red]✗ broken[/]",
    "uncertain": "[yellow]? uncertain[/]",
    "kept": "[green]✓ kept[/]",
    "not yet": "[yellow]… not judged yet[/]",
    "not claimed": "[dim]· not claimed[/]",
}


def out() -> Console:
    return Console(highlight=False, soft_wrap=True)


def err() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(value: Mapping[str, Any]) -> None:
    print(json.dumps(value), flush=True)


@contextmanager
def status(text: str) -> Iterator[Status | None]:
    """A spinner on a terminal, nothing elsewhere."""
    console = err()
    if not console.is_terminal:
        yield None
        return
    with console.status(text) as spinner:
        yield spinner


@contextmanager
def progress_bar(total: int, quiet: bool) -> Iterator[Callable[[int, str], None]]:
    """A bar on a terminal, nothing elsewhere: call it with the number done and a text."""
    console = err()
    bar = Progress(
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[text]}"),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    )
    task = bar.add_task("", total=total, text="")
    with bar:
        yield lambda done, text: bar.update(task, completed=done, text=text)


def verdicts(laws: Mapping[str, str], sentences: Mapping[str, str] | None = None) -> Table:
    """The laws by verdict; a broken one with its sentence."""
    known = SENTENCES | dict(sentences or {})
    table = Table.grid(padding=(0, 2, 0, 0))
    by_verdict = {each: [law for law in laws if laws[law] == each] for each in MARKS}
    for verdict in ("broken", "uncertain"):
        for law in by_verdict[verdict]:
            table.add_row(MARKS[verdict], f"[bold]{law}[/]: {escape(known.get(law, ''))}")
    for verdict in ("kept", "not yet", "not claimed"):
        if by_verdict[verdict]:
            table.add_row(MARKS[verdict], ", ".join(by_verdict[verdict]))
    return table


def print_violations(console: Console, violations: Sequence[Violation]) -> None:
    for violation in violations[:VIOLATIONS_SHOWN_MAX]:
        console.print(f"  [red]•[/] {escape(sentence(violation))}")
    if (more := len(violations) - VIOLATIONS_SHOWN_MAX) > 0:
        console.print(f"  [dim]and {more} more; --json lists all[/]")
