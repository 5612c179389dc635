"""What a run leaves behind: rows, the tap that makes them, and the Parquet files that hold them."""
