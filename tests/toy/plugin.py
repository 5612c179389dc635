"""The toy protocol as an installed plugin: a distribution whose metadata names its `ProtocolSpec`.

`make_distribution` writes what `pip install` would leave of these lines of a pyproject.toml:

    [project.entry-points."unisono.protocols"]
    sequencer = "tests.toy.sequencer:SPEC"
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
ENTRY = "[unisono.protocols]\nsequencer = tests.toy.sequencer:SPEC\n"


def make_distribution(directory: Path, entry: str = ENTRY) -> None:
    metadata = directory / "toy_sequencer-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-sequencer\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(entry)
