"""Throughput, delay and recovery of groups of real members, each a process of its own."""
