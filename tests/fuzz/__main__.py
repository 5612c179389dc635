"""`python -m tests.fuzz`: hostile bytes to every decoder, and hostile packets to live members, in
simulated runs and on sockets, for as long as told. Prints what was done; ends with 1 if anything
raised, hung, grew or broke a law."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from tests.fuzz.decoders import DECODERS, mangle
from tests.fuzz.live import ENEMIES, PROTOCOLS, Found, attack
from tests.fuzz.sockets import attack_sockets

SOCKET_INPUTS = 2_000
SOCKETS_LIMIT_S = 300.0
"""Far more than members that do not hang need to leave."""


def attacks(
    protocols: Sequence[str], enemies: Sequence[str], seed: int, sockets: bool
) -> Iterator[Found]:
    """Each protocol with each enemy; on sockets, an impersonator stands for a broken member too."""
    for protocol in protocols:
        for enemy in () if sockets else enemies:
            yield attack(protocol, enemy, seed)
        for enemy in enemies:
            if enemy != "broken":
                story = attack_sockets(protocol, enemy, seed, SOCKET_INPUTS)
                yield asyncio.run(asyncio.wait_for(story, SOCKETS_LIMIT_S))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0, help="the first; with both others, the one")
    parser.add_argument("--protocol", choices=PROTOCOLS)
    parser.add_argument("--enemy", choices=ENEMIES)
    parser.add_argument("--sockets", action="store_true", help="real ones alone")
    asked = parser.parse_args()
    protocols = (asked.protocol,) if asked.protocol else PROTOCOLS
    enemies = (asked.enemy,) if asked.enemy else ENEMIES
    until = time.monotonic() + asked.seconds
    seed, total, broken = asked.seed, Counter[str](), 0
    while True:
        if not ((asked.protocol and asked.enemy) or asked.sockets):
            for decoder in DECODERS:
                total["decoded"] += mangle(decoder, seed, 300)
        for found in attacks(protocols, enemies, seed, asked.sockets):
            total += found.counts
            total["runs"] += 1
            for text in found.violations[:3]:
                print(f"{text}\n  again: {found.replay}", flush=True)
            broken += bool(found.violations)
        seed += 1
        if time.monotonic() >= until or (asked.protocol and asked.enemy):
            break
    inputs = total["inputs"]
    share = 100 * total["forged"] / max(1, inputs)
    print(
        f"{total['decoded']:,} decoded; {total['runs']} runs, {inputs:,} hostile packets,"
        f" {share:.0f}% with one hostile field behind sound checks, {total['steps']:,} steps,"
        f" {total['stopped']} members stopped; {broken} runs broken"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
