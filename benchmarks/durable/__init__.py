"""Durable replication beside others: three members, each with a disk of its own, and updates that
are on it when they are acknowledged. `python -m benchmarks.durable` measures all in one run."""
