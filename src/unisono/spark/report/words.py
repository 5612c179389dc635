"""How things are said on the page: numbers, anchors, boxes and tables. All text is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b
from html import escape
from typing import Final

SLUG_MAX: Final = 48
TEXT_MAX: Final = 400
"""A longer text is cut."""
COMMAND_MAX: Final = 4096

_UNFIT: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters, signs that turn the direction of writing, halves of characters."""


def count_of(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def clean(text: str, most: int = TEXT_MAX) -> str:
    """Fit to stand in the page, where it disturbs nothing around it."""
    cut = text if len(text) <= most else text[: most - 1] + "…"
    return escape(_UNFIT.sub("\ufffd", cut))


def anchor_of(run: str) -> str:
    """The name of a run's place on the page: readable, safe in an address, and its own."""
    slug = re.sub(r"[^a-z0-9]+", "-", run.lower()).strip("-")[:SLUG_MAX]
    if slug == run:
        return f"run-{slug}"
    digest = blake2b(run.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"run-{slug}~{digest}"


def time_of(us: float) -> str:
    """A time as people say it."""
    if us < 1_000:
        return f"{us:.0f} µs"
    if us < 1_000_000:
        return f"{_three(us / 1_000)} ms"
    return f"{_three(us / 1_000_000)} s"


def _three(value: float) -> str:
    """Three digits, but all of those before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def size_of(octets: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if octets >= unit:
            return f"{octets / unit:.3g} {name}"
    return f"{octets:,} B"


def section(anchor: str, title: str, note: str, *parts: str) -> str:
    """`title` is text; `note` and the parts are HTML."""
    told = f'<p class="note">{note}</p>' if note else ""
    head = f'<h2 id="{anchor}-title">{escape(title)}</h2>'
    inner = "".join((head, told, *parts))
    return f'<section id="{anchor}" aria-labelledby="{anchor}-title">{inner}</section>'


def table(label: str, head: Iterable[str], rows: Iterable[str], kind: str = "") -> str:
    """A table that scrolls in its own box where it is too wide; `head` and `rows` are HTML."""
    shape = f' class="{kind}"' if kind else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{clean(label)}">'
        f"<table{shape}><thead><tr>{''.join(head)}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def column(title: str, kind: str = "", hint: str = "") -> str:
    shape = f' class="{kind}"' if kind else ""
    told = f' title="{clean(hint)}"' if hint else ""
    return f'<th scope="col"{shape}{told}>{clean(title)}</th>'


def command(line: str, what: str) -> str:
    """A box to copy from: one click selects all of it."""
    return (
        f'<div class="command"><span>{escape(what)}</span>'
        f'<pre tabindex="0"><code>{clean(line, COMMAND_MAX)}</code></pre></div>'
    )
