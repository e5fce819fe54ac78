"""Where result objects are written."""
