"""The rules of the house as functions: a source goes in, complaints come out."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

PURE = (
    "model",
    "requests",
    "core",
    "spec",
    "fsa",
    "wire",
    "fields",
    "layout",
    "parts",
    "protocols",
    "sealing",
    "draw",
    "state_machine",
)
PURE_FOLDERS = (
    "unisono.services.calls",
    "unisono.services.commit",
    "unisono.services.merge",
    "unisono.services.objects",
    "unisono.services.replication",
    "unisono.services.sqlite.statements",
    "unisono.services.sqlite.updates",
)
"""Pure parts of rooms that are not."""
PURE_NAMES = {("random", "Random"), ("io", "BytesIO")}
"""Dice that are given their seed, and a file that is none but memory."""
IMPURE_MODULES = frozenset(
    "time random socket os io asyncio logging threading secrets uuid datetime".split()
)
IMPURE_CALLS = frozenset(("open", "print", "input"))
KNOWS_STRUCT = ("wire", "fields", "layout", "net")
LINES_MAX = 450
TOO_LONG_BUT_EXCUSED: frozenset[str] = frozenset()

NAMED_BUT_EXCUSED = {
    ("unisono.core", "ring"),  # DEFAULT_PROTOCOL
    ("unisono.cli.daemon", "ring"),  # an event of `unisono daemon --json`: the daemons' group
    ("unisono.bench.own", "--ring"),  # the option for that group
}
"""Texts by which code outside a protocol's folder may know it."""

OF_A_PROTOCOL = frozenset("model requests core spec fsa fields layout wire parts errors".split())
ANYTHING = None

# Which rooms a room may import, besides itself. `protocols` is the catalogue alone.
MAY_IMPORT: dict[str, frozenset[str] | None] = {
    "errors": frozenset(),
    "model": frozenset(),
    "state_machine": frozenset(),
    "requests": frozenset(("model", "errors")),
    "core": frozenset(("requests", "model", "errors")),
    "spec": frozenset(("requests", "model", "core")),
    "fsa": frozenset(("model", "core", "errors")),
    "fields": frozenset(("model", "errors")),
    "layout": frozenset(("fields", "model", "errors")),
    "wire": frozenset(("fields", "model", "errors")),
    "parts": frozenset("model requests core fsa fields layout wire errors".split()),
    "protocols": OF_A_PROTOCOL | {"protocols.*"},
    "protocols.*": OF_A_PROTOCOL,
    "processes": frozenset(("errors",)),
    "trace": frozenset(("model", "core", "spec", "errors")),
    "laws": frozenset(("model", "trace", "errors")),
    "draw": frozenset(("model", "trace", "protocols", "errors")),
    "sealing": frozenset("model fields layout wire errors".split()),
    "sim": frozenset("model requests core spec wire errors protocols trace laws sealing".split()),
    "net": frozenset("model core fields layout wire errors parts sealing".split()),
    "config": frozenset(("net", "core", "spec", "model", "errors")),
    "replay_history": frozenset(("fields", "layout", "wire", "model", "errors")),
    "delivered_counts": frozenset("fields layout model parts".split()),
    "group": frozenset(
        """config delivered_counts replay_history net protocols sealing trace requests core spec
        model errors""".split()
    ),
    "client": frozenset(
        "group config net parts requests core spec fields layout wire model errors".split()
    ),
    "daemon": frozenset(
        """unisono client group config net protocols parts requests core spec fields layout wire
        model errors""".split()
    ),
    "sync": frozenset("client group config net requests core spec model errors services".split()),
    "programs": frozenset(
        """unisono sim draw laws trace group config net replay_history requests spec core model
        errors""".split()
    ),
    "services": frozenset(
        "unisono group net trace state_machine fields layout fsa core model errors".split()
    ),
    "log": frozenset(("model", "fields", "layout", "wire", "errors")),
    "feed": frozenset(
        "unisono client group config net replay_history log fields layout wire model errors".split()
    ),
    "spark": frozenset("feed log services draw sim protocols trace laws model errors".split()),
    # The public face hands out names of the rooms a program needs, never what is for people.
    "unisono": frozenset(
        """client config group net programs protocols requests core services state_machine sync
        model errors""".split()
    ),
    "bench": ANYTHING,
    "cli": ANYTHING,
    "__main__": ANYTHING,
}

