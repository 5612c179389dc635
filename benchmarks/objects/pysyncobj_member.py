"""PySyncObj's batteries: `-m benchmarks.objects.pysyncobj_member INDEX PORTS`. In memory, as it is
by default; the first of three members has the callers."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.durable.load import Calls, serve, update
from benchmarks.objects.unisono_member import LOCKS
from benchmarks.peers.pysyncobj import SETTINGS


class Batteries:
    """Calls wait for their callback, which comes from the library's own thread."""

    def __init__(self, index: int, ports: list[str]) -> None:
        from pysyncobj import SyncObj, SyncObjConf
        from pysyncobj.batteries import ReplCounter, ReplDict, ReplLockManager

        self.store, self.counter = ReplDict(), ReplCounter()
        self.locks = ReplLockManager(autoUnlockTime=75)
        addresses = [f"127.0.0.1:{port}" for port in ports]
        others = [each for at, each in enumerate(addresses) if at != index]
        consumers = [self.store, self.counter, self.locks]
        conf = SyncObjConf(**SETTINGS)
        self.object = SyncObj(addresses[index], others, conf, consumers=consumers)
        self._loop = asyncio.get_running_loop()

    async def ready(self) -> None:
        async with asyncio.timeout(60):
            while not self.object.isReady():
                await asyncio.sleep(0.05)

    async def result(self, call: Callable[..., Any], *arguments: Any) -> Any:
        done: asyncio.Future[Any] = self._loop.create_future()

        def settle(result: Any, error: int) -> None:
            if error:
                done.set_exception(RuntimeError(f"PySyncObj fails: {error}"))
            else:
                done.set_result(result)

        def called(result: Any, error: int) -> None:
            self._loop.call_soon_threadsafe(settle, result, error)

        call(*arguments, callback=called)
        return await done

    def calls(self) -> Calls:
        async def put(number: int) -> None:
            await self.result(self.store.set, *update(number))

        async def add(number: int) -> None:
            await self.result(self.counter.add, 1)

        async def lock(number: int) -> None:
            name = str(number % LOCKS)
            assert await self.result(self.locks.tryAcquire, name)
            await self.result(self.locks.release, name)

        return {"dict": put, "counter": add, "lock": lock}


async def main(index: str, *ports: str) -> None:
    batteries = Batteries(int(index), list(ports))
    await batteries.ready()
    await serve(batteries.calls())
    os._exit(0)  # Its threads do not end by themselves.


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
