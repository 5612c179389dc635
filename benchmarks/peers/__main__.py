"""`python -m benchmarks.peers`: which peers can be measured here."""

from __future__ import annotations

from benchmarks.peers import peers

for name, peer in peers().items():
    print(f"{name}: {peer.missing() or 'ready'}")
