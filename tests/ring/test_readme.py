"""The README beside the code shows what the code is.

`pytest tests/ring/test_readme.py --rewrite` puts in what it is now.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.documents import blocks, section
from tests.harness import output_of
from unisono.core import CoreConfig
from unisono.fsa import Figure, always, name_of, stay
from unisono.model import Address, Member
from unisono.protocols.ring.codes import KINDS, Code, Timer
from unisono.protocols.ring.core import Site
from unisono.protocols.ring.figures import COORDINATOR, RECEIVE, REFORMATION, SEND
from unisono.protocols.ring.parameters import DEFAULTS, PRESETS

ROOT = Path(__file__).parents[2]
README = ROOT / "src" / "unisono" / "protocols" / "ring" / "README.md"
FIGURES = {figure.name: figure for figure in (SEND, RECEIVE, REFORMATION, COORDINATOR)}
A = Member("a", Address("10.0.0.1", 7000), 1)
SITE = Site(CoreConfig(A, "orders", seed=0))
PARTS = {type(part).__name__: part for part in vars(SITE).values()}
"""The parts of a site, by class."""


# -- event by state -------------------------------------------------------------------------------


def table(figure: Figure) -> str:
    """[RNG FSA_TAB] The figure as the paper's two-dimensional table: event by state."""
    states = figure.states()
    lines = [
        f"| event | {' | '.join(state.name for state in states)} |",
        "|---" * (len(states) + 1) + "|",
    ]
    for on in sorted(figure.events(), key=_place):
        cells = [cell(figure, state, on) for state in states]
        lines.append(f"| `{name_of(on)}` | {' | '.join(cells)} |")
    soon = [cell(figure, state, None) for state in states]
    if any(soon):
        lines.append(f"| *as soon as* | {' | '.join(soon)} |")
    return "\n".join(lines)


def _place(on: Any) -> tuple[int, int]:
    """The paper's event numbers, then the timers."""
    return (1 if isinstance(on, Timer) else 0, on.value)


def cell(figure: Figure, state: Any, on: Any) -> str:
    rows = []
    for step in figure.index.get((state, on), []):
        if step.do is stay and step.to is state and len(figure.index[state, on]) == 1:
            return "–"
        guard = "" if step.when is always else f"[{step.when.__name__}] "
        to = "" if step.to is state else f" → **{step.to.name}**"
        do = "–" if step.do is stay else step.do.__name__
        rows.append(f"{guard}{do}{to}")
    return "<br>".join(rows)


# -- the internal events between machines ----------------------------------------------------------


def pushed(function: Callable[..., Any], owner: Any, seen: set[str]) -> Iterator[str]:
    """The names of the events that a method of a part pushes, itself or through its calls."""
    if function.__qualname__ in seen:
        return
    seen.add(function.__qualname__)
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        if not isinstance(node, ast.Call):
            continue
        path = ast.unparse(node.func).split(".")
        if path[-1] == "push":
            yield ast.unparse(node.args[0]).removeprefix("Code.")
        elif path[0] == "self":
            part = owner
            for name in path[1:-1]:
                part = getattr(part, name, None)
            method = getattr(type(part), path[-1], None)
            if inspect.isfunction(method):
                yield from pushed(method, part, seen)


def told() -> dict[tuple[str, str], set[str]]:
    """[RNG Figure 6] Which machine signals which: read off the actions of each figure."""
    found: dict[tuple[str, str], set[str]] = {}
    sources: dict[str, list[Callable[..., Any]]] = {
        name: [arrow.do for arrow in figure.arrows if arrow.do is not stay]
        for name, figure in FIGURES.items()
    }
    for name, actions in {**sources, "application": [Site._obey]}.items():
        for action in actions:
            owner = PARTS.get(action.__qualname__.partition(".")[0], SITE)
            for code in pushed(action, owner, seen=set()):
                for other in listeners(code):
                    found.setdefault((name, other), set()).add(code)
    return found


def interaction() -> str:
    lines = ["flowchart LR"]
    for (source, target), codes in sorted(told().items()):
        lines.append(f'    {source} -- "{"<br/>".join(sorted(codes))}" --> {target}')
    return "\n".join(lines)


