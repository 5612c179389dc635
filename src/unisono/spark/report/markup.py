"""HTML building blocks: numbers, anchors, boxes and tables. All text is escaped."""

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
"""Control characters, changes of writing direction, surrogates."""


def count_of(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def clean(text: str, most: int = TEXT_MAX) -> str:
    """Cut, printable and escaped."""
    cut = text if len(text) <= most else text[: most - 1] + "…"
    return escape(_UNFIT.sub("\ufffd", cut))


def spaced(law: str) -> str:
    """The name of a law as text."""
    return law.replace("_", " ")


def more_in(count: int, table_name: str, what: str = "") -> str:
    """A sentence about rows that are not shown, after others."""
    noun = count_of(count, what) if what else f"{count:,}"
    return f" {noun} more in the table <code>{table_name}</code>." if count > 0 else ""


def anchor_of(run: str) -> str:
    """The id of a run on the page: readable, valid in a URL, and unique."""
    slug = re.sub(r"[^a-z0-9]+", "-", run.lower()).strip("-")[:SLUG_MAX]
    if slug == run:
        return f"run-{slug}"
    digest = blake2b(run.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"run-{slug}~{digest}"


def time_of(us: float) -> str:
    if us < 1_000:
        return f"{us:.0f} µs"
    if us < 1_000_000:
        return f"{_three_digits(us / 1_000)} ms"
    return f"{_three_digits(us / 1_000_000)} s"


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def size_of(nbytes: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= unit:
            return f"{nbytes / unit:.3g} {name}"
    return f"{nbytes:,} B"


def section(anchor: str, title: str, note: str, *parts: str) -> str:
    """`title` is text; `note` and the parts are HTML."""
    lead = f'<p class="note">{note}</p>' if note else ""
    head = f'<h2 id="{anchor}-title">{escape(title)}</h2>'
    inner = "".join((head, lead, *parts))
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
    tooltip = f' title="{clean(hint)}"' if hint else ""
    return f'<th scope="col"{shape}{tooltip}>{clean(title)}</th>'


def figure(title: str, note: str, *parts: str) -> str:
    """A figure with its caption; `note` and the parts are HTML."""
    caption = f'<figcaption><h3>{title}</h3><p class="note">{note}</p></figcaption>'
    return f"<figure>{caption}{''.join(parts)}</figure>"


def command(line: str, what: str) -> str:
    """A box to copy from: one click selects all of it."""
    return (
        f'<div class="command"><span>{escape(what)}</span>'
        f'<pre tabindex="0"><code>{clean(line, COMMAND_MAX)}</code></pre></div>'
    )
