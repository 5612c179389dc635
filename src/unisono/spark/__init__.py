"""The pipeline: what groups did, read, checked and measured at scale by Apache Spark."""
