"""Shared objects as a pure state machine: operations in one order go in, results come out."""
