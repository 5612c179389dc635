"""A work queue without a server. A job counts as queued once a majority of the members holds it; a
worker takes it under a lock, so that no two do it at once; when a worker is killed, its lock is
released in the total order and another worker does the job again.

python examples/jobs.py                three workers here, of which one is killed every other second
python examples/jobs.py --work ann     a worker alone: run others in other terminals, and the queue
                                       with --join
"""

import argparse
import asyncio
import contextlib
import json
import random
import signal
import sys
from typing import Any

import unisono
from unisono import MAJORITY, ChangeKind, Resilient

NAMES = ("ann", "bob", "cay")
LOCKS = 256


class Board:
    """The jobs as every member knows them, from the total order alone."""

    def __init__(self) -> None:
        self.jobs: dict[int, str] = {}
        """By sequence number, what to do."""
        self.done: dict[int, str] = {}
        """Which member did it."""
        self.running: dict[int, str] = {}
        """By lock, its holder."""
        self.stable: set[int] = set()
        self.news: list[str] = []
        """What is to be told beside the counts."""
        self.changed = asyncio.Event()

    def snapshot(self) -> bytes:
        kept = (self.jobs, self.done, self.running)
        return json.dumps([list(each.items()) for each in kept]).encode()

    def restore(self, state: bytes) -> None:
        self.jobs, self.done, self.running = map(dict, json.loads(state))

    def at_work(self) -> dict[str, str]:
        """By worker, the job that it does now."""
        jobs = {job % LOCKS: what for job, what in self.jobs.items() if job not in self.done}
        return {name: jobs[number] for number, name in self.running.items() if number in jobs}

    def open(self) -> list[int]:
        """The jobs that nobody has done, or does."""
        busy = self.running.keys()
        return [job for job in self.jobs if job not in self.done and job % LOCKS not in busy]

    async def read(self, group: unisono.Group) -> None:
        async for event in group:
            match event:
                case unisono.Message(sender, payload, seq=seq):
                    order = json.loads(payload)
                    if "job" in order and seq is not None:
                        self.jobs[seq] = order["job"]
                    elif "done" in order:
                        self.done.setdefault(order["done"], sender.name)
                case unisono.Stable(messages):
                    self.stable |= {each.seq for each in messages if each.seq in self.jobs}
                case unisono.View(changes=changes):
                    for change in changes:
                        names = [member.name for member in change.who]
                        if change.what is ChangeKind.LOCK_GRANTED:
                            self.running[change.number or 0] = names[0]
                        elif change.what is ChangeKind.LOCK_RELEASED:
                            self.running.pop(change.number or 0, None)
                        elif change.what is ChangeKind.FAILED:
                            lost = [f"{who}, which did {job}" for who, job in self.at_work().items()
                                    if who in names]  # fmt: skip
                            self.news.append(f"the group is without {', '.join(lost or names)}")
            self.changed.set()

    async def until(self, ready: Any) -> None:
        while not ready():
            self.changed.clear()
            await self.changed.wait()

    def __str__(self) -> str:
        at_work = [f"{name} on {job}" for name, job in sorted(self.at_work().items())]
        return (
            f"ordered {len(self.jobs):3}  stable {len(self.stable):3}"
            f"  done {len(self.done):3}  at work: {', '.join(at_work) or 'nobody'}"
        )


@contextlib.asynccontextmanager
async def membership(name: str, port: int) -> Any:
    board = Board()
    joining = unisono.join(
        "jobs",
        name=name,
        protocol="rmp",
        port=port,
        rejoin=True,
        snapshot=board.snapshot,
        restore=board.restore,
    )
    async with joining as group:
        reading = asyncio.create_task(board.read(group))
        try:
            yield group, board
        finally:
            reading.cancel()


