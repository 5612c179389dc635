"""The figure of the membership is whole, and the README shows it as it is."""

from __future__ import annotations

from pathlib import Path

from unisono.protocols.transis.figure import FIGURE


def test_every_event_is_decided_in_every_state() -> None:
    assert FIGURE.undecided() == []


def test_the_readme_shows_the_figure_as_it_is(rewrite: bool) -> None:
    path = Path("src") / "unisono" / "protocols" / "transis" / "README.md"
    text = path.read_text(encoding="utf-8")
    if rewrite:
        before, _, rest = text.partition("```mermaid\n")
        _, _, after = rest.partition("```")
        path.write_text(f"{before}```mermaid\n{FIGURE.mermaid()}\n```{after}", encoding="utf-8")
    assert FIGURE.mermaid() in path.read_text(encoding="utf-8")
