"""Parts that protocols share."""
