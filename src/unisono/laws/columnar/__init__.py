"""The laws on columns: what `unisono.laws` defines, on the files of a run as they are read."""
