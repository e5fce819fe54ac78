"""Transactions of a group's members, and the aborting of those that a member left open."""
