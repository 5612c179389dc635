"""Other systems that order messages, started and driven by the bench: docs/PEERS.md."""

from __future__ import annotations

from unisono.bench.system import System


def peers() -> dict[str, System]:
    """All peers by name, whether installed here or not."""
    # Imported here: a module that is a member's program too must not be imported with the package.
    from unisono.bench.peers.corosync import Corosync
    from unisono.bench.peers.jgroups import JGroups
    from unisono.bench.peers.nats import Nats
    from unisono.bench.peers.pysyncobj import PySyncObj
    from unisono.bench.peers.redis import Redis

    corosyncs = (Corosync(), Corosync(realtime=False))
    known: tuple[System, ...] = (*corosyncs, JGroups(), PySyncObj(), Nats(), Redis())
    return {each.name: each for each in known}
