"""`unisono sql`: a replica of a database whose application is a pair of pipes."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import unisono
from unisono.cli import BAD_INPUT, INTERRUPTED, OK, PIPE_CLOSED, STOPPED, refuse
from unisono.cli.stdio import StdinReader, StdoutWriter
from unisono.errors import Misuse, UnisonoError
from unisono.services.sqlite.database import SqlTransaction
from unisono.services.sqlite.statements import StatementKind, complete_in, is_empty, kind_of
from unisono.services.sqlite.updates import UPDATE_BYTES_MAX, SqlResult, SqlValue

PATIENCE_S: Final = 2.0
"""A statement that waits longer prints the reason."""
HELP: Final = """\
.status        who is a member, who orders, and how far this replica is
.add NAME      add a member to the group; start its replica first
.remove NAME   take a member out
.lose NAME     take out one that never returns: what it alone has logged is lost
.backup FILE   copy the database, as of one place of the order
.quit          leave the group
BEGIN … COMMIT is one update; SELECT reads the local file.
"""
T = TypeVar("T")


def sql(path: Path, options: Mapping[str, Any], stay: bool, as_json: bool) -> int:
    members = [each.strip() for each in options["members"].split(",") if each.strip()]
    logging.basicConfig(format="unisono: %(message)s", level=logging.WARNING)
    return asyncio.run(SqlShell(path, {**options, "members": members}, stay, as_json).run())


class SqlShell:
    """Statements of standard input, one after another; their rows to standard output."""

    def __init__(self, path: Path, options: Mapping[str, Any], stay: bool, as_json: bool) -> None:
        self._opening = unisono.sqlite(path, **options)
        self._group = options["group"]
        self._stay = stay
        self._as_json = as_json
        self._prompts = sys.stdin.isatty() and not as_json
        self._output = StdoutWriter()
        self._transaction: SqlTransaction | None = None
        self._code = OK
        self._commands: dict[tuple[str, int], Callable[..., Awaitable[None]]] = {
            (".status", 0): self._status,
            (".add", 1): self._add,
            (".remove", 1): self._remove,
            (".lose", 1): self._lose,
            (".backup", 1): self._backup,
            (".help", 0): self._help,
        }
        """By name, and how many words follow it."""

    async def run(self) -> int:
        self._main = asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._signalled, number)
        try:
            async with self._opening as self._db:
                return await self._until_stopped()
        except asyncio.CancelledError:
            return self._code
        except BrokenPipeError:
            return PIPE_CLOSED

    def _signalled(self, number: int) -> None:
        self._code = INTERRUPTED if number == signal.SIGINT else OK
        if self._main is not None:
            self._main.cancel()
            self._main = None

    async def _until_stopped(self) -> int:
        reading = asyncio.create_task(self._read())
        ending = asyncio.create_task(self._db.log.ended())
        try:
            await asyncio.wait((reading, ending), return_when=asyncio.FIRST_COMPLETED)
            if ending.done() and self._db.log.stopped is not None:
                return refuse(f"stopped: {self._db.log.stopped}", STOPPED)
            reading.result()
            return self._code
        finally:
            for task in (reading, ending):
                task.cancel()
            await asyncio.gather(reading, ending, return_exceptions=True)

    # -- input ------------------------------------------------------------------------------------

    async def _read(self) -> None:
        rest = ""
        await self._prompt(rest)
        async for lines in StdinReader(UPDATE_BYTES_MAX):
            for line in lines:
                left = await self._take(rest, line.decode("utf-8", "replace"))
                if left is None:
                    return
                rest = left
            await self._prompt(rest)
        if not is_empty(rest):
            await self._run(rest)
        if self._stay:
            await asyncio.Event().wait()

    async def _take(self, rest: str, line: str) -> str | None:
        """What begins a statement that is not whole; None to leave."""
        if is_empty(rest) and line.startswith("."):
            words = line.split()
            if words[0] in (".quit", ".exit"):
                return None
            await self._try(self._command(words))
            return ""
        statements, rest = complete_in(f"{rest}{line}\n")
        for each in statements:
            await self._run(each)
        return rest

    async def _command(self, words: list[str]) -> None:
        command = self._commands.get((words[0], len(words) - 1))
        if command is None:
            raise Misuse(f"{' '.join(words)!r} is no command: .help lists them")
        await command(*words[1:])

    async def _prompt(self, rest: str) -> None:
        if self._prompts:
            await self._output.write(f"{self._group}> ".encode() if is_empty(rest) else b"   ...> ")

    # -- statements -------------------------------------------------------------------------------

    async def _run(self, statement: str) -> None:
        await self._try(self._execute(statement))

    async def _try(self, doing: Awaitable[None]) -> None:
        """An error of one statement is printed, and the next one follows."""
        try:
            await doing
        except (UnisonoError, sqlite3.Error, sqlite3.Warning) as error:
            if self._db.log.stopped is not None:
                raise
            self._code = BAD_INPUT
            if self._as_json:
                await self._tell({"error": str(error), "kind": type(error).__name__})
            else:
                refuse(str(error))

    async def _execute(self, statement: str) -> None:
        kind, transaction = kind_of(statement), self._transaction
        if kind is StatementKind.BEGIN:
            if transaction is not None:
                raise Misuse("a transaction has begun: COMMIT it, or ROLLBACK")
            self._transaction = SqlTransaction(self._db)
        elif kind in (StatementKind.COMMIT, StatementKind.ROLLBACK):
            if transaction is None:
                raise Misuse("no transaction has begun: write BEGIN first")
            self._transaction = None
            if kind is StatementKind.COMMIT:
                await self._patiently(transaction.submit())
                for each in transaction.results:
                    await self._show(each)
        elif kind is StatementKind.READ:
            reader = self._db if transaction is None else transaction
            await self._show(await reader.query(statement))
        elif transaction is not None:
            transaction.execute(statement)
        else:
            await self._show(await self._patiently(self._db.execute(statement)))

    async def _patiently(self, doing: Awaitable[T]) -> T:
        task = asyncio.ensure_future(doing)
        try:
            done, _ = await asyncio.wait((task,), timeout=PATIENCE_S)
            if not done and (reason := self._db.log.blocked):
                print(f"unisono: waiting: {reason}", file=sys.stderr, flush=True)
            return await task
        finally:
            task.cancel()

    # -- commands ---------------------------------------------------------------------------------

    async def _status(self) -> None:
        log = self._db.log
        await self._facts(
            members=log.members,
            primary=log.primary,
            position=log.position,
            stable=log.stable_position,
            blocked=log.blocked,
        )

    async def _add(self, name: str) -> None:
        await self._facts(added=name, position=await self._patiently(self._db.log.add(name)))

    async def _remove(self, name: str) -> None:
        await self._facts(removed=name, position=await self._patiently(self._db.log.remove(name)))

    async def _lose(self, name: str) -> None:
        position = await self._patiently(self._db.log.remove(name, lost=True))
        await self._facts(lost=name, position=position)

    async def _backup(self, path: str) -> None:
        await self._db.backup(path)
        await self._facts(copied=path)

    async def _help(self) -> None:
        await self._output.write(HELP.encode())

    # -- output -----------------------------------------------------------------------------------

    async def _show(self, result: SqlResult) -> None:
        if self._as_json:
            await self._tell(result._asdict())
            return
        lines = ["|".join(map(_as_text, row)) for row in result.rows]
        if lines:
            await self._output.write("".join(f"{line}\n" for line in lines).encode())

    async def _facts(self, **facts: Any) -> None:
        if self._as_json:
            await self._tell(facts)
            return
        shown = (
            f"{name}: {' '.join(fact) if isinstance(fact, tuple) else fact}"
            for name, fact in facts.items()
        )
        await self._output.write("".join(f"{line}\n" for line in shown).encode())

    async def _tell(self, facts: Mapping[str, Any]) -> None:
        await self._output.write((json.dumps(facts, default=_as_text) + "\n").encode())


def _as_text(value: SqlValue) -> str:
    """As the shell of SQLite prints it; a blob as its literal."""
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    return "" if value is None else str(value)
