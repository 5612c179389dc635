"""Calls a second of `unisono.services.rpc`: real members on this machine, one of which calls.

python -m benchmarks.calls --protocol ring,mtp --members 3 --callers 1,64
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from typing import Any

from unisono.services import rpc

TIMEOUT_S = 30.0


def options(protocol: str, at: int, members: int, port: int) -> Any:
    own = {"mtp": {"master": int(at == 0)}, "ring": {"sites": members}}.get(protocol, {})
    return {"name": f"m{at}", "protocol": protocol, "port": port, "join_s": 60.0, **own}


def echo(call: rpc.Call) -> bytes:
    return call.payload


async def serve(protocol: str, at: int, members: int, port: int) -> None:
    async with rpc.join("calls", **options(protocol, at, members, port)) as group:
        group.answer(echo)
        await group.serve()


async def measure(protocol: str, port: int, callers: list[int], given: argparse.Namespace) -> None:
    members = given.members
    command = [sys.executable, "-m", "benchmarks.calls", "--protocol", protocol]
    command += ["--members", str(members), "--port", str(port), "--serve"]
    others = [subprocess.Popen([*command, str(at)]) for at in range(1, members)]
    try:
        async with rpc.join("calls", **options(protocol, 0, members, port)) as group:
            group.answer(echo)
            serving = asyncio.create_task(group.serve())
            while len(group.members) < members:
                await asyncio.sleep(0.05)
            for count in callers:
                await measured(group, count, given.seconds, given.size)
            serving.cancel()
    finally:
        for each in others:
            each.kill()
            each.wait()


async def measured(group: rpc.RpcGroup, callers: int, seconds: float, size: int) -> None:
    took_s: list[float] = []
    failed = 0
    before, packets = group.counters(), group.group.counters()["net.out.packets"]
    start_s, cpu_s = time.perf_counter(), time.process_time()

    async def caller() -> None:
        nonlocal failed
        while time.perf_counter() - start_s < seconds:
            at_s = time.perf_counter()
            try:
                await group.call(bytes(size), rpc.ALL, TIMEOUT_S)
                took_s.append(time.perf_counter() - at_s)
            except rpc.TooFewAnswers:
                failed += 1

    await asyncio.gather(*(caller() for _ in range(callers)))
    passed_s, cpu_s = time.perf_counter() - start_s, time.process_time() - cpu_s
    took_s.sort()
    done = max(1, len(took_s))
    answers = group.counters().get("in.answers", 0) - before.get("in.answers", 0)
    found = {
        "protocol": group.group.protocol,
        "members": len(group.members),
        "callers": callers,
        "calls_s": round(len(took_s) / passed_s),
        "p50_us": round(took_s[len(took_s) // 2] * 1e6) if took_s else None,
        "p99_us": round(took_s[int(len(took_s) * 0.99)] * 1e6) if took_s else None,
        "failed": failed,
        "caller_cpu_us": round(cpu_s / done * 1e6),
        "answer_datagrams": round(answers / done, 3),
        "packets_out": round((group.group.counters()["net.out.packets"] - packets) / done, 3),
    }
    print(json.dumps(found), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--protocol", default="ring")
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--callers", default="1,64")
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--port", type=int, default=7490)
    parser.add_argument("--serve", type=int, default=0)
    given = parser.parse_args()
    for at, protocol in enumerate(given.protocol.split(",")):
        if given.serve:
            asyncio.run(serve(protocol, given.serve, given.members, given.port))
        else:
            callers = [int(each) for each in given.callers.split(",")]
            asyncio.run(measure(protocol, given.port + at, callers, given))


if __name__ == "__main__":
    main()
