"""Parts own their state: none assigns an attribute of another, or changes what one holds."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src" / "unisono"
ROOMS = ("parts", "protocols", "net", "group", "client", "daemon", "log")
CHANGES = {
    *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem"),
    *("popleft", "remove", "rotate", "setdefault", "update"),
}
"""Methods that change a set, a list, a deque or a dictionary."""


def part_in(node: ast.expr, aliases: dict[str, str]) -> str:
    """The collaborator, or what one holds, that this expression is, directly or by a local name."""
    match node:
        case ast.Name(name):
            return aliases.get(name, "")
        case ast.Attribute(ast.Name("self"), name):
            return name
        case ast.Attribute(owner, name):
            part = part_in(owner, aliases)
            return f"{part}.{name}" if part else ""
        case ast.Call(ast.Attribute(found, "get" | "pop")) | ast.Call(found) | ast.Subscript(found):
            part = part_in(found, aliases)
            return part if "." in part else ""  # An entry of what a part holds itself is its own.
    return ""


def aliases_in(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, str]:
    """Local names of attributes of `self`."""
    found: dict[str, str] = {}
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            match target, node.value:
                case ast.Tuple(names), ast.Tuple(values):
                    pairs = list(zip(names, values, strict=False))
                case _:
                    pairs = [(target, node.value)]
            for name, value in pairs:
                if isinstance(name, ast.Name) and (part := part_in(value, found)):
                    found[name.id] = part
    return found


def flattened(targets: Iterable[ast.expr]) -> Iterator[ast.expr]:
    for target in targets:
        match target:
            case ast.Tuple(elements) | ast.List(elements):
                yield from flattened(elements)
            case ast.Starred(value) | ast.Subscript(value):
                yield from flattened([value])
            case _:
                yield target


def changed_by(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Assign(targets) | ast.Delete(targets):
            return list(flattened(targets))
        case ast.AugAssign(target) | ast.AnnAssign(target):
            return list(flattened([target]))
        case ast.Call(ast.Attribute(ast.Attribute() as changed, method)) if method in CHANGES:
            return [changed]
    return []


def foreign_writes(source: str) -> list[str]:
    """`Class: part.attribute`, for each place where a method changes it."""
    found = []
    for owner in ast.walk(ast.parse(source)):
        if not isinstance(owner, ast.ClassDef):
            continue
        for function in owner.body:
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            aliases = aliases_in(function)
            for node in ast.walk(function):
                for target in changed_by(node):
                    if isinstance(target, ast.Attribute):
                        if part := part_in(target.value, aliases):
                            found.append(f"{owner.name}: {part}.{target.attr}")
    return found


def test_no_part_changes_what_another_owns() -> None:
    found = {
        f"{path.relative_to(SOURCES)} {each}"
        for room in ROOMS
        for path in (SOURCES / room).rglob("*.py")
        for each in foreign_writes(path.read_text())
    }
    assert not found, "give the owner a method that says what happened"


@pytest.mark.parametrize(
    "line",
    [
        "self._state.memory = True",
        "state = self._state; state.memory = True",
        "_, state = self._x, self._state; state.seen += 1",
        "self._state.earlier, seat = (), 1",
        "self._state.votes[key] = 1",
        "self._state.suspects.add(1)",
        "del self._state.votes[key]",
        "self._tokens.machine.t_cur = 1",
        "machine = self._tokens.machine; machine.t_cur = 1",
        "watched = self._watch.members.get(key); watched.token = 1",
        "mine = self._roster.mine(); mine.delivered = 1",
    ],
)
def test_a_write_into_another_part_is_seen(line: str) -> None:
    assert foreign_writes(f"class Part:\n    def act(self):\n        {line}\n")


@pytest.mark.parametrize(
    "line",
    [
        "self._seen = 1",
        "self._votes[key] = 1",
        "peer.heard_us = 1",
        "self._state.note_seen(1)",
        "peer = self._peers[key]; peer.heard_us = 1",
        "peer = self._peers.get(key); peer.heard_us = 1",
        "self._counts[name] += 1",
    ],
)
def test_a_part_may_change_its_own(line: str) -> None:
    assert not foreign_writes(f"class Part:\n    def act(self):\n        {line}\n")
