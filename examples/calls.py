"""Ask every member of a group the same question, at the same position of its total order."""

import asyncio
from contextlib import AsyncExitStack

from unisono.services import rpc


def answer(group: rpc.RpcGroup, stock: int) -> asyncio.Task[None]:
    @group.answer
    def count(call: rpc.Call) -> bytes:
        return f"{stock} {call.payload.decode()}".encode()

    return asyncio.create_task(group.serve())


async def main() -> None:
    async with AsyncExitStack() as stack:  # three members in one process, to keep it short
        joining = [rpc.join("stock", name=name) for name in ("ann", "bob", "cid")]
        groups = [await stack.enter_async_context(each) for each in joining]
        serving = [answer(group, stock) for stock, group in enumerate(groups, 3)]
        result = await groups[-1].call(b"apples", answers=rpc.MAJORITY, timeout=5.0)
        print(result, result.by_name())
    await asyncio.gather(*serving)


asyncio.run(main())
