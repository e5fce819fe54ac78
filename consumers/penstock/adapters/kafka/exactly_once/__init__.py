"""Exactly once: transactions of a group's members, and the end of those that a member left open."""
