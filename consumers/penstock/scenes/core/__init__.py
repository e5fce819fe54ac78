"""Decides about scenes, without a clock and without a client library."""