BANNED = {
    r"(?<![\w.~-])/wo" + r"rk/": "a path of one machine",
    r"\bpy" + r"pi\.org": "a registry host",
    r"pythonhosted" + r"\.org": "a registry host",
    r"registry\.npm" + r"js\.org": "a registry host",
    r"repo1?\.maven\." + r"(?:apache\.)?org": "a registry host",
    r"file:///opt" + r"/pypi": "a registry host",
}

DEVIATES = re.compile(r"# Deviates \[([A-Z]{2,}[^\]\n]*)\]: \S")
LISTED = re.compile(r"^\s*(?:[-*|]|\d+\.|#+)?\s*[*_`]*\[([A-Z]{2,}[^\]\n]*)\](?!\()", re.MULTILINE)


def room_of(module: str) -> str:
    """`unisono.protocols.rmcast.core` is in `protocols.rmcast`, `unisono.sim.world` in `sim`."""
    names = module.split(".")[1:]
    if not names:
        return "unisono"
    return ".".join(names[:2]) if names[0] == "protocols" else names[0]


def module_of(path: Path, src: Path) -> str:
    """The module a file is; a package's own file is the package."""
    names = list(path.relative_to(src).with_suffix("").parts)
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


def imports(source: str, module: str, is_package: bool) -> Iterator[tuple[int, str, str]]:
    """Line, module and name of each import; relative ones made absolute, name empty if none."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, ""
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                here = module.split(".")
                above = here[: len(here) - node.level + is_package]
                origin = ".".join([*above, *filter(None, [origin])])
            for alias in node.names:
                yield node.lineno, origin, alias.name


def wrong_rooms(
    source: str, module: str, modules: frozenset[str], is_package: bool = False
) -> list[str]:
    """Imports that point the wrong way. `modules` are all of ours, to tell module from name."""
    room = room_of(module)
    if (
        room.startswith("protocols.")
        and f"unisono.{room}" in modules
        and not _is_folder(room, modules)
    ):
        room = "protocols"  # a plain file beside the folders belongs to the catalogue
    kind = "protocols.*" if room.startswith("protocols.") else room
    if kind not in MAY_IMPORT:
        return [f"{module}: room {room!r} is not in the map of rooms; add it, with what it may use"]
    allowed = MAY_IMPORT[kind]
    complaints = []
    for line, origin, name in imports(source, module, is_package):
        if origin.split(".")[0] != "unisono" or allowed is ANYTHING:
            continue
        target = f"{origin}.{name}" if f"{origin}.{name}" in modules else origin
        other = room_of(target)
        if other.startswith("protocols.") and not _is_folder(other, modules):
            other = "protocols"
        other_kind = "protocols.*" if other.startswith("protocols.") else other
        if other != room and other_kind not in allowed:
            complaints.append(f"{module}:{line}: {room} may not import {other}")
    return complaints


def protocols_named(source: str, module: str, names: frozenset[str]) -> list[str]:
    """Protocols that code outside their folders knows by name: a text that is the name of one, or
    lists several. What differs between protocols belongs into `ProtocolSpec`."""
    if module.startswith("unisono.protocols"):
        return []
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    complaints = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        words = set(re.findall(r"[a-z0-9_]+", node.value))
        known = words & names
        if id(node) not in docstrings and known and (words <= names or len(known) > 1):
            if (module, node.value) not in NAMED_BUT_EXCUSED:
                complaints.append(f"{module}:{node.lineno}: {node.value!r} names a protocol")
    return complaints


def _is_folder(room: str, modules: frozenset[str]) -> bool:
    return any(module.startswith(f"unisono.{room}.") for module in modules)


def impurities(source: str, module: str, is_package: bool = False) -> list[str]:
    """Clocks, dice, sockets, files and logs in a room that is to be pure."""
    if room_of(module).split(".")[0] not in PURE and not module.startswith(PURE_FOLDERS):
        return []
    complaints = [
        f"{module}:{line}: a pure room may not import {origin}"
        for line, origin, name in imports(source, module, is_package)
        if origin.split(".")[0] in IMPURE_MODULES and (origin, name) not in PURE_NAMES
    ]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in IMPURE_CALLS:
                complaints.append(
                    f"{module}:{node.lineno}: a pure room may not call {node.func.id}()"
                )
    return complaints


def struct_elsewhere(source: str, module: str, is_package: bool = False) -> list[str]:
    """Knowledge of bytes outside `wire` and the socket options of `net`."""
    if room_of(module) in KNOWS_STRUCT:
        return []
    return [
        f"{module}:{line}: only {' and '.join(KNOWS_STRUCT)} may import struct"
        for line, origin, _ in imports(source, module, is_package)
        if origin == "struct"
    ]


def beyond_the_wheel(source: str, module: str, is_package: bool = False) -> list[str]:
    """Imports of what is not installed with the package: `benchmarks` and the tests."""
    return [
        f"{module}:{line}: {origin} is not in the wheel"
        for line, origin, _ in imports(source, module, is_package)
        if origin.partition(".")[0] in ("benchmarks", "tests")
    ]


def too_long(source: str, name: str) -> list[str]:
    """A file that has become two."""
    count = len(source.splitlines())
    if count < LINES_MAX or name in TOO_LONG_BUT_EXCUSED:
        return []
    return [f"{name}: {count} lines; split it, {LINES_MAX} is the limit"]


def deviations_apart(sources: dict[str, str], readme: str) -> list[str]:
    """Deviations marked in code and not listed in the README, and the reverse."""
    complaints = []
    marked: dict[str, str] = {}
    for name, source in sources.items():
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type != tokenize.COMMENT or "Deviates" not in token.string:
                continue
            where = f"{name}:{token.start[0]}"
            if match := DEVIATES.match(token.string):
                marked[match[1]] = where
            else:
                complaints.append(f"{where}: write it as # Deviates [RMC A3.13]: why")
    section = _section(readme, "Deviations")
    complaints += [
        f"{where}: [{tag}] is not in the README under Deviations"
        for tag, where in marked.items()
        if f"[{tag}]" not in section
    ]
    complaints += [
        f"README: [{tag}] is listed under Deviations and marked at no line"
        for tag in LISTED.findall(section)
        if tag not in marked
    ]
    return complaints


def _section(text: str, title: str) -> str:
    """What stands under a heading, down to the next of its level or above."""
    match = re.search(rf"^(#+)\s*{title}\b.*$", text, re.MULTILINE)
    if match is None:
        return ""
    rest = text[match.end() :]
    end = re.search(rf"^#{{1,{len(match[1])}}}\s", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def banned(text: str, name: str) -> list[str]:
    """Words that hold on one machine or through one registry only."""
    return [
        f"{name}:{number}: names {what}"
        for number, line in enumerate(text.splitlines(), 1)
        for pattern, what in BANNED.items()
        if re.search(pattern, line)
    ]


SAME_ROLE = frozenset(
    """Coordinator Data Header Joiner Leaving MemberState Membership Ordering PacketBuilder
    PacketKind Parameters Receiver Refuse Repair SendQueue StatePiece StateRequest StateTransfer
    Timer""".split()
)
"""What each protocol has a class for, under the same name."""


def names_twice(sources: Iterable[tuple[str, str]]) -> list[str]:
    """Class names with more than one meaning, given modules and their sources."""
    homes: dict[str, list[str]] = {}
    for module, source in sources:
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(module)
    return [
        f"{name}: {', '.join(modules)}"
        for name, modules in sorted(homes.items())
        if len(modules) > 1 and not _is_same_role(name, modules)
    ]


def _is_same_role(name: str, modules: list[str]) -> bool:
    folders = {room_of(module) for module in modules}
    in_protocols = all(folder.startswith("protocols.") for folder in folders)
    return name in SAME_ROLE and in_protocols and len(folders) == len(modules)
