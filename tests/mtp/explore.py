"""Walks the larger webs and prints what it took: `make explore`."""

from __future__ import annotations

import argparse
from typing import Any

from tests.mtp.explorer import Verdict, explore
from tests.mtp.explorer_parts import ANY, Case
from unisono.protocols.mtp.agreement import ACCEPTED

ROW = "| {:<12} | {:<5} | {:>6} | {:>7} | {:>4} | {:<34} | {:>9} | {:>10} | {:>7} | {} |"
HEADING = "messages t losses crashes slow besides states edges seconds verdict".split()
FIRST_ONLY: dict[str, Any] = {"hear": False, "heard": (ACCEPTED,), "losses": 0}

CASES: list[tuple[str, dict[str, Any]]] = [
    ("lives 2", {"t": 1, "slow": 1, "lives": 2}),
    ("lives 2", {"t": 2, "slow": 1, "losses": 1, "lives": 2}),
    ("lives 2", {"t": 3, "slow": 1, "losses": 0, "lives": 2}),
    ("", {"t": 3}),
    ("one late empty packet", {"t": 2, "losses": 1, "empties": 1}),
    ("two late empty packets", {"t": 1, "losses": 1, "empties": 2}),
    ("only producers repair, lives 2", {"t": 2, "by_master": False, "lives": 2}),
    ("hasty, lives 2", {"t": 2, "hasty": True, "lives": 2}),
    ("lives 2", {"messages": (2, 2), "t": 1, "losses": 1, "slow": 1, "lives": 2}),
    ("", {"messages": (2, 2), "t": 2, "losses": 1}),
    ("", {"messages": (2, 2), "t": 3, "losses": 1}),
    ("tokens out 1", {"messages": (2, 2), "t": 2, "t_cur": 1, "slow": 1}),
    ("lives 2", {"messages": (1, 1, 1), "t": 1, "losses": 0, "slow": 1, "lives": 2}),
    ("", {"messages": (1, 1, 1), "t": 2, "losses": 1}),
    ("", {"messages": (1, 1, 1), "t": 3, "losses": 0, "crashes": 2}),
    ("members' headers", {"messages": (1, 1, 1), "t": 2, "losses": 0, "gossip": True}),
    ("", {"messages": (2, 1, 1), "t": 1, "losses": 0}),
    ("only headers", {"messages": (2, 1, 1), "t": 2, "losses": 1, "hear": False}),
    ("only headers", {"messages": (2, 1, 1), "t": 3, "losses": 0, "hear": False}),
    (
        "the master can be asked",
        {"messages": (1, 1, 1), "t": 2, "losses": 1, "crashes": 2, "tells": True},
    ),
    (
        "tokens out 1, accepted heard",
        {"messages": (1, 1, 1, 1), "t": 2, "t_cur": 1, "crashes": 3, **FIRST_ONLY},
    ),
    (
        "tokens out 1, accepted heard",
        {"messages": (1, 1, 1, 2), "t": 3, "t_cur": 1, "crashes": 3, **FIRST_ONLY},
    ),
    (
        "tokens out 1, accepted heard",
        {"messages": (1, 1, 1, 1, 1), "t": 3, "t_cur": 1, "crashes": 4, **FIRST_ONLY},
    ),
]


def row(besides: str, verdict: Verdict) -> str:
    case = verdict.case
    return ROW.format(
        " ".join(map(str, case.messages)),
        case.t,
        bound(case.losses),
        bound(case.crashes),
        bound(case.slow),
        besides,
        f"{verdict.states:,}",
        f"{verdict.edges:,}",
        f"{verdict.seconds:.1f}",
        told(verdict),
    )


def bound(most: int) -> str:
    return "any" if most == ANY else str(most)


def told(verdict: Verdict) -> str:
    if verdict.broken:
        return f"broken: {verdict.broken}"
    fewest = [f"{verdict.least_failed(w)} ({w})" for w in sorted({r.why for r in verdict.rejoins})]
    return (
        f"holds; rejoins from {', '.join(fewest)}" if fewest else "holds; no member has to rejoin"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=int, nargs="*", help="rows to walk, from 1 on")
    only = parser.parse_args().only or range(1, len(CASES) + 1)
    print(ROW.format(*HEADING))
    print("|".join(["", *["---"] * len(HEADING), ""]))
    broken = 0
    for number in only:
        besides, how = CASES[number - 1]
        verdict = explore(Case(**how))
        print(row(besides, verdict), flush=True)
        if verdict.broken:
            broken += 1
            print(verdict.story)
    return min(broken, 1)


if __name__ == "__main__":
    raise SystemExit(main())
