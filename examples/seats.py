"""An airline sells the seats of a flight at six offices. A cut divides them into two halves, both
go on to sell, and when they meet again every sale is kept: who was sold a seat twice is rebooked,
and who is left over is shown as overbooked.

It runs in the simulator's world, where a network can be cut without privileges:
python examples/seats.py; --seats 40 --sales 90 for more, --seed 7 for other luck
With real members the same `Flight` goes to `unisono.services.merging.join`.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence

from unisono.model import Message, View
from unisono.services.merge.messages import APPLICATION
from unisono.services.merge.reconciler import Compute, Reconciled, Reconciler, SendMergeMessage
from unisono.services.merging import ComponentState
from unisono.sim import (
    ApplicationContext,
    ApplicationEnd,
    ApplicationSpec,
    FaultEvent,
    Plan,
    Weather,
    run,
)

SECOND_US = 1_000_000


class Flight:
    """Who sits where. A booking is a passenger, how often it was changed, and the seat, or 0."""

    def __init__(self, seats: int) -> None:
        self.seats = range(1, seats + 1)
        self.bookings: dict[str, tuple[int, int]] = {}

    def free(self) -> list[int]:
        taken = {seat for _, seat in self.bookings.values()}
        return [seat for seat in self.seats if seat not in taken]

    def sell(self, passenger: str, wanted: int) -> int:
        """The seat that was wanted, another, or 0: the flight is full, and nothing is sold."""
        if passenger in self.bookings:
            return self.bookings[passenger][1]
        free = self.free()
        if not free:
            return 0
        seat = wanted if wanted in free else free[0]
        self.bookings[passenger] = (0, seat)
        return seat

    def snapshot(self) -> bytes:
        return json.dumps(self.bookings, sort_keys=True).encode()

    def restore(self, state: bytes) -> None:
        self.bookings = {name: (times, seat) for name, (times, seat) in json.loads(state).items()}

    def reconcile(self, states: tuple[ComponentState, ...]) -> bytes:
        """All bookings of all components, each as it was last changed; of two in one seat the first
        by name stays."""
        flight = Flight(len(self.seats))
        for each in states:
            for name, booking in json.loads(each.state).items():
                known = flight.bookings.get(name, (-1, 0))
                flight.bookings[name] = max(known, tuple(booking))
        taken: set[int] = set()
        evicted = []
        for name, (times, seat) in sorted(flight.bookings.items()):
            if seat in taken or not seat:
                evicted.append(name)
                flight.bookings[name] = (times, 0)
            taken.add(seat)
        for name in evicted:
            free = flight.free()
            flight.bookings[name] = (flight.bookings[name][0] + 1, free[0] if free else 0)
        return flight.snapshot()


class Office:
    """One office: sells a seat when it is prompted, and knows what the others of its half sell."""

    def __init__(self, context: ApplicationContext, seats: int) -> None:
        self.context, self.flight = context, Flight(seats)
        self.reconciler = Reconciler(self.flight)
        self.reconciler.start(context.me)
        self.count = 0
        self.sold: dict[str, int] = {}
        """What this office confirmed to its own passengers."""
        self.refused = 0
        self.story: list[str] = []

    def tell(self, text: str) -> None:
        self.story.append(f"{self.context.now_us() / SECOND_US:5.2f} s  {text}")

    def prompt(self) -> Sequence[bytes]:
        self.count += 1
        sale = [
            f"{self.context.me.name}{self.count:02d}",
            self.context.dice.choice(self.flight.seats),
        ]
        return [APPLICATION + json.dumps(sale).encode()]

    def deliver(self, message: Message) -> Sequence[bytes]:
        return self._do(self.reconciler.deliver(message))

    def install(self, view: View) -> Sequence[bytes]:
        return self._do(self.reconciler.install(view))

    def _do(self, duties: Sequence[object]) -> list[bytes]:
        sent: list[bytes] = []
        for duty in duties:
            match duty:
                case SendMergeMessage(payload):
                    sent.append(payload)
                case Compute(key, states):
                    result = self.flight.reconcile(states)
                    sent += self._do(self.reconciler.computed(key, result))
                case View(members):
                    self.tell("together: " + " ".join(each.name for each in members))
                case Reconciled(_, states):
                    self._compare(states)
                case Message(sender, payload):
                    passenger, wanted = json.loads(payload)
                    seat = self.flight.sell(passenger, wanted)
                    if sender == self.context.me and seat:
                        self.sold[passenger] = seat
                    elif sender == self.context.me:
                        self.refused += 1
        return sent

    def _compare(self, states: Sequence[ComponentState]) -> None:
        holders: dict[int, set[str]] = {}
        for each in states:
            bookings = json.loads(each.state)
            half = "".join(member.name for member in each.members)
            self.tell(f"half {half} has sold {len(bookings)} seats")
            for name, (_, seat) in bookings.items():
                holders.setdefault(seat, set()).add(name)
        for seat, names in sorted(holders.items()):
            if seat and len(names) > 1:
                now = [
                    f"{name}: {self.flight.bookings[name][1] or 'overbooked'}"
                    for name in sorted(names)
                ]
                self.tell(f"conflict about seat {seat}: now {', '.join(now)}")

    def state(self) -> bytes:
        return self.reconciler.state()

    def adopt(self, state: bytes) -> Sequence[bytes]:
        self.reconciler.adopt(state)
        return ()

    def is_idle(self) -> bool:
        return not self.reconciler.apart


def judge(ends: Sequence[ApplicationEnd], _: object) -> Iterable[str]:
    offices: list[Office] = [each.application for each in ends if each.alive]
    first = offices[0]
    print(*first.story, sep="\n")
    bookings = first.flight.bookings
    over = sorted(name for name, (_, seat) in bookings.items() if not seat)
    sold = {name for office in offices for name in office.sold}
    print(
        f"{len(sold)} seats confirmed, {sum(office.refused for office in offices)} refused;"
        f" of {len(first.flight.seats)} seats {len(bookings) - len(over)} are taken;"
        f" overbooked: {' '.join(over) or 'nobody'}"
    )
    if any(office.flight.bookings != bookings for office in offices):
        yield "the offices have different bookings"
    if lost := sold.difference(bookings):
        yield f"confirmed, and lost: {' '.join(sorted(lost))}"
    seats = [seat for _, seat in bookings.values() if seat]
    if len(seats) > len(set(seats)):
        yield "a seat is taken twice"


def main(seats: int, sales: int, seed: int) -> int:
    cut = FaultEvent("split", SECOND_US, 3 * SECOND_US, (0, 1, 2), (3, 4, 5))
    airline = ApplicationSpec(lambda context: Office(context, seats), judge)
    outcome = run(
        Plan(
            protocol="transis",
            nodes=6,
            seed=seed,
            messages=sales,
            weather=Weather(fault_us=5 * SECOND_US, schedule=(cut,)),
            application=airline,
        )
    )
    for each in outcome.violations:
        print("wrong:", each.detail)
    return 1 if outcome.violations else 0


parser = argparse.ArgumentParser()
parser.add_argument("--seats", type=int, default=20)
parser.add_argument("--sales", type=int, default=30)
parser.add_argument("--seed", type=int, default=2)
if __name__ == "__main__":
    sys.exit(main(**vars(parser.parse_args())))
