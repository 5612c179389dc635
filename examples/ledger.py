"""A ledger that every member keeps: all hear every transfer in the same order, so all decide alike
which ones an account can pay, and nobody has to ask. A joiner is handed the ledger.

Run one master, and members in other terminals: python examples/ledger.py bank --master
python examples/ledger.py ann; python examples/ledger.py bob
They stay until Ctrl-C, or for so many transfers (--transfers). When the master leaves, all stop.
"""

import argparse
import asyncio
import contextlib
import json
import random

import unisono


class Ledger:
    def __init__(self) -> None:
        self.coins: dict[str, int] = {}

    def snapshot(self) -> bytes:
        return json.dumps(self.coins).encode()

    def restore(self, state: bytes) -> None:
        self.coins = json.loads(state)
        print("handed over:", self, flush=True)

    def transfer(self, giver: str, taker: str, coins: int) -> str:
        if self.coins[giver] < coins or taker not in self.coins:
            return "refused"
        self.coins[giver] -= coins
        self.coins[taker] += coins
        return "done"

    def __str__(self) -> str:
        return " ".join(f"{name}={coins}" for name, coins in sorted(self.coins.items()))


async def spend(group: unisono.Group, count: int) -> None:
    while count:
        others = [member.name for member in group.members if member != group.me]
        if others:
            coins = random.randint(1, 90)
            await group.multicast(f"{random.choice(others)} {coins}".encode())
            count -= 1
        await asyncio.sleep(0.2)
    await group.leave()  # which ends the stream


async def main(name: str, master: bool, transfers: int) -> None:
    ledger = Ledger()
    joining = unisono.join(
        "ledger",
        name=name,
        protocol="mtp",
        master=int(master),
        rejoin=False,  # When the master leaves, it is over.
        snapshot=ledger.snapshot,
        restore=ledger.restore,
    )
    async with joining as group, asyncio.TaskGroup() as tasks:
        spending = tasks.create_task(spend(group, transfers))
        try:
            async for event in group:
                match event:
                    case unisono.View(members):
                        for member in members:
                            ledger.coins.setdefault(member.name, 100)
                    case unisono.Message(sender, payload):
                        taker, coins = payload.decode().split()
                        how = ledger.transfer(sender.name, taker, int(coins))
                        told = f"{sender.name} gives {coins} to {taker}: {how}"
                        print(f"#{event.seq} {told}; {ledger}", flush=True)
        except unisono.Stopped as stopped:
            print("stopped:", stopped, flush=True)
            spending.cancel()


parser = argparse.ArgumentParser()
parser.add_argument("name")
parser.add_argument("--master", action="store_true")
parser.add_argument("--transfers", type=int, default=-1)
with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(main(**vars(parser.parse_args())))
