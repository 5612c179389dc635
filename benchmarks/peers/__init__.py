"""Other systems that order messages, started and driven by the bench: docs/BENCHMARKS.md."""

from __future__ import annotations

from unisono.bench.system import System


def peers() -> dict[str, System]:
    """All peers by name, whether installed here or not."""
    # Imported here: a module that is a member's program too must not be imported with the package.
    from benchmarks.peers.bare_asyncio import BareAsyncio
    from benchmarks.peers.corosync import Corosync
    from benchmarks.peers.jgroups import JGroups
    from benchmarks.peers.nats import Nats
    from benchmarks.peers.pysyncobj import PySyncObj
    from benchmarks.peers.raw import Raw
    from benchmarks.peers.redis import Redis
    from benchmarks.peers.threads import Threads

    corosyncs = (Corosync(), Corosync(realtime=False))
    floors = (BareAsyncio(), Raw())
    others = (*corosyncs, JGroups(), PySyncObj(), Nats(), Redis())
    known: tuple[System, ...] = (*others, Threads(), *floors)
    return {each.name: each for each in known}
