"""Notes in a SQLite database that each of three processes has: python examples/notes.py a [TEXT …]

Run it for a, b and c in three terminals, again and again, and kill any of them, or all: what was
noted stays, and no two files differ. It stays until Ctrl-C; `sqlite3 notes-a.db` reads meanwhile.
"""

import asyncio
import contextlib
import sys

import unisono

TABLE = """CREATE TABLE IF NOT EXISTS
    notes(id INTEGER PRIMARY KEY, author, text, at DEFAULT CURRENT_TIMESTAMP)"""


async def main(name: str, *texts: str) -> None:
    replica = unisono.sqlite(f"notes-{name}.db", group="notes", name=name, members=["a", "b", "c"])
    async with replica as db:
        await db.execute(TABLE)  # waits until two of the three are there
        for text in texts:
            await db.execute("INSERT INTO notes(author, text) VALUES (?, ?)", (name, text))
        shown: int | float | str | bytes | None = 0
        while True:
            found = await db.query("SELECT * FROM notes WHERE id > ? ORDER BY id", (shown,))
            for number, author, note, at in found.rows:
                print(f"#{number!r}", at, author, note, flush=True)
                shown = number
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
