"""Several regions, one of which is cut off."""
