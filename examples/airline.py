"""An airline sells the seats of a flight at five offices, on a replicated log. A cut divides them,
both halves go on to sell what is free as far as they know, and when they meet every sale is in one
order at all offices: of two sales of a seat the later passenger is rebooked, or is told overbooked.

The program is an ordinary one; here the simulator's world cuts its network:
python examples/airline.py; --seats 40 --sales 12 for more, --seed 7 for other luck
"""

import argparse
import asyncio
import random
import sys
from collections.abc import Awaitable

import unisono
from unisono.programs import Program, SimulatedMember
from unisono.sim import FaultEvent, Plan, Weather, run

OFFICES = ["a", "b", "c", "d", "e"]
SECOND_US = 1_000_000
SELLING_S = 3.0


class Flight:
    """Who sits where. Every office calls `sell` for all sales, in one order."""

    def __init__(self, seats: int = 0) -> None:
        self.seats = seats
        self.bookings: dict[str, int] = {}
        """By passenger; 0: overbooked."""
        self.order: list[str] = []
        """Every sale, as it was decided."""

    def free(self) -> list[int]:
        return sorted(set(range(1, self.seats + 1)).difference(self.bookings.values()))

    @unisono.replicated
    def sell(self, office: str, passenger: str, wanted: int) -> int:
        free = self.free()
        seat = wanted if wanted in free else free[0] if free else 0
        self.bookings[passenger] = seat
        said = f"seat {seat}" if seat == wanted else f"rebooked to {seat}" if seat else "overbooked"
        self.order.append(f"{office} sold {passenger} seat {wanted}: {said}")
        return seat


class Office:
    """What one office knows beside the flight."""

    def __init__(self) -> None:
        self.flight = Flight(asked.seats)
        self.promised: dict[str, int] = {}
        self.confirmed: dict[str, int] = {}
        self.refused = self.apart = 0


async def main(name: str, state: Office) -> None:
    dice = random.Random(f"{name} {asked.seed}")
    replica = unisono.replicate_object(
        state.flight, "flight", name=name, members=OFFICES, path="flight"
    )
    async with replica as flight, asyncio.TaskGroup() as tasks:
        for number in range(1, asked.sales + 1):
            await asyncio.sleep(dice.uniform(0.5, 1.5) * SELLING_S / asked.sales)
            free = await flight.query(Flight.free, "dirty")
            if not free:
                state.refused += 1
                continue
            passenger, seat = f"{name}{number:02d}", dice.choice(free)
            sale = flight.update(Flight.sell, name, passenger, seat)
            await sale.red  # It is on this office's disk: it will not be forgotten.
            state.promised[passenger] = seat
            state.apart += not flight.log.primary
            tasks.create_task(confirm(state, passenger, sale))
        await flight.log.ended()


async def confirm(state: Office, passenger: str, sale: Awaitable[int]) -> None:
    """The one order has it: now the seat is certain."""
    state.confirmed[passenger] = await sale


def converged(members: list[SimulatedMember]) -> list[str]:
    offices: list[Office] = [each.state for each in members if each.alive]
    flight, wrong = offices[0].flight, []
    print(*flight.order, sep="\n")
    for name, office in zip(OFFICES, offices, strict=True):
        print(
            f"{name}: {len(office.promised)} sold, {office.apart} of them while cut off from most,"
            f" {office.refused} refused"
        )
        if office.flight.order != flight.order:
            wrong.append(f"{name} has another order")
        if office.promised.keys() != office.confirmed.keys():
            wrong.append(f"{name} waits for an answer")
        if any(flight.bookings[each] != seat for each, seat in office.confirmed.items()):
            wrong.append(f"{name} was told another seat than there is")
    over = sorted(each for each, seat in flight.bookings.items() if not seat)
    print(f"{len(flight.order)} sales in one order; overbooked: {' '.join(over) or 'nobody'}")
    taken = [seat for seat in flight.bookings.values() if seat]
    if len(taken) > len(set(taken)):
        wrong.append("a seat is taken twice")
    if len(flight.order) != sum(len(office.promised) for office in offices):
        wrong.append("a sale is lost")
    return wrong


def simulate() -> int:
    cut = FaultEvent("split", SECOND_US, 2 * SECOND_US, (0, 1, 2), (3, 4))
    outcome = run(
        Plan(
            protocol="transis",
            nodes=len(OFFICES),
            seed=asked.seed,
            messages=0,
            weather=Weather(fault_us=4 * SECOND_US, schedule=(cut,)),
            program=Program(main, converged=converged),
        )
    )
    for each in outcome.violations:
        print("wrong:", each.detail)
    return 1 if outcome.violations else 0


parser = argparse.ArgumentParser()
parser.add_argument("--seats", type=int, default=20)
parser.add_argument("--sales", type=int, default=6, help="of each office")
parser.add_argument("--seed", type=int, default=1)
asked = parser.parse_args() if __name__ == "__main__" else parser.parse_args([])
if __name__ == "__main__":
    sys.exit(simulate())
