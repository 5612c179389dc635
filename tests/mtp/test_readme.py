"""The README beside the code shows what the code is."""

from __future__ import annotations

import re
from pathlib import Path

from unisono.protocols.mtp.figure import FIGURE
from unisono.protocols.mtp.parameters import DEFAULTS, PRESETS, Parameters

README = Path(__file__).parents[2] / "src" / "unisono" / "protocols" / "mtp" / "README.md"


def test_the_readme_shows_the_figure_as_it_is(rewrite: bool) -> None:
    """`pytest tests/mtp/test_readme.py --rewrite` puts the figure in as it is now."""
    text = README.read_text(encoding="utf-8")
    if rewrite:
        before, _, rest = text.partition("```mermaid\n")
        _, fence, after = rest.partition("```\n")
        text = f"{before}```mermaid\n{FIGURE.mermaid().rstrip()}\n{fence}{after}"
        README.write_text(text, encoding="utf-8", newline="\n")
    assert FIGURE.mermaid() in text


def test_the_readme_names_every_file_and_every_option() -> None:
    text = README.read_text(encoding="utf-8")
    for path in sorted(README.parent.glob("*.py")):
        assert path.name == "__init__.py" or f"`{path.name}`" in text
    for name, default in DEFAULTS.items():
        assert f"| `{name}` | {default:,} |" in text


def test_the_presets_of_the_readme_are_those_of_the_code() -> None:
    text = README.read_text(encoding="utf-8")
    for name, options in PRESETS.items():
        its = Parameters.of(options)
        row = (
            f"| {its.heartbeat_us // 1000} ms | {its.window:,} | {its.dally} | {its.retention} |"
            f" {its.detect_us / 1_000_000:g} s |"
        )
        assert re.search(rf"\| `{name}` \|.*{re.escape(row)}", text), row
