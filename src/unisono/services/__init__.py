"""What stands on a group and its public API alone."""
