"""Adapters that keep everything in memory, for tests and simulations."""
