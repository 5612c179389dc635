"""A yardstick for the judge at scale: synthetic traces, and the same laws in DuckDB's SQL."""
