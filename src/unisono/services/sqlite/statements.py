"""Which SQL statements can be replicated, as far as their text tells."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from enum import Enum
from typing import Final

from unisono.errors import Misuse


class NotReplicable(Misuse):
    """A statement whose effect could differ between replicas, or that no update may contain."""


class StatementKind(Enum):
    WRITE = "write"
    """Goes through the order."""
    READ = "read"
    """Answered by the local file."""
    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"


_TOKEN: Final = re.compile(
    r"""(?P<skipped>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\])
    |(?P<number>\d[\w.]*)
    |(?P<word>[^\W\d][\w$]*)
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_READS: Final = frozenset(("SELECT", "VALUES", "EXPLAIN"))
_CHANGES: Final = frozenset(("INSERT", "REPLACE", "UPDATE", "DELETE"))
_CONTROL: Final = {
    "BEGIN": StatementKind.BEGIN,
    "COMMIT": StatementKind.COMMIT,
    "END": StatementKind.COMMIT,
    "ROLLBACK": StatementKind.ROLLBACK,
}
_REFUSED: Final = {
    "ATTACH": "another file is not replicated: copy its rows with INSERT",
    "DETACH": "no other file is attached",
    "VACUUM": "it cannot run inside the update that records its place: the file of a new replica"
    " is compact, and a file reuses its free pages",
    "SAVEPOINT": "an update is applied whole or not at all: use `async with db.transaction()`",
    "RELEASE": "an update is applied whole or not at all: use `async with db.transaction()`",
}
KEPT_PRAGMAS: Final = frozenset(("USER_VERSION", "APPLICATION_ID"))
"""Set in the file itself, in the transaction; all others belong to one connection."""
PRAGMA_ADVICE: Final = (
    "it sets one connection, and those of the replicas are all set alike (foreign_keys is on); only"
    " user_version and application_id are in the file"
)


def tokens_of(sql: str) -> Iterator[str]:
    """Words in upper case, signs, and `'` for anything quoted; no blanks or comments."""
    for found in _TOKEN.finditer(sql):
        if found.lastgroup == "word":
            yield found[0].upper()
        elif found.lastgroup == "quoted":
            yield "'"
        elif found.lastgroup != "skipped":
            yield found[0]


def kind_of(sql: str) -> StatementKind:
    """What a single statement does, by its keyword; `NotReplicable` says what to use instead."""
    if is_empty(sql):
        raise NotReplicable("an empty statement: write one")
    words = [word for word in tokens_of(sql) if word != ";"]
    first = words[0]
    if first == "WITH":
        depth = 0
        for first in words:
            depth += (first == "(") - (first == ")")
            if depth == 0 and first in _CHANGES | _READS:
                break
    if advice := _REFUSED.get(first):
        raise NotReplicable(f"{first} cannot be replicated: {advice}")
    if first in _CONTROL:
        return _CONTROL[first]
    if first == "PRAGMA":
        sets_kept = KEPT_PRAGMAS & set(words[1:4]) and {"=", "("} & set(words)
        return StatementKind.WRITE if sets_kept else StatementKind.READ
    return StatementKind.READ if first in _READS else StatementKind.WRITE


def checked_write(sql: str) -> str:
    """The statement, if it can be part of an update."""
    kind = kind_of(sql)
    if kind is StatementKind.READ:
        if next(tokens_of(sql)) == "PRAGMA":
            raise NotReplicable(f"this PRAGMA cannot be replicated: {PRAGMA_ADVICE}")
        raise NotReplicable("this statement only reads, and reads are local: use query()")
    if kind is not StatementKind.WRITE:
        raise NotReplicable(
            f"{kind.name} spans several calls: use `async with db.transaction()`, whose statements"
            " are one update"
        )
    if _limits_without_order(sql):
        raise NotReplicable(
            "LIMIT without ORDER BY leaves open which rows: add ORDER BY over columns that are"
            " unique together"
        )
    return sql


def _limits_without_order(sql: str) -> bool:
    ordered, last = [False], ""
    for word in tokens_of(sql):
        if word == "(":
            ordered.append(False)
        elif word == ")" and len(ordered) > 1:
            ordered.pop()
        elif word == "BY" and last == "ORDER":
            ordered[-1] = True
        elif word == "LIMIT" and not ordered[-1]:
            return True
        elif word == ";":
            ordered[-1] = False
        last = word
    return False


def complete_in(script: str) -> tuple[list[str], str]:
    """The statements up to the last semicolon that ends one, and the rest."""
    statements, start = [], 0
    for found in _TOKEN.finditer(script):
        if found[0] == ";" and sqlite3.complete_statement(script[start : found.end()]):
            statements.append(script[start : found.end()].strip())
            start = found.end()
    return [each for each in statements if not is_empty(each)], script[start:]


def split(script: str) -> list[str]:
    """The statements of a script; a last one without a semicolon too."""
    statements, rest = complete_in(script)
    return statements if is_empty(rest) else [*statements, rest.strip()]


def is_empty(sql: str) -> bool:
    return all(word == ";" for word in tokens_of(sql))
