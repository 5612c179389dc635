"""Dictionaries, counters and locks of systems that share them among processes."""
