"""Unisono beside its peers, measured in one run: real members, each a process of its own."""