async def work(name: str, port: int, job_s: float) -> None:
    """Take jobs and do them, until killed."""
    async with membership(name, port) as (group, board):
        while True:
            await board.until(board.open)
            job = random.choice(board.open())
            try:
                lock = group.lock(job % LOCKS)
                if not await lock.try_acquire():
                    continue
                try:
                    # Everything ordered before the grant is read: a job that is still open is ours.
                    if job not in board.done:
                        await asyncio.sleep(job_s * random.uniform(0.5, 1.5))
                        done = json.dumps({"done": job}).encode()
                        await group.multicast(done, Resilient(MAJORITY)).stable
                finally:
                    lock.release()
            except (unisono.Stopped, unisono.LockLost):
                await asyncio.sleep(0.2)  # We are joining again, and hold nothing.


async def queue(group: unisono.Group, jobs: int, every_s: float) -> None:
    for number in range(jobs):
        job = json.dumps({"job": f"job {number}"}).encode()
        await group.multicast(job, Resilient(MAJORITY))
        await asyncio.sleep(every_s)


class Workers:
    """Processes that are killed and started again."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self.kills = 0

    async def start(self, name: str) -> None:
        command = (sys.executable, __file__, "--work", name, *self._arguments)
        self._running[name] = await asyncio.create_subprocess_exec(*command)

    async def kill(self, name: str) -> None:
        process = self._running.pop(name)
        if process.returncode is None:
            process.kill()
            self.kills += 1
        await process.wait()

    async def kill_at_random(self, group: unisono.Group, board: Board, every_s: float) -> None:
        """One at a time, which is at work if any is: a majority of each view must live, for it
        alone knows the jobs."""
        while True:
            await asyncio.sleep(every_s * random.uniform(0.5, 1.5))
            await board.until(lambda: len(group.members) > len(NAMES))
            busy = [name for name in board.running.values() if name in self._running]
            name = random.choice(busy or list(self._running))
            await self.kill(name)
            board.news.append(f"{name} is killed")
            await board.until(lambda: len(group.members) <= len(NAMES))
            await self.start(name)
            board.news.append(f"{name} is started again")

    async def end(self) -> None:
        for name in list(self._running):
            await self.kill(name)


async def direct(options: argparse.Namespace) -> int:
    """Queue jobs, kill workers, and show what is ordered, stable and done."""
    workers = Workers("--port", str(options.port), "--job-s", str(options.job_s))
    async with membership("queue", options.port) as (group, board), asyncio.TaskGroup() as tasks:
        for name in () if options.join else NAMES:
            await workers.start(name)
        await board.until(lambda: len(group.members) > len(NAMES) or options.join)
        if not options.join:
            killing = tasks.create_task(workers.kill_at_random(group, board, options.kill_s))
        queueing = tasks.create_task(queue(group, options.jobs, options.every_s))
        try:
            while len(board.done) < options.jobs or len(board.stable) < options.jobs:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await board.until(lambda: False)
                news, board.news = board.news, []
                for line in () if options.json else (*(f"-- {each}" for each in news), board):
                    print(line, flush=True)
            await queueing
        finally:
            if not options.join:
                killing.cancel()
            kills = workers.kills
            await workers.end()
    found = {"jobs": options.jobs, "stable": len(board.stable), "done": len(board.done)}
    by = {name: list(board.done.values()).count(name) for name in sorted({*board.done.values()})}
    text = f"all done, through {kills} kills: {', '.join(f'{name} {by[name]}' for name in by)}"
    print(json.dumps(found | {"kills": kills, "by": by}) if options.json else text)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", metavar="NAME", help="be a worker of this name")
    parser.add_argument("--join", action="store_true", help="start no workers: they run elsewhere")
    parser.add_argument("--port", type=int, default=7412)
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--every-s", type=float, default=0.2, help="between two jobs")
    parser.add_argument("--job-s", type=float, default=0.3, help="that a job takes")
    parser.add_argument("--kill-s", type=float, default=2.0, help="between two kills")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.work:
        asyncio.run(work(options.work, options.port, options.job_s))
        return 0
    return asyncio.run(direct(options))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
