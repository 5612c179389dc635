"""The members of one cluster, for `test_wide_link.py`: `python wide_members.py K`.

They join, and each multicasts COUNT messages once it sees everyone. Prints a JSON object: what the
first of them delivered, and how long messages of other clusters took, in milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Final

import unisono

CLUSTERS: Final = {
    f"c{place}": [f"10.78.{place}.1:{port}" for port in (7401, 7402, 7403)] for place in (1, 2, 3)
}
EVERYONE: Final = sum(map(len, CLUSTERS.values()))
COUNT: Final = 5


async def member(cluster: str, at: int) -> tuple[list[str], list[float]]:
    here = CLUSTERS[cluster][at]
    order: list[str] = []
    took_ms: list[float] = []
    joining = unisono.join(
        "wide", protocol="transis", clusters=CLUSTERS, cluster=cluster, bind=here,
        name=f"{cluster}-{at}", insecure=True, join_s=60,
    )  # fmt: skip
    async with joining as group:
        sending: asyncio.Task[None] | None = None
        async for event in group:
            if isinstance(event, unisono.View) and len(event.members) == EVERYONE and not sending:
                sending = asyncio.create_task(send(group))
            if isinstance(event, unisono.Message):
                number, sent_s = event.payload.split()
                order.append(f"{event.sender.name}:{int(number)}")
                if not event.sender.name.startswith(cluster):
                    took_ms.append(1000 * (time.monotonic() - float(sent_s)))
            if len(order) == EVERYONE * COUNT:
                break
        print("done", flush=True)
        await asyncio.to_thread(sys.stdin.readline)  # The others may not have it all yet.
    return order, took_ms


async def send(group: unisono.Group) -> None:
    for number in range(COUNT):
        await group.multicast(f"{number} {time.monotonic()}".encode())
        await asyncio.sleep(0.2)


async def main(cluster: str) -> None:
    found = await asyncio.gather(*(member(cluster, at) for at in range(len(CLUSTERS[cluster]))))
    orders = [order for order, _ in found]
    assert all(order == orders[0] for order in orders)
    print(json.dumps({"order": orders[0], "took_ms": [each for _, took in found for each in took]}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
