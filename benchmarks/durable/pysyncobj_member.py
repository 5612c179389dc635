"""A member of PySyncObj: `-m benchmarks.durable.pysyncobj_member INDEX DIRECTORY SYNC PORTS`.

Its journal is a mapped file that it never flushes: with SYNC `fsync` each entry is, as it must be
to outlive a power cut; with `mapped` it is as the library has it.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from benchmarks.durable.load import of_store, serve


def synced_journal() -> None:
    from pysyncobj.journal import FileJournal

    add = FileJournal.add

    def add_and_flush(self: Any, *entry: Any) -> None:
        add(self, *entry)
        self._FileJournal__journalFile.flush()

    FileJournal.add = add_and_flush


class RaftStore:
    """Calls wait for their callback, which comes from the library's own thread."""

    def __init__(self, index: int, directory: str, ports: list[str]) -> None:
        from pysyncobj import SyncObj, SyncObjConf, replicated

        class Values(SyncObj):  # type: ignore[misc]
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments)
                self.values: dict[bytes, bytes] = {}

            @replicated  # type: ignore[untyped-decorator]
            def put(self, key: bytes, value: bytes) -> None:
                self.values[key] = value

        addresses = [f"127.0.0.1:{port}" for port in ports]
        conf = SyncObjConf(
            journalFile=f"{directory}/journal",
            appendEntriesUseBatch=True,
            appendEntriesPeriod=0.005,
            autoTickPeriod=0.005,
            raftMinTimeout=2.0,
            raftMaxTimeout=4.0,
            connectionTimeout=10.0,
        )
        others = [each for at, each in enumerate(addresses) if at != index]
        self.object = Values(addresses[index], others, conf)
        self._loop = asyncio.get_running_loop()

    async def ready(self) -> None:
        async with asyncio.timeout(60):
            while not self.object.isReady():
                await asyncio.sleep(0.05)

    async def put(self, key: bytes, value: bytes) -> None:
        done: asyncio.Future[None] = self._loop.create_future()

        def called(_: Any, error: int) -> None:
            self._loop.call_soon_threadsafe(settle, error)

        def settle(error: int) -> None:
            if error:
                done.set_exception(RuntimeError(f"PySyncObj fails: {error}"))
            else:
                done.set_result(None)

        self.object.put(key, value, callback=called)
        await done

    async def get(self, key: bytes) -> None:
        self.object.values.get(key)

    async def get_latest(self, key: bytes) -> None:
        """It has no such read: an update is one."""
        await self.put(key, b"")


async def main(index: str, directory: str, sync: str, *ports: str) -> None:
    if sync == "fsync":
        synced_journal()
    store = RaftStore(int(index), directory, list(ports))
    await store.ready()
    try:
        await serve(of_store(store))
    finally:
        store.object.destroy()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
