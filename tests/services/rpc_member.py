"""A member that answers calls with its name, in a process of its own: orders come as JSON, and
`call`, `quit` on standard input."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from unisono.services import rpc


def tell(kind: str, **told: Any) -> None:
    print(json.dumps({"kind": kind, **told}), flush=True)


async def main(orders: dict[str, Any]) -> None:
    async with rpc.join(orders.pop("group"), **orders) as group:

        @group.answer
        def answer(call: rpc.Call) -> bytes:
            return group.me.name.encode()

        serving = asyncio.create_task(group.serve())
        tell("joined", me=group.me.name)
        while line := await asyncio.to_thread(sys.stdin.readline):
            if line.split() == ["quit"]:
                break
            try:
                result = await group.call(b"who", rpc.ALL, timeout=60.0)
            except rpc.TooFewAnswers as error:
                result = error.result
            tell(
                "result",
                enough=result.enough,
                answers=sorted(result.by_name()),
                failures={m.name: f.reason.name for m, f in result.failures.items()},
            )
        serving.cancel()


asyncio.run(main(json.loads(sys.argv[1])))
