"""What several protocols need and none owns."""
