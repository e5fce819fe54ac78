"""Checks that a simulated world keeps the promises, by comparison with the right answers."""
