"""State on merge, as a pure function of one order of messages and views."""
