"""The two machines are whole, and name what the paper names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rmp.theatre import together
from unisono.fsa import Figure
from unisono.protocols.rmp.figure import REFORMATION, TOKEN
from unisono.protocols.rmp.packets import PacketKind

README = Path("src") / "unisono" / "protocols" / "rmp" / "README.md"


@pytest.mark.parametrize("figure", [TOKEN, REFORMATION], ids=lambda figure: figure.name)
def test_every_event_is_decided_in_every_state(figure: Figure) -> None:
    assert figure.undecided() == []


def test_the_readme_shows_the_figures_as_they_are(rewrite: bool) -> None:
    text = README.read_text(encoding="utf-8")
    before, *parts = text.split("```mermaid\n")
    made = [f"{f.mermaid()}\n```{part.partition('```')[2]}"
            for f, part in zip((TOKEN, REFORMATION), parts, strict=True)]  # fmt: skip
    shown = "```mermaid\n".join((before, *made))
    if rewrite:
        README.write_text(shown, encoding="utf-8", newline="\n")
    assert README.read_text(encoding="utf-8") == shown, "see it, then pytest --rewrite"


@pytest.mark.rule("RMP-11")
def test_a_reformation_walks_the_papers_states() -> None:
    """[RMP §3.1] The reform site gathers, then sends the list; a slave answers, then confirms."""
    room = together("a", "b", "c", "d")
    seen: dict[str, list[str]] = {name: ["NORMAL"] for name in "abc"}
    room.obey("crash d")

    def walked() -> bool:
        for name in "abc":
            if seen[name][-1] != (state := room.reform_state(name)):
                seen[name].append(state)
        return all(room.views(name) and room.members(name) == "abc" for name in "abc")

    room.until(walked)
    reformer = room.of(PacketKind.COMMIT)[0].by
    assert seen.pop(reformer) == ["NORMAL", "START_RECOVERY", "SENT_NEW_LIST", "NORMAL"]
    for states in seen.values():
        assert states[:2] == ["NORMAL", "SLAVE"]
        assert states[-2:] == ["CONFIRMED", "NORMAL"]
