"""Links between nodes, from the packets that were traced: what was sent, lost and repeated from
whom to whom, how long it took, and how far the clocks differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unisono.trace.columns import Array

COLUMNS: Final = pa.schema(
    [
        ("node", pa.string()),
        ("kind", pa.string()),
        ("t_us", pa.int64()),
        ("peer", pa.string()),
        ("size", pa.int64()),
        ("digest", pa.int64()),
    ]
)
"""Of the packets of a group."""
EVERYONE: Final = "*"


class Presence(NamedTuple):
    """When an incarnation had packets: one to everyone in between was for it, too."""

    node: str
    first_us: int
    last_us: int


class _Hops(NamedTuple):
    """The packets that arrived on one link."""

    octets: int
    delays: Array
    """Ascending, of packets that were sent once."""
    packets: int


def links_of(packets: pa.Table, present: Sequence[Presence]) -> Iterator[dict[str, Any]]:
    """By sender and receiver. `ahead_us` is how far the receiver's clock is ahead, if the shortest
    delays are equal both ways."""
    is_sent = pc.equal(packets.column("kind"), "packet_out")
    out, arrived = packets.filter(is_sent), packets.filter(pc.invert(is_sent))
    sent = out.group_by(["node", "digest"], use_threads=False).aggregate(
        [("t_us", "min"), ("t_us", "count")]
    )
    nodes = sorted({each.node for each in present})
    addresses = _addresses(sent, arrived)
    hops = _hops(sent, arrived, addresses, nodes)
    for (sender, receiver), (count, again) in _sent_on(out, addresses, present, nodes).items():
        there, back = hops.get((sender, receiver)), hops.get((receiver, sender))
        delays = there.delays if there else np.empty(0, np.int64)
        shortest, returned = _shortest(there), _shortest(back)
        received = there.packets if there else 0
        yield {
            "sender": sender,
            "receiver": receiver,
            "sent": count,
            "again": again,
            "received": received,
            "lost": max(0.0, 1 - received / count),
            "octets": there.octets if there else 0,
            "min_us": shortest,
            "p50_us": _quantile(delays, 0.5),
            "p99_us": _quantile(delays, 0.99),
            "ahead_us": None
            if shortest is None or returned is None
            else (shortest - returned) // 2,
        }


def _addresses(sent: pa.Table, arrived: pa.Table) -> dict[str, str]:
    """The node behind an address: the one that sent most of the packets received from there."""
    came = arrived.select(["node", "peer", "digest"]).rename_columns(["at", "peer", "digest"])
    both = came.join(sent.select(["node", "digest"]), "digest", join_type="inner")
    both = both.filter(pc.not_equal(both.column("node"), both.column("at")))
    counts = both.group_by(["peer", "node"]).aggregate([("digest", "count")]).to_pylist()
    ranked = sorted(counts, key=lambda row: (row["digest_count"], row["node"]))
    return {row["peer"]: row["node"] for row in ranked}


def _hops(
    sent: pa.Table, arrived: pa.Table, addresses: Mapping[str, str], nodes: Sequence[str]
) -> dict[tuple[str, str], _Hops]:
    """By sender and receiver."""
    came = arrived.append_column("sender", _named(arrived.column("peer"), addresses))
    came = came.filter(pc.not_equal(came.column("sender"), came.column("node")))
    came = came.join(sent, ["sender", "digest"], ["node", "digest"], join_type="left outer")
    sender, receiver = _coded(came.column("sender"), nodes), _coded(came.column("node"), nodes)
    pair = sender * len(nodes) + receiver
    order = np.argsort(pair, kind="stable")
    is_once = pc.fill_null(pc.equal(came.column("t_us_count"), 1), False).to_numpy()
    delay = pc.subtract(came.column("t_us"), came.column("t_us_min"))
    delays, size = pc.fill_null(delay, 0).to_numpy(), came.column("size").to_numpy()
    found = {}
    for rows in np.split(order, np.flatnonzero(np.diff(pair[order])) + 1):
        if len(rows):
            code = int(pair[rows[0]])
            known = np.sort(delays[rows[is_once[rows]]])
            hops = _Hops(int(size[rows].sum()), known, len(rows))
            found[nodes[code // len(nodes)], nodes[code % len(nodes)]] = hops
    return found


def _sent_on(
    out: pa.Table, addresses: Mapping[str, str], present: Sequence[Presence], nodes: Sequence[str]
) -> dict[tuple[str, str], tuple[int, int]]:
    """By sender and receiver, how many packets were sent, and how many of them again."""
    sender, digest = _coded(out.column("node"), nodes), out.column("digest").to_numpy()
    t_us, to = out.column("t_us").to_numpy(), _named(out.column("peer"), addresses)
    target, everyone = _coded(to, nodes), pc.equal(out.column("peer"), EVERYONE).to_numpy()
    order = np.lexsort((t_us, digest, sender))
    again = np.zeros(len(order), np.bool_)
    same = (np.diff(digest[order]) == 0) & (np.diff(sender[order]) == 0)
    again[order[1:]] = same
    counts = np.zeros((2, len(nodes), len(nodes)), np.int64)
    for each in present:
        receiver = nodes.index(each.node)
        mine = (everyone | (target == receiver)) & (sender != receiver)
        mine &= (t_us >= each.first_us) & (t_us <= each.last_us)
        for table, rows in zip(counts, (mine, mine & again), strict=True):
            table[:, receiver] += np.bincount(sender[rows], minlength=len(nodes))
    return {
        (nodes[a], nodes[b]): (int(counts[0, a, b]), int(counts[1, a, b]))
        for a, b in np.argwhere(counts[0]).tolist()
    }


def _named(peers: pa.ChunkedArray, addresses: Mapping[str, str]) -> pa.Array:
    """The node behind each address; null for an unknown one."""
    coded = peers.combine_chunks().dictionary_encode()
    names = pa.array([addresses.get(each) for each in coded.dictionary.to_pylist()], pa.string())
    return names.take(coded.indices)


def _coded(names: Any, nodes: Sequence[str]) -> Array:
    """The index of each name; -1 for null."""
    index = pc.index_in(names, pa.array(nodes, pa.string()))
    found: Array = pc.fill_null(index, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _shortest(hops: _Hops | None) -> int | None:
    return int(hops.delays[0]) if hops is not None and len(hops.delays) else None


def _quantile(ascending: Array, part: float) -> int | None:
    at = max(0, int(np.ceil(part * len(ascending))) - 1)
    return int(ascending[at]) if len(ascending) else None
