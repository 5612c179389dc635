"""Atomic commit without a coordinator, as a pure function of the total order."""
