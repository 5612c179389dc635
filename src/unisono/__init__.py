"""Group communication for Python: the same messages, in the same order, to every member."""
