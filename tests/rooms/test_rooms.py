"""Are the rooms what the design says, and would we notice if not?"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.harness import output_of
from tests.rooms import tidy

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
FILES = sorted((SRC / "unisono").rglob("*.py"))
BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.py"))
MODULES = frozenset(tidy.module_of(path, SRC) for path in FILES)
PROTOCOLS = sorted(
    path for path in (SRC / "unisono" / "protocols").glob("[a-z]*") if any(path.glob("*.py"))
)
HEAVY = ("pyspark", "pyarrow", "pandas", "numpy", "typer", "rich")


def told_of_each(check: object) -> list[str]:
    """All complaints of a check that wants source, module and whether it is a package."""
    assert callable(check)
    return [
        complaint
        for path in FILES
        for complaint in check(
            path.read_text(), tidy.module_of(path, SRC), is_package=path.stem == "__init__"
        )
    ]


def project_files() -> list[Path]:
    """What is or would be committed; every file when this is no checkout."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        paths = [ROOT / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        hidden = (".venv", ".git", "build", "dist", "__pycache__")
        paths = [p for p in ROOT.rglob("*") if not set(p.relative_to(ROOT).parts) & set(hidden)]
    return [path for path in paths if path.is_file()]


# The house as it is.


def test_imports_point_up_and_left() -> None:
    assert not [
        complaint
        for path in FILES
        for complaint in tidy.wrong_rooms(
            path.read_text(), tidy.module_of(path, SRC), MODULES, path.stem == "__init__"
        )
    ]


def test_pure_rooms_know_no_clock_dice_socket_file_or_log() -> None:
    assert not told_of_each(tidy.impurities)


def test_only_a_protocols_own_folder_knows_its_name() -> None:
    names = frozenset(path.name for path in PROTOCOLS)
    assert not [
        complaint
        for path in FILES
        for complaint in tidy.protocols_named(path.read_text(), tidy.module_of(path, SRC), names)
    ]


def test_only_the_wire_and_the_sockets_know_struct() -> None:
    assert not told_of_each(tidy.struct_elsewhere)


def test_no_file_has_become_two() -> None:
    assert not [
        complaint
        for path in (*FILES, *BENCHMARKS)
        for complaint in tidy.too_long(path.read_text(), str(path.relative_to(ROOT)))
    ]


def test_the_package_does_not_need_the_benchmarks() -> None:
    assert BENCHMARKS
    assert not told_of_each(tidy.beyond_the_wheel)


def test_importing_unisono_imports_nothing_heavy() -> None:
    program = f"import sys, unisono; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert output_of("-c", program) == "[]\n"


@pytest.mark.parametrize("folder", PROTOCOLS, ids=lambda path: path.name)
def test_a_protocol_says_where_it_leaves_its_paper(folder: Path) -> None:
    readme = folder / "README.md"
    assert readme.is_file(), "a protocol's folder has a README.md"
    sources = {path.name: path.read_text() for path in sorted(folder.rglob("*.py"))}
    assert not tidy.deviations_apart(sources, readme.read_text())


def test_no_file_names_one_machine_or_one_registry() -> None:
    complaints = []
    for path in project_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        complaints += tidy.banned(text, str(path.relative_to(ROOT)))
    assert not complaints


# The checks can fail.

SOME_MODULES = frozenset(
    """unisono unisono.model unisono.core unisono.net unisono.net.udp unisono.sim unisono.sim.world
    unisono.protocols unisono.protocols.ring unisono.protocols.ring.core unisono.protocols.mtp
    unisono.protocols.mtp.core unisono.protocols.catalogue""".split()
)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("unisono.model", "import unisono.errors"),
        ("unisono.core", "from unisono import net"),
        ("unisono.core", "def f():\n    from unisono.net.udp import Socket"),
        ("unisono.sim.world", "from unisono.net import udp"),
        ("unisono.sim.world", "from ..net import udp"),
        ("unisono.sim.world", "from unisono.protocols import ring"),
        ("unisono.sim.world", "from unisono.protocols.ring.core import Ring"),
        ("unisono.protocols.ring.core", "from unisono.protocols.mtp import core"),
        ("unisono.protocols.ring.core", "from ..mtp import core"),
        ("unisono.protocols.ring.core", "from unisono import protocols"),
        ("unisono.protocols.ring.core", "from unisono.protocols.catalogue import CATALOGUE"),
        ("unisono.cellar", "import ast"),
    ],
)
def test_an_import_that_points_the_wrong_way_is_told(module: str, source: str) -> None:
    assert len(tidy.wrong_rooms(source, module, SOME_MODULES)) == 1