def listeners(code: str) -> list[str]:
    """An internal event goes to every machine that knows it; a packet that is handed on, to the
    one of the other phase."""
    if Code[code].value in KINDS:
        return ["reformation"]
    return [name for name, figure in FIGURES.items() if Code[code] in figure.events()]


# -- the page --------------------------------------------------------------------------------------

MADE: dict[str, Callable[[], str]] = {
    "interaction": lambda: f"```mermaid\n{interaction()}\n```",
    **{
        f"{name} diagram": lambda figure=figure: f"```mermaid\n{figure.mermaid()}\n```"  # type: ignore[misc]
        for name, figure in FIGURES.items()
    },
    **{
        f"{name} table": lambda figure=figure: table(figure)  # type: ignore[misc]
        for name, figure in FIGURES.items()
    },
}


def test_the_readme_shows_the_machines_as_they_are(rewrite: bool) -> None:
    text = README.read_text(encoding="utf-8")
    for name, make in MADE.items():
        part = re.compile(rf"(<!-- made: {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        made = make()
        if rewrite:
            text = part.sub(lambda match, made=made: f"{match[1]}{made}\n{match[2]}", text)  # type: ignore[misc]
        (shown,) = part.finditer(text)
        assert shown[0] == f"{shown[1]}{made}\n{shown[2]}", "see it, then pytest --rewrite"
    if rewrite:
        README.write_text(text, encoding="utf-8", newline="\n")


@pytest.mark.rule("RNG-19")
def test_the_machines_exchange_the_internal_events_of_the_papers_figure() -> None:
    found = told()
    for letters, source, target, code in (
        ("SR", "receive", "send", "E_ACK"),
        ("CS", "coordinator", "send", "E_REFEND"),
        ("CR", "coordinator", "receive", "E_REFEND"),
        ("FS", "reformation", "send", "E_REFEND"),
        ("FR", "reformation", "receive", "E_REFEND"),
        ("FR", "receive", "reformation", "E_INIT"),
        ("CF", "reformation", "coordinator", "E_COORDINATOR"),
        ("CF", "coordinator", "reformation", "E_ABORT_REF"),
    ):
        assert code in found[source, target], letters


def test_the_rows_that_the_readme_names_are_rows() -> None:
    text = README.read_text(encoding="utf-8")
    names = {
        each.__name__
        for figure in FIGURES.values()
        for arrow in figure.arrows
        for each in (arrow.when, arrow.do)
    }
    shown = re.findall(r"\[`(\w+)`\]", text) + re.findall(r" / `(\w+)`", text)
    assert len(shown) > 40 and not set(shown) - names, sorted(set(shown) - names)


def test_the_readme_names_every_file_event_timer_and_option() -> None:
    text = README.read_text(encoding="utf-8")
    for path in sorted(README.parent.glob("*.py")):
        assert path.name == "__init__.py" or f"`{path.name}`" in text, path.name
    for each in (*Code, *Timer):
        assert f"`{each.name}`" in text, each.name
    for name in DEFAULTS:
        assert f"`{name}`" in text, name


def test_the_guide_has_every_option_with_its_default_and_every_preset() -> None:
    text = section("PROTOCOLS", "ring")
    for name, default in DEFAULTS.items():
        assert f"| `{name}` | {default:,} |" in text, name
    for name, options in PRESETS.items():
        shown = ("detect_us", "t_send_us", "t_rt_us", "t_reform_us", "t_ref_rt_us", "t_ts_us")
        row = f"| `{name}` | {' | '.join(f'{options[each]:,}' for each in shown)} |"
        assert row in text, row


@pytest.mark.real
@pytest.mark.parametrize("number", range(4))
def test_the_programs_of_the_guide_run(number: int, tmp_path: Path) -> None:
    programs = blocks(section("PROTOCOLS", "ring"), "python")
    assert len(programs) == 4
    output_of("-c", f"import unisono\n{programs[number]}", cwd=tmp_path)
