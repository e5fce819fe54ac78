"""Checks that the promises hold in a simulated world, against the right answers."""
