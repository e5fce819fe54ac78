"""What decides about scenes: no clock, no client library."""
