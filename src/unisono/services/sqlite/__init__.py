"""Replicated SQLite: a database file at every member, changed by the same statements in one order.

`statements` says which statements can be replicated, `updates` is what travels, `functions` gives
the clock and the dice of a statement values that are fixed at submission, `replica` applies
updates to the file.

Statements travel, not changesets: Python's `sqlite3` does not reach SQLite's session extension,
also where the library has it.
"""