@pytest.mark.parametrize(
    "source", ["TURNS = {'mtp': 1}", "raise E('use ring or mtp')", "p = spec('rmcast')"]
)
def test_a_protocol_known_by_name_is_reported(source: str) -> None:
    names = frozenset(("mtp", "ring", "rmcast"))
    assert len(tidy.protocols_named(source, "unisono.spark.measures", names)) == 1
    assert not tidy.protocols_named(source, "unisono.protocols", names)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("unisono.core", "from unisono.model import View\nimport collections"),
        (
            "unisono.sim.world",
            "from unisono.protocols import catalogue, CATALOGUE\nfrom . import x",
        ),
        ("unisono.protocols.ring.core", "from .figure import FIGURE\nfrom unisono import model"),
        ("unisono.protocols.catalogue", "from unisono.protocols.ring.core import Ring"),
        ("unisono.cli.demo", "import unisono\nfrom unisono.sim import world"),
    ],
)
def test_an_import_that_points_the_right_way_is_not(module: str, source: str) -> None:
    assert not tidy.wrong_rooms(source, module, SOME_MODULES)


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "import os.path",
        "from random import random",
        "import random",
        "def f():\n    import asyncio",
        "print(1)",
        "open('x')",
    ],
)
def test_an_impurity_is_told_in_a_pure_room_only(source: str) -> None:
    assert len(tidy.impurities(source, "unisono.protocols.ring.core")) == 1
    assert len(tidy.impurities(source, "unisono.services.commit.table")) == 1
    assert not tidy.impurities(source, "unisono.services.actions")
    assert not tidy.impurities(source, "unisono.net.udp")


def test_a_seeded_die_is_pure() -> None:
    assert not tidy.impurities("from random import Random", "unisono.parts.nak")


def test_struct_in_the_wrong_room_is_told() -> None:
    assert tidy.struct_elsewhere("from struct import Struct", "unisono.protocols.ring.packets")
    assert not tidy.struct_elsewhere("import struct", "unisono.net.udp")
    assert not tidy.struct_elsewhere("import struct", "unisono.wire")


@pytest.mark.parametrize(
    "source", ["import benchmarks", "def f():\n    from benchmarks.peers import peers"]
)
def test_a_need_of_the_benchmarks_is_told(source: str) -> None:
    assert len(tidy.beyond_the_wheel(source, "unisono.cli.bench")) == 1
    assert not tidy.beyond_the_wheel("from unisono import bench", "unisono.cli.bench")


def test_a_long_file_is_told() -> None:
    assert tidy.too_long("x\n" * tidy.LINES_MAX, "long.py")
    assert not tidy.too_long("x\n" * (tidy.LINES_MAX - 1), "short.py")


README = """
# ring
## Deviations
- **[RNG §4]** the token is packed, see [RNG §2] and [the design](docs/x.md).
## Symbols
- [RNG §9] is no deviation.
"""


def test_marks_and_list_of_deviations_that_agree_pass() -> None:
    assert not tidy.deviations_apart({"a.py": "x = 1  # Deviates [RNG §4]: faster\n"}, README)


@pytest.mark.parametrize(
    "source",
    [
        "x = 1\n",
        "# Deviates [RNG §4]: faster\n# Deviates [RNG §5]: not listed\n",
        "# Deviates [RNG §4]: faster\n# Deviates from the paper here\n",
        "# Deviates [RNG §4]: faster\n# Deviates [RNG §9]: listed elsewhere\n",
    ],
)
def test_marks_and_list_of_deviations_that_differ_are_told(source: str) -> None:
    assert len(tidy.deviations_apart({"a.py": source}, README)) == 1


@pytest.mark.parametrize("text", ["cd /wo" + "rk/main", "https://py" + "pi.org/simple"])
def test_a_machine_or_a_registry_is_told(text: str) -> None:
    assert tidy.banned(text, "a.txt")
    assert not tidy.banned("../network/x and net/works/ and pip install", "a.txt")


def test_a_class_name_means_one_thing() -> None:
    """Across all rooms; inside a protocol's folder the same role has the same name."""
    sources = [(tidy.module_of(path, SRC), path.read_text()) for path in FILES]
    sources += [(tidy.module_of(path, ROOT), path.read_text()) for path in BENCHMARKS]
    assert not tidy.names_twice(sources)


def test_a_second_meaning_of_a_class_name_is_noticed() -> None:
    twice = [("unisono.net.a", "class Stream: ..."), ("unisono.sim.b", "class Stream: ...")]
    assert tidy.names_twice(twice) == ["Stream: unisono.net.a, unisono.sim.b"]
    alike = [
        ("unisono.protocols.ring.packets", "class Header: ..."),
        ("unisono.protocols.mtp.packets", "class Header: ..."),
    ]
    assert not tidy.names_twice(alike)
    assert tidy.names_twice([*alike, ("unisono.wire", "class Header: ...")])
